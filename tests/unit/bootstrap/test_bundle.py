"""Bundles, checked before use, and images, sealed; servers that break off, are slow or say no to what fetches them."""

import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpusetup.bootstrap import bundle, effects
from gpusetup.bootstrap.effects import fetch_lock
from gpusetup.bootstrap.userdata import Config, read_config
from gpusetup.bootstrap.web import Unfetched, authorities, cause, fetch
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError
from tests.flaky import CONTENT, serving
from tests.refusals import refused


@pytest.mark.parametrize(
    ("name", "content", "reference"),
    [
        ("wheels/a.whl", "other", "GS-718"), ("wheels/a.whl", None, "GS-717"), ("manifest.json", None, "GS-715"),
        ("manifest.json", "{", "GS-716"), ("manifest.json", '{"schema": "other/1"}', "GS-714"),
    ],
)  # fmt: skip
def test_what_differs_is_named(small_bundle, name, content, reference):
    assert bundle.check_bundle(small_bundle).gpusetup == "1"
    (small_bundle / name).unlink() if content is None else (small_bundle / name).write_text(content)
    with refused(BadInputError, reference):
        bundle.check_bundle(small_bundle)


def test_what_fails_leaves_nothing_beside(tmp_path):
    with pytest.raises(ZeroDivisionError), bundle.replaced(tmp_path / "place"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


FIRST_STAGE = Path(__file__).parents[3] / "gpusetup/bootstrap/instance/first-stage"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def site():
    with serving() as one:
        yield one


PASSING = ("broken", "chunked, broken", "hangs up", "503", "500", "429", "408")


def first_stage(url: str, target: Path, patience: float) -> str:
    """The real script's own fetch, with pauses as short as here."""
    text = FIRST_STAGE.read_text()
    assert "pause = 2\n" in text
    script = target.with_name("first_stage.py")
    script.write_text(text.replace("pause = 2\n", "pause = 0.01\n"))
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import first_stage as f\n"
        "try: f.fetch(sys.argv[2], sys.argv[3], sys.argv[4], time.monotonic() + float(sys.argv[5]))\n"
        "except f.Failed as e: print(e.problem['reference'], e.problem['exit'], e.problem['message'])\n"
        "else: print('fetched')"
    )
    argv = [sys.executable, "-c", code, target.parent, url, DIGEST, target, str(patience)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env, timeout=60).stdout.strip()


@pytest.mark.parametrize("trouble", PASSING)
def test_what_passes_is_tried_again(site, tmp_path, trouble):
    assert fetch(site.says(trouble, trouble, "whole"), limit=1 << 20, patience=30, pause=0.01) == CONTENT
    assert site.asked == 3
    assert first_stage(site.says(trouble, trouble, "whole"), tmp_path / "got", 30) == "fetched"
    assert site.asked == 3
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_a_url_that_is_none_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("tried again"))
    for url in ("ftp://x", "http://[::1", "https:///x"):
        with pytest.raises(Unfetched, match="not the address of a server"):
            fetch(url, limit=1, patience=30)


@pytest.mark.parametrize(
    ("answer", "said"),
    [("hangs up", "the connection broke off"), ("broken", "the connection broke off"), ("stalls", "not answer in time"),
     ("503", "503 "), ("", "it cannot be reached: Connection refused"), ("TLS", "no secure connection: wrong version"),
     ("proxy", "the proxy does not let the request through: Connection refused")],
)  # fmt: skip
def test_why_a_request_failed_is_told_in_words_and_without_its_secrets(site, monkeypatch, answer, said):
    url = site.says(answer).replace("//", "//me:hidden@") + "?b=1&token=hidden"
    if answer in ("", "proxy"):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1") if answer else None
        url = "http://me:hidden@127.0.0.1:1/a?sig=hidden"
    with pytest.raises(Unfetched) as caught:
        fetch(url.replace("http:", "https:") if answer == "TLS" else url, limit=1 << 20, patience=0, timeout=0.3)
    assert said in str(caught.value)
    assert "***@127.0.0.1:" in str(caught.value)
    assert not re.search(r"hidden|Pool|Errno|\(", str(caught.value))
    assert cause(OSError("no {such} file")) == "no {such} file"


