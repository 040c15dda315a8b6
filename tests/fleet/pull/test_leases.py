"""The lease store as sites run it, by Debian's real etcd: three members, TLS with client certificates, users, failures."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusetup.bootstrap.web import Unfetched
from gpusetup_fleet.model.pull import Budget
from gpusetup_fleet.pull import leases
from gpusetup_fleet.pull.leases import Access, Lease, Refused, take
from tests.certificates import Authority
from tests.flaky import listening
from tests.fleet.pull.test_pull import offer, went

pytestmark = pytest.mark.skipif(
    shutil.which("etcd") is None or shutil.which("etcdctl") is None,
    reason="etcd is not installed (Debian: apt-get install etcd-server etcd-client)",
)


def _free(number):
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [one.getsockname()[1] for one in taken]


@contextlib.contextmanager
def members(folder, number, tls=None):
    """Run a cluster until the end of the block: its addresses and processes."""
    scheme = "https" if tls else "http"
    clients = [f"{scheme}://127.0.0.1:{port}" for port in _free(number)]
    peers = [f"http://127.0.0.1:{port}" for port in _free(number)]
    cluster = ",".join(f"m{index}={peer}" for index, peer in enumerate(peers))
    processes = []
    for index, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        argv = ["etcd", "--name", f"m{index}", "--data-dir", folder / f"m{index}", "--initial-cluster", cluster]
        argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        if tls:
            argv += ["--cert-file", tls[0], "--key-file", tls[0], "--trusted-ca-file", tls[1], "--client-cert-auth"]
        processes.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield clients, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def etcdctl(address, words, *options):
    argv = ["etcdctl", "--endpoints", address, *options, *words.split()]
    environment = {"ETCDCTL_API": "3", "PATH": os.environ["PATH"]}
    subprocess.run(argv, check=True, capture_output=True, env=environment)


def patiently(budget, *words):
    """Take a place as soon as the cluster has a leader."""
    until = time.monotonic() + 60
    while isinstance(got := take(budget, *words), Refused) and got.away:
        assert time.monotonic() < until, got
        time.sleep(0.2)
    return got


def free(*asked):
    """Take a place, which is free, and give it back."""
    lease = take(*asked)
    assert isinstance(lease, Lease), lease
    lease.give_back()


def refused(*asked, away=False):
    """Ask for a place, which is refused, and return the words."""
    got = take(*asked)
    assert isinstance(got, Refused), got
    assert got.away is away
    return got.text


def test_a_member_that_dies_while_hosts_ask_is_passed_over_and_nothing_is_overdrawn(tmp_path, monkeypatch):
    with members(tmp_path, 3) as (clients, processes):
        budget = Budget(leases=",".join(clients), at_a_time=3)
        patiently(budget, "first", "").give_back()
        got, held, most = {}, set(), [0]
        counting = threading.Lock()

        def ask(name):
            lease = patiently(budget, name, "")
            if isinstance(lease, Lease):
                with counting:
                    held.add(name)
                    most[0] = max(most[0], len(held))
                time.sleep(0.3)
                with counting:
                    held.discard(name)
                lease.give_back()
            got[name] = lease

        asking = [threading.Thread(target=ask, args=(f"gpu{number}",)) for number in range(12)]
        for number, one in enumerate(asking):
            one.start()
            if number == 5:
                processes[0].kill()
        for one in asking:
            one.join()
        assert sum(isinstance(lease, Lease) for lease in got.values()) >= 1
        assert most[0] <= 3
        patiently(budget, "after", "").give_back()  # two of three go on
        processes[1].kill()
        monkeypatch.setattr(leases, "_TIMEOUT", 3.0)
        refused(budget, "last", "", away=True)  # one of three decides nothing


def test_client_certificates_and_users_open_it_and_their_lack_does_not(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    # An environment that trusts others does not take the place of what was named.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Authority(tmp_path / "other").certificate))
    pair, client = authority.pair("127.0.0.1", file="server.pem"), authority.pair("gpu07", file="client.pem")
    ca = str(authority.certificate)
    with members(tmp_path, 1, (pair, ca)) as ((address,), _):
        budget = Budget(leases=address, at_a_time=1)
        access = Access(ca, str(client))
        patiently(budget, "gpu07", "", access).give_back()
        for wrong in (Access(ca), Access(certificate=str(client))):
            refused(budget, "gpu07", "", wrong, away=True)
        for words in (
            "user add root:r00t", "user grant-role root root", "user add hosts:s3cret", "role add hosts",
            "role grant-permission --prefix=true hosts readwrite gpusetup/", "user grant-role hosts hosts", "auth enable",
        ):  # fmt: skip
            etcdctl(address, words, "--cacert", ca, "--cert", client, "--key", client)
        assert isinstance(take(budget, "gpu07", "", access), Refused), "nobody without a name any more"
        named = take(budget, "gpu07", "", access._replace(login=("hosts", "s3cret")))
        assert isinstance(named, Refused)
        assert "CommonName of client" in named.text, "etcd's own words, which the guide explains"
        nameless = Access(ca, str(authority.pair("gpu07", file="nameless.pem", common=False)))
        assert isinstance(take(budget, "gpu07", "", nameless._replace(login=("hosts", "guess"))), Refused)
        lease = take(budget, "gpu07", "", nameless._replace(login=("hosts", "s3cret")))
        assert isinstance(lease, Lease), lease
        assert lease.tell("lock", failed=True)
        lease.give_back()


def test_a_user_as_the_guide_makes_it_writes_the_keys_of_its_host_alone(tmp_path):
    with members(tmp_path, 1) as ((address,), _):
        patiently(Budget(leases=address, at_a_time=1), "first", "").give_back()
        for words in ("user add root:r00t", "user grant-role root root"):
            etcdctl(address, words)
        guide = (Path(__file__).parents[3] / "docs/guides/pull.md").read_text()
        for words in re.findall(r"^etcdctl (.*)$", guide, re.MULTILINE):
            etcdctl(address, words.replace("user add gpu07", "user add gpu07:s3cret"))
        etcdctl(address, "auth enable")
        access = Access(login=("gpu07", "s3cret"))
        own = take(Budget(leases=address, at_a_time=1, of_a_domain=1, failures=1), "gpu07", "rack1", access, "lock")
        assert isinstance(own, Lease), own
        mine = leases._Etcd(address, access)
        for key in ("gpusetup/changing/gpu08/rack1", "gpusetup/failed/gpu08/lock", "gpusetup/other", "else"):
            with pytest.raises(Unfetched, match="permission denied"):
                mine.ask("kv/put", key=leases._coded(key), value="")
        assert own.tell("lock", failed=True)
        own.give_back()


def test_a_lease_that_the_store_ended_is_known_at_the_next_renewal(store, monkeypatch):
    monkeypatch.setattr(leases, "_LIFE", 6)
    lease = take(Budget(leases=store, at_a_time=9), "gpu07", "")
    assert isinstance(lease, Lease)
    lease.store.ask("lease/revoke", ID=lease.number)
    lease.keeper.join(30)
    assert lease.lost == "the lease store ended it"
    lease.give_back()


@pytest.mark.parametrize(
    "answer", ["[]", "5", "not json", "{}", '{"result": 5}', '{"result": {"TTL": "x"}}', '{"result": null}']
)
def test_an_answer_that_is_none_is_an_error_with_a_reason_and_ends_no_thread(answer, monkeypatch):
    granting: list[bool] = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            grants = self.path.endswith("grant") and granting[-1]
            text = ('{"ID": "7"}' if grants else answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with listening(Server) as server:
        for grants in (False, True):
            granting.append(grants)
            assert refused(Budget(leases=server.url, at_a_time=1, failures=1), "gpu07", "", away=True)
        monkeypatch.setattr(leases, "_LIFE", 0.06)
        held = Lease(leases._Etcd(server.url, Access()), "7", "gpu07", "")
        while not held.lost:
            assert held.keeper.is_alive()
            time.sleep(0.01)
        assert held.lost.startswith("the lease store did not answer: ")
        held.give_back()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with members(tmp_path_factory.mktemp("etcd"), 1) as ((address,), _):
        patiently(Budget(leases=address, at_a_time=1), "first", "").give_back()
        yield address


def test_after_enough_failures_of_a_lock_no_other_host_begins_it(store):
    budget = Budget(leases=store, failures=2)
    for name in ("gpu1", "gpu2"):
        lease = take(budget, name, "", None, "lock-a")
        assert isinstance(lease, Lease)
        assert lease.tell("lock-a", failed=True)
        lease.give_back()
    assert "failed on 2 hosts" in refused(budget, "gpu3", "", None, "lock-a")
    free(budget, "gpu3", "", None, "lock-b")  # another lock begins anew
    mended = take(budget, "gpu1", "", None, "lock-a")
    assert isinstance(mended, Lease), "a host that failed may try again"
    assert mended.tell("lock-a", failed=False)
    mended.give_back()
    free(budget, "gpu3", "", None, "lock-a")


def test_a_failing_pull_counts_and_a_reboot_that_is_due_holds_the_place(host, collector, keys, locks, store):
    settings, told = host
    budget = Budget(leases=store, at_a_time=1, failures=1, reboot_hours=1)
    offer(collector, keys, locks[0], budget=budget)
    told["host"] = {"state": "pending-reboot", "changed": 3, "pending": ["a new driver"]}
    told["code"] = 9
    assert went(settings) == ("pending-reboot", True)
    near = take(budget, "gpu99", "", None, locks[0].digest)
    assert isinstance(near, Refused), "its place is held"
    assert went(settings) == ("pending-reboot", True)
    kept = settings.home / "kept.json"
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"boot": "the-boot-before"}))
    told["host"], told["code"] = {"state": "done", "changed": 0}, 0
    assert went(settings) == ("done", True), "after its reboot it has its own place"
    free(budget, "gpu99", "", None, locks[0].digest)  # seen good, it gave it back
    offer(collector, keys, locks[1], budget=budget)
    told["code"] = 7
    told["host"] = {"state": "failed", "failure": {"reference": "GS-448", "message": "no module", "hint": "look"}}
    assert went(settings) == ("failed", True)
    assert "the fleet stops" in refused(budget, "gpu99", "", None, locks[1].digest)
    free(replace(budget, failures=2), "gpu99", "", None, locks[1].digest)


def test_a_budget_is_never_overdrawn_by_hosts_that_ask_together(store):
    budget = Budget(leases=store, at_a_time=4, of_a_domain=2)
    hosts = [(f"gpu{number}", f"rack{number % 4}") for number in range(16)]
    with ThreadPoolExecutor(16) as asking:
        held = [got for got in asking.map(lambda host: take(budget, *host), hosts) if isinstance(got, Lease)]
    assert 1 <= len(held) <= 4
    for lease in held:
        lease.give_back()
    single = replace(budget, at_a_time=1)
    first, again = take(single, "gpu1", "r"), take(single, "gpu1", "r")
    assert isinstance(again, Lease), "a host that was cut off takes its own place again"
    assert "as many as the budget allows" in refused(single, "gpu2", "r")
    again.give_back()
    first.give_back()
    free(single, "gpu2", "r")
    one = take(replace(budget, of_a_domain=1), "gpu1", "r")
    assert "1 host of r, as many" in refused(replace(budget, of_a_domain=1), "gpu2", "r")
    one.give_back()


def test_a_host_changes_under_a_lease_and_gives_it_back(host, collector, keys, locks, store):
    settings, _ = host
    budget = Budget(leases=store, at_a_time=1)
    offer(collector, keys, locks[0], budget=budget)
    other = take(budget, "gpu99", "")
    assert went(settings) == ("waiting", True)
    other.give_back()
    assert went(settings) == ("done", True)
    free(budget, "gpu99", "")
    assert not any("no budget" in note for one in collector.store.reports("gpu01") for note in one.notes)


def test_a_login_that_others_may_read_or_that_is_none_changes_nothing(host, collector, keys, locks, store, tmp_path):
    settings, told = host
    offer(collector, keys, locks[0], budget=Budget(leases=store, at_a_time=1))
    login = tmp_path / "login"
    for mode, text, said in ((0o644, "hosts:s3cret", "others may read"), (0o600, "hosts", "NAME:PASSWORD")):
        login.write_text(text)
        login.chmod(mode)
        assert went(settings._replace(login=login)) == ("refused", True)
        told_of = collector.store.state().hosts["gpu01"].report.message
        assert (said in told_of, "s3cret" in told_of) == (True, False)
    assert told["applied"] == []
