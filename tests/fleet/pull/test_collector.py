"""The collector over real HTTP: what it takes, refuses, keeps and shows; and its unit, as systemd reads it back."""

import errno
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpusetup.cli.main import main
from gpusetup_fleet.model.pull import Budget
from gpusetup_fleet.pull import web
from gpusetup_fleet.pull.client import next_number
from gpusetup_fleet.pull.offers import publish
from gpusetup_fleet.pull.store import FILE, Store, forget, make_token, remove_token
from gpusetup_fleet.pull.web import collector_of
from tests.certificates import Authority
from tests.fleet.pull.conftest import report


def test_a_report_is_kept_and_said_to_be_so(collector):
    assert collector.report(stack="driver 580") == (200, '{"ok": true}')
    fleet = json.loads(collector.ask("GET", "/v1/fleet", "eve")[2])
    assert fleet["hosts"]["gpu01"]["report"]["stack"] == "driver 580"
    assert fleet["hosts"]["gpu02"] == {"received": "", "report": None}


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (400, b"{"), (400, b"[]"), (400, b"\xff\xfe"),
        *((400, json.dumps(report("gpu01") | wrong).encode()) for wrong in (
            {"state": "splendid"}, {"more": 1}, {"number": -1}, {"kind": "h100\n"}, {"message": "x" * 5000})),
        (403, json.dumps(report("gpu02")).encode()),
    ],
    ids=["cut", "list", "bytes", "state", "field", "number", "line", "long", "other"],
)  # fmt: skip
def test_bad_input_is_refused_with_words_and_what_was_there_stays(collector, expected, body):
    collector.report(number=7)
    status, _, text = collector.ask("POST", "/v1/reports", "gpu01", body)
    error = json.loads(text)["error"]
    assert (status, bool(error["message"]), bool(error["hint"])) == (expected, True, True)
    assert [one.number for one in collector.store.reports("gpu01")] == [7]
    assert collector.report(number=8)[0] == 200


def test_who_asks_is_told_from_others(collector):
    body = json.dumps(report("gpu01"))
    assert collector.ask("POST", "/v1/reports", None, body)[0] == 401
    assert collector.ask("POST", "/v1/reports", "stolen-guess", body)[0] == 401
    assert collector.ask("POST", "/v1/reports", "eve", body)[0] == 403
    for place in ("/", "/metrics", "/v1/fleet", "/v1/hosts/gpu01"):
        assert (collector.ask("GET", place)[0], collector.ask("GET", place, "gpu01")[0]) == (401, 403), place
    assert collector.ask("GET", "/nothing", "eve")[0] == 404
    assert collector.ask("PUT", "/v1/reports", "gpu01", "x")[0] == 405
    path = collector.folder / FILE
    remove_token(path, "gpu01", "host")
    assert collector.report()[0] == 401
    collector.tokens["gpu01"] = make_token(path, "gpu01", "host")
    assert collector.report()[0] == 200
    assert collector.store.reports("gpu02") == []


def test_a_token_is_in_no_file_of_the_collector(collector):
    collector.report()
    kept = b"".join(path.read_bytes() for path in collector.folder.glob("*"))
    assert b"gpu01" in kept
    assert not [name for name, token in collector.tokens.items() if token.encode() in kept]
    assert (collector.folder / FILE).stat().st_mode & 0o077 == 0


def test_a_replay_is_told_also_when_the_report_is_long_gone(collector):
    for number in range(1, 40):
        assert collector.report(number=number)[0] == 200
    kept = [one.number for one in collector.store.reports("gpu01")]
    assert (kept[:5], len(kept) < 30) == ([39, 38, 37, 36, 35], True)
    for number in (39, 2):
        status, text = collector.report(number=number, state="failed")
        assert (status, "is here already" in text) == (409, True)
    assert collector.store.state().hosts["gpu01"].report.state == "done"


def test_a_report_that_was_late_does_not_hide_a_newer_one(collector):
    collector.report(number=5)
    assert collector.report(number=4, state="failed")[0] == 200
    assert collector.store.state().hosts["gpu01"].report.state == "done"
    assert [one.number for one in collector.store.reports("gpu01")] == [5, 4]


