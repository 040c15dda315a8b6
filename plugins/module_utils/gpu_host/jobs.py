"""Long steps that survive a lost connection: start one detached, or join the running one, and read its progress.

A job is a folder in `<state>/jobs`: `status.json`, which is flushed to disk, `progress.json`, which is not, and `log`.
A package step reports progress a thousand times: flushing each time would slow dpkg down on the same disk.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, NoReturn, Optional, Tuple

from . import files, owner, process, systemd
from .failure import HostFailure, of_system

Status = Dict[str, Any]
_FRESH = 3600
_POLL, _POLL_LATER = 0.2, 0.5  # less often once it takes more than ten seconds
_BIRTH = 60.0  # a process that was just forked writes its status at once
_KEPT = 10  # jobs whose logs stay
_LEAST = 5.0  # minimum wait, so that hundreds of packages do not cause hundreds of round trips


class Job:
    """One named job with one exact request. The same request joins it; while it runs, the other requests of its apply
    wait for it, and all others are refused.
    """

    def __init__(self, state_folder: str, name: str, request: Dict[str, Any]) -> None:
        self.state_folder = state_folder
        self.name = name
        self.key = files.digest(json.dumps(request, sort_keys=True))[:16]
        self.folder = os.path.join(state_folder, "jobs", f"{name}-{self.key}")
        self.status_path, self.progress_path = _paths(self.folder)
        self.log_path = os.path.join(self.folder, "log")
        self.state: Status = {}

    # on the caller's side

    def start_or_join(self, work: "Work", wait: float) -> Status:
        """Return the status of the job that runs or has just ended; otherwise start one on `work(job)` and return its
        status. A resumed apply may have left another job running: then return that one's progress, and start nothing.
        """
        with files.locked(os.path.join(self.state_folder, "jobs.lock")):  # only one of two simultaneous calls starts
            followed = _running(self.state_folder)  # looked at first: what ends after this look has an answer below
            status = _read(self.folder)
            if status and _unfetched(status, _owned(self.state_folder, "since")):
                return self._collect(status)
            if not followed:
                _prune(os.path.dirname(self.folder))
                self._start(work)
                followed, status = self.folder, None
            elif followed != self.folder:
                status = _read(followed) or {}
                if not status.get("wish") or status["wish"] != _owned(self.state_folder, "digest"):
                    refuse_while_running(self.state_folder)
        return self._watch(followed, status, wait)

    def joinable(self) -> bool:
        """Return whether this very job runs, or ended with an answer that nobody has fetched."""
        return _counts(_read(self.folder), _owned(self.state_folder, "since"))

    def _watch(self, folder: str, known: Optional[Status], wait: float) -> Status:
        """Wait at most `wait` seconds for the end or another message; the end of another job is not this one's."""
        began = time.monotonic()
        while True:
            status = _read(folder)
            if status and folder != self.folder and not _runs(status):
                return dict(status, state="running", result=None)
            if status and status["state"] == "lost":
                raise self._ended_silently()
            if status and status["state"] != "running":
                return self._collect(status)
            news = status and known and status["message"] != known["message"]
            waited = time.monotonic() - began
            if waited > wait or (news and waited > _LEAST):
                return status or {"state": "running", "message": "starting", "percent": None, "step": "start"}
            known = known or status
            time.sleep(_POLL if waited < 10 else _POLL_LATER)

    def _ended_silently(self) -> HostFailure:
        what = "a long step ended without an answer: it was killed, or the machine ran out of memory"
        return HostFailure(
            "GS-451", what, self.log_path, hint="run the same command again; it repairs what the step left"
        )

    def _collect(self, status: Status) -> Status:
        status["collected"] = True
        try:
            files.write_json(self.status_path, status)
        except OSError:
            _write_in_place(self.status_path, status)
        return status

    def _start(self, work: "Work") -> None:
        os.makedirs(self.folder, 0o700, exist_ok=True)
        if files.read_bytes(self.log_path):
            os.rename(self.log_path, self.log_path + ".previous")
        files.write_atomically(self.log_path, "", 0o600)
        for path in (self.status_path, self.progress_path):
            if os.path.exists(path):
                os.unlink(path)
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os.close(writer)
            select.select([reader], [], [], _BIRTH)  # the job closes its end once its status is there, or it died
            os.close(reader)
            if not os.path.exists(self.status_path):
                files.write_json(self.status_path, {"state": "lost", "updated": 0})  # a full disk refuses that too
                raise self._ended_silently()
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        self._detached(work)

    # on the job's side

    def _detached(self, work: "Work") -> NoReturn:
        code = 1
        try:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir("/")
            self.state = {
                "state": "running", "pid": os.getpid(), "born": _born(os.getpid()), "boot": owner.boot(),
                "wish": _owned(self.state_folder, "digest"), "since": _owned(self.state_folder, "since"),
                "started": time.time(), "step": "start", "message": "starting", "percent": None,
            }  # fmt: skip
            self._write()
            _redirect(self.log_path)
            systemd.leave_login(process.environment())
            try:
                result = work(self)
                self.state.update({"state": "done", "result": result, "percent": 100, "message": "done"})
                code = 0
            except HostFailure as failure:
                self.state.update({"state": "failed", "failure": failure.fields, "result": failure.result})
            except OSError as error:
                self._fail(of_system(error))
            except Exception as error:  # noqa: BLE001 - nothing above a detached job could report it
                self._fail(HostFailure("GS-450", f"a bug in gpusetup: {error!r}", self.log_path))
            try:
                self._write()
            except OSError as error:
                if code == 0:
                    self._fail(of_system(error))
                _write_in_place(self.status_path, dict(self.state, result={}))
        finally:
            os._exit(code)

    def _fail(self, failure: HostFailure) -> None:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        self.state.update({"state": "failed", "failure": failure.fields, "result": {}})

    def tell(self, step: str, message: str, percent: Optional[float] = None) -> None:
        progress = {"step": step, "message": message, "percent": percent}
        if not progress.items() <= self.state.items():
            progress["updated"] = time.time()
            self.state.update(progress)
            with contextlib.suppress(OSError):  # a full disk must not end the watch over a package manager at work
                files.write_json(self.progress_path, progress, lasting=False)

    def log(self, text: str) -> None:
        with contextlib.suppress(OSError), open(self.log_path, "ab") as stream:
            stream.write((text.rstrip("\n") + "\n").encode("utf-8", "replace"))

    def _write(self) -> None:
        self.state["updated"] = time.time()
        files.write_json(self.status_path, self.state)


