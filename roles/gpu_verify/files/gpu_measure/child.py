"""Child processes with deadlines: single commands, and workers that answer JSON lines.

Standard library only, Python 3.6 syntax: runs on the examined machine. A broken driver can hang any program that opens
the GPU, even beyond SIGKILL; nothing here waits for such a program longer than its deadline.
"""

import ctypes
import functools
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, cast

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import commands

if TYPE_CHECKING:
    from typing import TypedDict  # Python 3.6 has none

    class Answer(TypedDict):
        """The result of a command."""

        argv: List[str]
        rc: Optional[int]
        stdout: str
        stderr: str
        error: Optional[str]
        deadline: float
        seconds: float


OUTPUT_LIMIT = 4 * 1024 * 1024
STDERR_TAIL = 4000
# Removed from children's environment: they select devices by PCI bus id, build for them, and measure the defaults.
DROPPED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "TORCH_CUDA_ARCH_LIST",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
)


def environment(**extra: str) -> Dict[str, str]:
    """Return a child's environment: ours without DROPPED, with untranslated messages; NCCL variables are kept."""
    env = {key: value for key, value in os.environ.items() if key not in DROPPED}
    env.update({"LC_ALL": "C", "LANG": "C", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"})
    path = env.get("PATH", "")
    for folder in ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"):
        if folder not in path.split(":"):
            path = path + ":" + folder if path else folder
    env["PATH"] = path
    env.update(extra)
    return env


try:
    _PRCTL: Optional[Callable[..., int]] = ctypes.CDLL(None).prctl
except (OSError, AttributeError):  # not Linux: only the parent's clean-up is left
    _PRCTL = None


def die_with_parent(parent: int) -> None:
    """In a child: be killed when the thread that started it ends. Start lasting children from the main thread."""
    if _PRCTL is not None:
        _PRCTL(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def tied() -> Callable[[], None]:
    """Return the `preexec_fn` that makes a child die with this process."""
    return functools.partial(die_with_parent, os.getpid())


def ending(returncode: Optional[int]) -> str:
    """Return how a child ended, in words."""
    if returncode is None:
        return "still running"
    if returncode >= 0:
        return f"exit {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return f"killed by {name}"


def run(
    argv: Sequence[str], deadline: float, cwd: Optional[str] = None, extra: Optional[Dict[str, str]] = None
) -> "Answer":
    """Run one command; return rc, stdout, stderr, seconds and error, and never raise.

    With `cwd`, temporary files go there too: a killed compiler leaves a dozen of them.
    """
    started = time.monotonic()
    own = dict(extra or {}, **({"TMPDIR": cwd} if cwd else {}))
    found = commands.ended(argv, environment(**own), deadline, cwd=cwd, before=tied(), alone=True)
    stdout, stderr = (text.decode("utf-8", "replace") for text in (found.out[-OUTPUT_LIMIT:], found.err))
    return {
        "argv": list(argv),
        "rc": found.code,
        "stdout": stdout,
        "stderr": stderr[-STDERR_TAIL:],
        "error": {"": None, "stuck": "timeout-unkillable"}.get(found.error, found.error),
        "deadline": deadline,
        "seconds": round(time.monotonic() - started, 3),
    }


class Worker:
    """A child that reads JSON requests and answers each with a JSON line, within a deadline."""

    def __init__(self, argv: Sequence[str], env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None) -> None:
        self.failure: Optional[Dict[str, Any]] = None
        self._answers: "queue.Queue[Optional[Dict[str, Any]]]" = queue.Queue()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - needed as long as the worker
        self._process: Optional[subprocess.Popen[bytes]] = None
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=env if env is not None else environment(),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=tied(),  # noqa: PLW1509 - a single system call that takes no lock
            )
        except OSError as failure:
            self.failure = {"error": "cannot-start", "message": str(failure)}
            return
        reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        reader.daemon = True
        reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            try:
                self._answers.put(json.loads(line.decode("utf-8", "replace")))
            except ValueError:
                continue  # printed by a library
        self._answers.put(None)

    def send(self, request: Dict[str, Any]) -> None:
        """Send a request; `receive` returns its answer."""
        if self.failure is not None or self._process is None:
            return
        stdin = cast("IO[bytes]", self._process.stdin)
        try:
            stdin.write((json.dumps(request) + "\n").encode("utf-8"))
            stdin.flush()
        except OSError:
            pass  # the worker is gone: receive says how it ended

    def receive(self, deadline: float, what: str = "the request") -> Dict[str, Any]:
        """Return the next answer, or an error document; a worker that misses its deadline is killed for good."""
        if self.failure is not None or self._process is None:
            return dict(self.failure or {}, note="not run: the worker had already ended")
        try:
            answer = self._answers.get(timeout=deadline)
        except queue.Empty:
            gone = commands.kill(self._process)
            self.failure = {
                "error": "timeout" if gone else "timeout-unkillable",
                "deadline": deadline,
                "stderr": self._tail(),
                "message": "no answer to {} within {:g} s; killed{}".format(
                    what, deadline, "" if gone else ", but it stays in the driver"
                ),
            }
            return dict(self.failure)
        if answer is None:
            try:
                returncode = self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                commands.kill(self._process)
                returncode = self._process.returncode
            self.failure = {
                "error": "crashed",
                "rc": returncode,
                "stderr": self._tail(),
                "message": f"the worker ended during {what} ({ending(returncode)})",
            }
            return dict(self.failure)
        return answer

    def ask(self, request: Dict[str, Any], deadline: float) -> Dict[str, Any]:
        """Send a request and return its answer."""
        self.send(request)
        return self.receive(deadline, str(request.get("do", "the request")))

    def close(self) -> None:
        """End the worker, by force if needed: nothing holds a GPU afterwards."""
        if self._process is None:
            return
        try:
            cast("IO[bytes]", self._process.stdin).close()
            self._process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            pass
        commands.kill(self._process)

    def _tail(self) -> str:
        try:
            self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, self._stderr.tell() - STDERR_TAIL))
            return self._stderr.read().decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