def test_a_folder_in_an_offer_s_place_costs_no_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    assert web._own_file(tmp_path) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_on_a_full_disk_keeps_no_answer_back(collector, monkeypatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(collector.server.refusals, "_say", full)
    assert collector.ask("GET", "/")[0] == 401


def test_an_offer_that_did_not_change_is_not_sent_again(collector, locks, keys):
    assert collector.ask("GET", "/v1/offers/h100", "gpu01")[0] == 404
    publish(collector.folder, "h100", locks[0], keys / "ours", wave=0, budget=None, days=0)
    status, headers, text = collector.ask("GET", "/v1/offers/h100", "gpu01")
    assert (status, json.loads(text)["schema"]) == (200, "gpusetup/signed-offer/1")
    assert collector.ask("GET", "/v1/offers/h100", "gpu01", If_None_Match=headers["ETag"])[::2] == (304, "")
    publish(collector.folder, "h100", None, keys / "ours", wave=0, budget=None, days=0)
    assert collector.ask("GET", "/v1/offers/h100", "gpu01", If_None_Match=headers["ETag"])[0] == 200


def test_the_page_groups_hosts_by_lock_wave_and_cause(collector, locks, keys):
    budget = Budget(leases="https://etcd.example:2379", at_a_time=50, of_a_domain=2, failures=5, reboot_hours=24)
    publish(collector.folder, "h100", locks[0], keys / "ours", wave=1, budget=budget, days=1)
    for name in ("gpu03", "gpu04", "<b>gpu05"):
        collector.tokens[name] = make_token(collector.folder / FILE, name, "host")
    collector.report(lock=locks[0].digest, stack="driver 580")
    for host in ("gpu03", "gpu04"):
        told = f"the module of {host} does not load"
        collector.report(
            host,
            state="failed",
            lock=locks[0].digest[:12] + host,
            reference="GS-448",
            message=told,
            hint="<i>look</i>",
            wave=2,
        )
    page = collector.ask("GET", "/", "eve")[2]
    for words in (
        "gpu03, gpu04", "the module of HOST does not load", "&lt;i&gt;look", "2, not yet released", "driver 580",
        "&lt;b&gt;gpu05",  # a host that never reported
        "50 at a time, 2 of a domain, no more after 5 failed, a reboot is waited for 24 h",
    ):  # fmt: skip
        assert words in page
    assert "<script" not in page
    metrics = collector.ask("GET", "/metrics", "eve")[2]
    names = [line.rpartition(" ")[0] for line in metrics.splitlines()]
    assert len(names) == len(set(names)), "Prometheus takes nothing of a page with a series twice"
    assert 'gpusetup_fleet_hosts{class="h100",state="failed"} 2' in metrics
    assert f'gpusetup_fleet_hosts_on_lock{{class="h100",lock="{locks[0].digest[:12]}",offered="true"}} 1' in metrics
    assert "gpusetup_fleet_silent_hosts{} 2" in metrics


def test_a_collector_without_tls_serves_this_machine_alone(tmp_path):
    store = Store(tmp_path / FILE)
    with pytest.raises(Exception, match="in the clear"):
        collector_of(tmp_path, store, ("0.0.0.0", 0), None, print)
    store.close()


def test_what_was_acknowledged_survives_being_killed_at_any_moment(tmp_path):
    names = [f"gpu{number}" for number in range(4)]
    tokens = {name: make_token(tmp_path / FILE, name, "host") for name in names}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("fleet", "collect", tmp_path, "--listen", f"127.0.0.1:{port}", "--keep", "100000")
    acknowledged = {name: set() for name in names}
    ended = threading.Event()

    def post(name):
        number = 0
        while not ended.is_set():
            number += 1
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                headers = {"Authorization": f"Bearer {tokens[name]}"}
                connection.request("POST", "/v1/reports", json.dumps(report(name, number)), headers)
                if connection.getresponse().status == 200:
                    acknowledged[name].add(number)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
            finally:
                connection.close()

    clients = [threading.Thread(target=post, args=(name,)) for name in names]
    for client in clients:
        client.start()
    chance, lives = random.Random(), []
    for _ in range(3):
        before = sum(map(len, acknowledged.values()))
        process = subprocess.Popen([sys.executable, "-m", "gpusetup", *words], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while sum(map(len, acknowledged.values())) < before + 20 and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        lives.append(sum(map(len, acknowledged.values())) - before)
    ended.set()
    for client in clients:
        client.join()
    assert min(lives) >= 20, lives
    store = Store(tmp_path / FILE)
    for name in names:
        kept = {one.number for one in store.reports(name)}
        assert acknowledged[name] <= kept, sorted(acknowledged[name] - kept)
    store.close()


def test_two_tokens_are_valid_while_one_takes_the_place_of_the_other(collector):
    path, before = collector.folder / FILE, collector.tokens["gpu01"]
    second = make_token(path, "gpu01", "host", overlap=1)
    third = make_token(path, "gpu01", "host", overlap=1)
    got = [collector.report(token=token, number=turn)[0] for turn, token in enumerate((before, second, third))]
    assert got == [401, 200, 200], "two at once, no more"
    last = make_token(path, "gpu01", "host")
    assert [collector.report(token=token, number=9)[0] for token in (second, third, last)] == [401, 401, 200]


def test_a_token_that_cannot_be_written_leaves_the_last_one_valid(collector, says):
    out = collector.folder / "none/gpu01.token"
    assert "cannot write" in says(3, "fleet", "token", collector.folder, "gpu01", "--out", out)
    assert "add --out gpu01.token: it" in says(3, "fleet", "token", collector.folder, "gpu01", "--format", "json")
    assert collector.report()[0] == 200


def test_a_token_ends(collector, monkeypatch):
    path = collector.folder / FILE
    token = make_token(path, "gpu01", "host", days=1)
    beside = make_token(path, "gpu01", "host", days=9, overlap=1)
    assert [collector.report(token=one, number=number)[0] for number, one in enumerate((token, beside))] == [200, 200]
    now = time.time()
    for hours, wanted in ((2, [401, 200]), (24 * 10, [401, 401])):
        monkeypatch.setattr("gpusetup_fleet.pull.store.time.time", lambda hours=hours: now + hours * 3600)
        got = [collector.report(token=one, number=hours * 10 + turn)[0] for turn, one in enumerate((token, beside))]
        assert got == wanted, hours


def test_a_host_that_is_gone_is_forgotten_and_alarms_nobody(collector):
    collector.report(number=5)
    path = collector.folder / FILE
    assert "gpusetup_fleet_silent_hosts{} 1" in collector.ask("GET", "/metrics", "eve")[2], "gpu02 never reported"
    assert (forget(path, "gpu02"), forget(path, "gpu02"), forget(path, "gpu01", keep_token=True)) == (True, False, True)
    assert "gpusetup_fleet_silent_hosts{} 1" in collector.ask("GET", "/metrics", "eve")[2], "gpu01's turn"
    assert collector.report("gpu02")[0] == 401
    assert collector.report(number=2)[0] == 200, "its numbers begin anew"
    assert forget(path, "gpu01")
    assert json.loads(collector.ask("GET", "/v1/fleet", "eve")[2])["hosts"] == {}


def test_a_number_of_a_clock_that_was_wrong_is_healed_by_the_next_report(collector):
    now = int(time.time() * 1000)
    for number in (now - 5, 2**53, 2**53 - 1):
        assert collector.report(number=number, state="failed")[0] == 200
    assert collector.report(number=now - 9, state="failed")[0] == 200, "one that was late"
    assert collector.store.state().hosts["gpu01"].report.number == now - 5
    assert collector.report(number=now)[0] == 200
    assert collector.store.state().hosts["gpu01"].report.state == "done"
    assert 2**53 not in [one.number for one in collector.store.reports("gpu01")]
    assert collector.report(number=now)[0] == 409


def test_a_host_whose_clock_was_wrong_counts_as_its_clock_does_again():
    now = datetime(2026, 11, 25, tzinfo=timezone.utc)
    clock = int(now.timestamp() * 1000)
    assert next_number(2**53, now) == clock
    assert next_number(clock + 1000, now) == clock + 1001, "a small step back keeps the order"


def test_what_turns_the_direction_of_writing_is_visible(collector):
    collector.report(state="failed", message="all\u202eis well\x1b[2J\x00", hint="\u2066so", notes=["x"])
    page = collector.ask("GET", "/", "eve")[2]
    assert "all\\u202eis well\\u001b[2J\\u0000" in page
    assert not set(page) & set("\u202e\u2066\x1b\0")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the unit back")
@pytest.mark.parametrize("listen", ["0.0.0.0:8443", "0.0.0.0:443"])
def test_systemd_takes_it_and_finds_little_exposed(listen, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "daemon")
    folder = tmp_path / "the 100% $folder"
    folder.mkdir()
    assert main(["fleet", "collect", str(folder), "--listen", listen, "--unit"]) == 0
    unit = tmp_path / "gpusetup-collector.service"
    unit.write_text(capsys.readouterr().out)
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "gpusetup-collector" not in verified.stderr, verified.stderr
    argv = ["systemd-analyze", "security", "--offline=true", unit]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", told)
    assert float(exposure[1]) <= 2.0, exposure[0]


def test_a_folder_of_root_makes_no_unit(tmp_path, says, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "root")
    told = says(3, "fleet", "collect", tmp_path, "--unit")
    assert "useradd --system gpusetup && install -d -o gpusetup -m 0700" in told


def test_a_reload_returns_when_the_certificate_is_read_and_fails_when_it_cannot_be(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "daemon")
    authority = Authority(tmp_path)
    pair, runtime = authority.pair("localhost"), tmp_path / "runtime"
    runtime.mkdir()
    words = ["fleet", "collect", str(tmp_path / "c"), "--listen", "127.0.0.1:0", "--certificate", str(pair)]
    words += ["--key", str(pair)]
    assert main([*words, "--unit"]) == 0
    unit = capsys.readouterr().out.replace("\\\n", " ")
    script = re.findall(r"^ExecReload=/bin/sh -c '(.*)'$", unit, re.MULTILINE)[0].replace("$$", "$")
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(runtime)}
    with subprocess.Popen(
        [sys.executable, "-m", "gpusetup", *words], env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        port = int(re.findall(r":(\d+);", server.stderr.readline())[0])

        def shown():
            return ssl.get_server_certificate(("127.0.0.1", port))

        def reload():
            told = {**environment, "MAINPID": str(server.pid)}
            return subprocess.run(["/bin/sh", "-c", script], env=told, check=False, timeout=30).returncode

        try:
            before = shown()
            for _ in range(3):
                authority.pair("localhost")
                server.send_signal(signal.SIGSTOP)  # a server that is busy when the signal comes
                subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -CONT {server.pid}"])
                assert reload() == 0
                assert shown() != before
                before = shown()
            pair.write_bytes(b"half a file")
            assert reload() != 0
            assert shown() == before
        finally:
            server.terminate()
    assert reload() != 0