Work = Callable[[Job], Dict[str, Any]]


def _write_in_place(path: str, status: Status) -> None:
    """Overwrite a status on a full disk, where the block of the old one is all there is."""
    with open(path, "r+", encoding="utf-8", errors="replace") as stream:
        stream.write(json.dumps(status))
        stream.truncate()


def _paths(folder: str) -> Tuple[str, str]:
    return os.path.join(folder, "status.json"), os.path.join(folder, "progress.json")


def _read(folder: str) -> Optional[Status]:
    """Return a job's status, with its latest progress if it runs; its state is "lost" if it ended without an answer."""
    status_path, progress_path = _paths(folder)
    status: Optional[Status] = files.read_json(status_path)
    lives = status and status.get("boot") == owner.boot() and _born(status.get("pid")) == status.get("born") is not None
    if status and _runs(status) and not lives:
        status = files.read_json(status_path)  # it may have ended between the two looks
        if status and _runs(status):
            status["state"] = "lost"
    if status and _runs(status):
        status.update(files.read_json(progress_path) or {})
    return status


def _prune(root: str) -> None:
    folders = [os.path.join(root, name) for name in os.listdir(root)] if os.path.isdir(root) else []
    over = [folder for folder in folders if not _counts(_read(folder))]
    for folder in sorted(over, key=os.path.getmtime)[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def running(state_folder: str) -> str:
    """Return which job is changing this host, since when and what it does; "" if none is."""
    folder = _running(state_folder)
    status = _read(folder) if folder else None
    if not status or not _runs(status):
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(status["started"]))
    return "job {}, process {}, since {}: {}".format(os.path.basename(folder), status["pid"], since, status["message"])


def _running(state_folder: str) -> str:
    root = os.path.join(state_folder, "jobs")
    folders = [os.path.join(root, name) for name in sorted(os.listdir(root))] if os.path.isdir(root) else []
    return next((folder for folder in folders if _runs(_read(folder))), "")


def _owned(state_folder: str, what: str) -> Any:
    """Return the `digest` of what the apply that owns this host wants, or `since` when it does."""
    return (owner.present(state_folder) or {}).get(what)


def refuse_while_running(state_folder: str) -> None:
    job = running(state_folder)
    if job:
        hint = "wait for it, or run the command that started it again to follow it"
        raise HostFailure("GS-452", "gpusetup is already changing this host", job, hint=hint)


def _runs(status: Optional[Status]) -> bool:
    return bool(status and status["state"] == "running")


def _counts(status: Optional[Status], taken: Optional[float] = None) -> bool:
    return _runs(status) or _unfetched(status, taken)


def _unfetched(status: Optional[Status], taken: Optional[float] = None) -> bool:
    """Return whether a job ended lately and nobody has fetched its answer: a new run tries again what had failed."""
    if not status or status["state"] not in ("done", "failed") or status.get("collected"):
        return False
    return bool(
        (status["state"] == "done" or status["updated"] >= (taken or 0) or status.get("since") == taken)
        and abs(time.time() - status["updated"]) < _FRESH  # the clock may have been set back
    )


def _born(pid: Optional[int]) -> Optional[str]:
    """Return a process's start time in ticks, which makes its PID unique; None if it is gone."""
    try:
        # Not /proc/PID/stat: under qemu, as in images for another architecture, its numbers of oneself are made up.
        fields = (files.read_text(f"/proc/{pid}/task/{pid}/stat") or "").rsplit(")", 1)[1].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def _redirect(log_path: str) -> None:
    source = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(source, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = (os.fdopen(handle, "w", 1, "utf-8", "backslashreplace") for handle in (1, 2))
    os.closerange(3, 4096)
