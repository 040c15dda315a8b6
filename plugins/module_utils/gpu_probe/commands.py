"""Run external commands with a deadline: a broken driver may hang a command, but never the probe.

All code on hosts starts its commands here: the probe, the modules and the measurements. `mask` hides passwords, tokens
and keys in text before it leaves a machine.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from typing import IO, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, cast

_TICK = 0.1
_LAST_WORDS = 1.0
"""Seconds for draining the pipes after a program has ended: a daemon that it left may write forever."""
_NAMES = {"missing": "missing", "timeout": "gave no answer within {:g} s", "stuck": "gave no answer within {:g} s"}


class Ended(NamedTuple):
    """How a command ended: exit code and output; without a code `error` is missing, cannot-start, timeout or stuck."""

    code: Optional[int]
    out: bytes
    err: bytes
    error: str = ""


def run(argv: Sequence[str], seconds: float, environment: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
    """Run a command without a shell; return {"rc", "out", "err"}. Without an exit code "rc" is None, "why" says why."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
    variables = dict(os.environ, LC_ALL="C", LANGUAGE="C", PATH=path.lstrip(":"))
    variables.update(environment or {})
    program = shutil.which(argv[0], path=variables["PATH"]) or argv[0]  # a plain user's own path often lacks sbin
    found = ended([program, *list(argv[1:])], variables, seconds)
    if found.code is None:
        why = _NAMES.get(found.error, found.err.decode("utf-8", "replace")).format(seconds)
        return {"rc": None, "out": "", "err": "", "why": why}
    return {"rc": found.code, "out": _text(found.out), "err": _text(found.err)}


def ended(
    argv: Sequence[str],
    env: Dict[str, str],
    seconds: Optional[float],
    data: Optional[bytes] = None,
    cwd: Optional[str] = None,
    *,
    before: Optional[Callable[[], None]] = None,
    alone: bool = False,
) -> Ended:
    """Run a command until it ends; at the deadline kill it and its children.

    `before` runs in the child before the program starts; `alone` also kills the children of a command that ended.
    """
    with contextlib.ExitStack() as stack:
        source: Any = subprocess.DEVNULL
        if data is not None:
            source = stack.enter_context(tempfile.TemporaryFile())
            source.write(data)
            source.seek(0)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - the caller's must take no lock
            )
        except OSError as reason:
            missing = isinstance(reason, FileNotFoundError)
            return Ended(None, b"", (reason.strerror or str(reason)).encode(), "missing" if missing else "cannot-start")
    pipes = [cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stderr)]
    kept = [bytearray(), bytearray()]
    try:
        in_time = listen(process, {pipe.fileno(): piece.extend for pipe, piece in zip(pipes, kept)}, seconds)
    except BaseException:  # Ctrl-C does not reach the program, which has a session of its own
        kill(process)
        raise
    error, code = "", None
    if in_time:
        code = process.wait()
        if alone:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
    else:
        error = "timeout" if kill(process) else "stuck"
    for pipe in pipes:
        pipe.close()
    return Ended(code, bytes(kept[0]), bytes(kept[1]), error)


def listen(
    process: "subprocess.Popen[bytes]", takers: Dict[int, Callable[[bytes], None]], seconds: Optional[float] = None
) -> bool:
    """Pass on what arrives on the pipes until the program ends; return False when the deadline passed first.

    A daemon that the program left behind may keep the pipes open forever, so reading stops soon after the program ends.
    """
    began = time.monotonic()
    handles = set(takers)
    over: Optional[float] = None
    while True:
        if over is None and process.poll() is not None:
            over = time.monotonic()
        if over is None and seconds is not None and time.monotonic() - began > seconds:
            return False
        if over is None and not handles:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
            continue
        ready: List[int] = select.select(list(handles), [], [], _TICK if over is None else 0)[0]
        for handle in ready:
            piece = os.read(handle, 65536)
            if piece:
                takers[handle](piece)
            else:
                handles.discard(handle)
        if over is not None and (not ready or time.monotonic() - over > _LAST_WORDS):
            return True


def kill(process: "subprocess.Popen[bytes]") -> bool:
    """Kill a program and its children; return whether it ends: one that is stuck in the kernel stays."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:  # on a busy machine, one that is not in the kernel only takes longer
        tasks = f"/proc/{process.pid}/task"
        with contextlib.suppress(OSError):
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/stat", "rb") as stream:
                    if b") D " in stream.read():
                        return False
    return True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_VALUE = r"""("[^"\n]*"|'[^'\n]*'|[^\s"',;&}]+)"""
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"), "(private key)"),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key)"
            r"""[\w-]*["']?\s*[=:]\s*)""" + _VALUE
        ),
        r"\1(masked)",
    ),
    (re.compile(r"(?i)(authorization\s*[:=]\s*(?:bearer|basic|token)?\s*)\S+"), r"\1(masked)"),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{8,}=*"), r"\1(masked)"),
    (re.compile(r"(\w+://)[^/\s:@]*:[^/\s@]+@"), r"\1(masked)@"),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|github_pat|glpat|nvapi|sk|xox[abpr])[_-][A-Za-z0-9_-]{16,}"), "(masked)"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "(masked)"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"), "(masked)"),
)


def mask(text: str) -> str:
    """Return the text with secrets masked."""
    for expression, instead in _SECRETS:
        text = expression.sub(instead, text)
    return text
