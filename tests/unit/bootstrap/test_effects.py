"""What is read from apply's answer; files on record; locks; callbacks; waiting with a deadline."""

import errno
import fcntl
import json
import multiprocessing
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from gpusetup.bootstrap import effects, run
from gpusetup.bootstrap.effects import outcome_of_apply
from gpusetup.bootstrap.machine import Moment, begin
from gpusetup.bootstrap.run import Callback
from gpusetup.bootstrap.userdata import Config
from gpusetup.bootstrap.web import Unfetched, session
from gpusetup.errors import PreflightError
from gpusetup.model.status import Problem, Status
from tests.flaky import listening

STATUS = begin(None, Moment("2026-01-01T00:00:00Z", "b"))


def answer(**host: object) -> str:
    return json.dumps({"schema": "gpusetup/apply/1", "hosts": {"localhost": host}})


@pytest.mark.parametrize(
    ("code", "text", "kind", "said"),
    [
        (0, answer(state="done", verified="pass"), "ok", ""),
        (0, answer(state="unchanged", verified="pass on x"), "ok", ""),
        (0, answer(state="nothing-to-do"), "nothing-to-do", ""),
        (9, answer(state="pending-reboot", pending=["nouveau is loaded"]), "reboot", ""),
        (7, answer(state="failed", failed_at="Packages", failure={"message": "disk\nfull"}), "problem", "disk full (at: Packages)"),
        (5, answer(state="refused", refusals=[{"reference": "GS-305", "message": "a vGPU guest"}]), "problem", "a vGPU guest"),
        (8, answer(state="verify-failed", checks=[{"id": "x", "verdict": "fail", "text": "no GPU answers"}]), "problem", "verification failed: no GPU answers"),
        (4, json.dumps({"ok": False, "conflict": [{"text": "too old"}]}), "problem", "too old"),
        (3, json.dumps({"error": {"reference": "GS-340", "message": "no lock"}}), "problem", "no lock"),
        (1, "Traceback", "problem", "apply ended with exit code 1"),
        *((0, text, "problem", "apply ended with exit code 0") for text in ("", "[]", '{"hosts": 7}', answer(pending=7), "[" * 99_999)),
        (-9, "", "problem", "apply ended with exit code -9"),
    ],
)  # fmt: skip
def test_apply_is_understood(code, text, kind, said):
    outcome = outcome_of_apply(code, text)
    assert outcome.kind == kind
    if said:
        assert outcome.problem.message == said
        assert outcome.problem.exit > 0


def test_a_status_survives_whatever_is_on_disk(tmp_path):
    path, login = tmp_path / "status.json", tmp_path / "motd.d/gpusetup"
    assert run.load(path) is None
    run.save(STATUS, path, login)
    assert run.load(path) == STATUS
    assert path.stat().st_mode & 0o777 == 0o644
    assert login.read_text().startswith("gpusetup: step 2 of 4")
    for broken in (b"", b"{", b'{"schema": "gpusetup/status/1"}', b"\xff", b"[" * 99_999):
        path.write_bytes(broken)
        assert run.load(path) is None


def test_two_runs_never_meet(tmp_path):
    with run.alone_on_machine(tmp_path):
        with pytest.raises(PreflightError, match="another pull is") as caught, run.alone_on_machine(tmp_path, "pull"):
            pass
        assert caught.value.reference == "GS-744"
    with run.alone_on_machine(tmp_path):
        pass


def test_a_full_disk_does_not_hide_the_reason(tmp_path, monkeypatch):
    reserve = tmp_path / "reserve"
    reserve.write_bytes(b"0")
    saved: list[Status] = []

    def save(status: Status) -> None:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        saved.append(status)

    monkeypatch.setattr(run, "RESERVE", reserve)
    monkeypatch.setattr(run, "save", save)
    run._keep(STATUS)
    assert saved == [STATUS]


def test_an_error_of_the_machine_is_an_outcome(monkeypatch):
    acting = effects.Effects(Config(source="http://x", manifest_sha256=""), print)
    full = OSError(errno.ENOSPC, "No space left on device", "/var/x")
    monkeypatch.setattr(acting, "_apply", Mock(side_effect=full))
    outcome = acting.perform(msgspec.structs.replace(STATUS, state="applying"))
    assert outcome.problem.message == "/var/x: No space left on device"
    assert outcome.problem.hint


def _hold(path, ready, seconds):
    with Path(path).open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        ready.set()
        time.sleep(seconds)


@pytest.mark.parametrize(("held_for", "deadline", "ends"), [(0.4, 20.0, True), (20.0, 0.3, False)])
def test_dpkgs_lock_is_waited_for(tmp_path, held_for, deadline, ends):
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    lock.parent.mkdir(parents=True)
    lock.touch()
    ready = multiprocessing.Event()
    holder = multiprocessing.Process(target=_hold, args=(str(lock), ready, held_for), daemon=True)
    holder.start()
    assert ready.wait(60)
    problem = effects.wait_for_packages(deadline, tmp_path, tick=0.05)
    assert (problem is None) is ends
    if problem is not None:
        assert f"process {holder.pid}" in problem.message
    holder.terminate()


def test_cloud_init_is_waited_for(tmp_path):
    run_dir = tmp_path / "cloud-init"
    assert effects.wait_for_cloud_init(0.0, run_dir, tick=0.01) is None, "no cloud-init here"
    run_dir.mkdir()
    problem = effects.wait_for_cloud_init(0.05, run_dir, tick=0.01)
    assert isinstance(problem, Problem)
    threading.Timer(0.1, (run_dir / "result.json").touch).start()
    assert effects.wait_for_cloud_init(10, run_dir, tick=0.01) is None


class Server(BaseHTTPRequestHandler):
    seen: list[tuple[str | None, bytes]]
    answers: threading.Event

    def do_POST(self) -> None:
        type(self).answers.wait(60)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen.append((self.headers["Authorization"], body))
        self.send_response(503 if len(type(self).seen) <= 2 else 200)
        self.end_headers()
        with suppress(OSError):
            while len(type(self).seen) > 2:  # a body without an end
                self.wfile.write(bytes(1 << 16))


def test_the_callback_retries_and_carries_the_token(tmp_path):
    handler = type("Handler", (Server,), {"seen": [], "answers": threading.Event()})
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with listening(handler) as web:
        callback = Callback(f"{web.url}/x", print, token, pause=0.01)
        callback.tell(STATUS)  # comes back although nobody answers yet
        assert handler.seen == []
        handler.answers.set()
        assert callback.settle(60)
        with session() as opened, pytest.raises(Unfetched, match="more than"):
            opened.post(web.url, data=b"")
    assert [who for who, _ in handler.seen] == ["Bearer s3cret"] * 3 + [None]
    assert msgspec.json.decode(handler.seen[-2][1], type=Status) == STATUS