def test_a_server_that_stalls_drips_or_sends_more_than_anybody_expects_is_given_up(site):
    assert fetch(site.says("stalls", "whole"), limit=1 << 20, patience=30, pause=0.01, timeout=0.3) == CONTENT
    with pytest.raises(Unfetched, match="too slow"):
        fetch(site.says("drips"), limit=1 << 20, patience=0.1, pause=0.2, timeout=3)
    with pytest.raises(Unfetched, match="more than 100 bytes"):
        fetch(site.says("whole"), limit=100, patience=30, pause=0.01)
    assert site.asked == 1


def test_another_file_that_came_whole_is_final_and_patience_ends(site, tmp_path):
    assert first_stage(site.says("broken"), tmp_path / "got", 0.2).startswith("GS-731 6")
    assert first_stage(site.says("other"), tmp_path / "got", 30).startswith("GS-732 3")
    assert site.asked == 1
    assert not list(tmp_path.glob("got*"))
    assert first_stage(site.says("chunked, other", "whole"), tmp_path / "got", 30) == "fetched", "it stopped"
    assert first_stage(site.says("broken, no length", "whole"), tmp_path / "got", 30) == "fetched", "nor was it whole"
    assert first_stage(site.says("broken, no length"), tmp_path / "got", 0.2).startswith("GS-732 3")


def test_the_pulled_lock_survives_a_break(site, tmp_path, monkeypatch):
    monkeypatch.setattr("gpusetup.bootstrap.web.time.sleep", lambda _: None)
    target = tmp_path / "lock.json"
    config = Config(source="", manifest_sha256="", lock_url=site.says("broken", "whole"), lock_sha256=DIGEST)
    assert fetch_lock(config, target) is None
    assert target.read_bytes() == CONTENT
    site.says("404")
    assert (fetch_lock(config, target), site.asked) == (None, 0), "it is there already"
    target.unlink()
    problem = fetch_lock(config, target)
    assert (problem.reference, problem.exit, site.asked) == ("GS-750", 6, 1)
    site.says("503")
    assert fetch_lock(msgspec.structs.replace(config, fetch_deadline=0), target).exit == 6
    site.says("other")
    assert (fetch_lock(config, target).exit, target.exists()) == (3, False), "only the pinned lock is taken"


CONFIG = Config(source="https://x.example", manifest_sha256="0" * 64, stage="image", callback="https://cb.example")


@pytest.fixture
def commands(monkeypatch):
    ran: list[list[str]] = []

    def run(argv: list[str], **_: object) -> Finished:
        ran.append(argv)
        return Finished(argv=tuple(argv), code=0, out="", err="", seconds=0.0)

    monkeypatch.setattr(effects.shutil, "which", lambda name: f"/usr/bin/{name}" if name != "dnf" else None)
    monkeypatch.setattr(effects, "run", run)
    return ran


def make(root: Path, path: str, text: str = "x") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_sealed_machine_is_nobody_in_particular(tmp_path, commands):
    own_state, etc = "var/lib/gpusetup", "etc/gpusetup"
    names = f"{own_state}/first-boot", f"{own_state}/bootstrap/runs/1/log", f"{etc}/callback.token"
    gone = [make(tmp_path, name) for name in (*names, "var/lib/systemd/random-seed")]
    names = f"{etc}/lock.json", f"{etc}/environment", f"{own_state}/state.json"
    kept = [make(tmp_path, name) for name in (*names, "opt/gpusetup-controller/bin/gpusetup")]
    own, bus = make(tmp_path, "etc/machine-id", "a" * 32), make(tmp_path, "var/lib/dbus/machine-id", "a" * 32)
    for _ in range(2):
        effects.seal(CONFIG, print, tmp_path)
        assert not [path for path in gone if path.exists()]
        assert all(path.read_text() == "x" for path in kept)
        assert own.read_text() == ""
        assert bus.is_symlink()
    assert ["cloud-init", "clean", "--logs", "--seed"] in commands
    assert ["dnf", "clean", "packages"] not in commands
    start = tmp_path / "var/lib/cloud/scripts/per-boot/50-gpusetup"
    assert start.stat().st_mode & 0o777 == 0o755
    assert "launcher boot" in start.read_text()
    file = tmp_path / "etc/gpusetup/bootstrap.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_config(file) == msgspec.structs.replace(CONFIG, stage="", callback="")


def test_the_machines_list_or_that_of_requests(tmp_path):
    assert authorities(tmp_path) is True
    kept = tmp_path / "etc/pki/tls/certs/ca-bundle.crt"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert authorities(tmp_path) == str(kept)
