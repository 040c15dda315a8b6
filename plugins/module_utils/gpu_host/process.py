"""Run programs on the host: no shell, a neutral language, a deadline; a grandchild with an open pipe delays nothing."""

import os
import re
import shutil
import subprocess
from typing import IO, Any, Callable, Dict, List, Optional, Sequence, Tuple, cast

from ..gpu_probe import commands
from .failure import HostFailure

_NEUTRAL = {
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",
    "APT_LISTCHANGES_FRONTEND": "none",
    "TERM": "dumb",
    "COLUMNS": "500",
}
MISSING, TIMED_OUT = 127, 124  # return codes of a shell and of timeout(1)


def environment(network: Optional[Dict[str, Any]] = None) -> Dict[str, str]:
    """Return the environment for child processes: neutral language, the configured proxy and certificate authority."""
    network = network or {}
    found = dict(os.environ, **_NEUTRAL)
    there = found.get("PATH", "").split(":")
    found["PATH"] = ":".join(dict.fromkeys([*filter(None, there), "/usr/sbin", "/usr/bin", "/sbin", "/bin"]))
    if network.get("proxy"):
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            found[name] = network["proxy"]
    if network.get("no_proxy"):
        found["no_proxy"] = found["NO_PROXY"] = ",".join(network["no_proxy"])
    if network.get("ca_file"):
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            found[name] = network["ca_file"]
    return found


def which(name: str, env: Dict[str, str]) -> Optional[str]:
    return shutil.which(name, path=env.get("PATH"))


def stream(
    argv: Sequence[str],
    env: Dict[str, str],
    on_line: Optional[Callable[[str], None]] = None,
    on_status: Optional[Callable[[str], None]] = None,
    log: Optional[Callable[[str], None]] = None,
    *,
    keep: int = 400,
) -> Tuple[int, List[str]]:
    """Run a command to its end; return (return code, last lines), with 127 and the reason if it cannot be started.

    `on_line` gets each line of output; `on_status` each line of an extra descriptor whose number replaces `{fd}` in the
    arguments (apt's status lines).
    """
    tail: List[str] = []

    def keep_line(line: str) -> None:
        tail.append(line)
        del tail[:-keep]
        if log:
            log(line)
        if on_line:
            on_line(line)

    reader, writer = os.pipe() if on_status else (-1, -1)
    argv = [item.replace("{fd}", str(writer)) for item in argv]
    if log:
        log("$ " + " ".join(argv))
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=(writer,) if on_status else (),
        )
    except OSError as error:
        keep_line(_why_not(argv, isinstance(error, FileNotFoundError), error.strerror))
        if on_status:
            os.close(reader)
        return MISSING, tail
    finally:
        if on_status:
            os.close(writer)
    pipe = cast("IO[bytes]", process.stdout)
    lines = {pipe.fileno(): _Lines(keep_line)}
    if on_status:
        lines[reader] = _Lines(on_status)
    commands.listen(process, {handle: found.take for handle, found in lines.items()})
    for found in lines.values():
        found.end()
    pipe.close()
    if on_status:
        os.close(reader)
    return process.wait(), tail


def output(
    argv: Sequence[str], env: Dict[str, str], seconds: float = 120, text: Optional[str] = None
) -> Tuple[int, str, str]:
    """Run a short command and return (return code, stdout, stderr); at the deadline it and its children are killed."""
    code, out, error = raw(argv, env, seconds, None if text is None else text.encode("utf-8", "surrogateescape"))
    return code, out.decode("utf-8", "replace"), error.decode("utf-8", "replace")


def raw(
    argv: Sequence[str], env: Dict[str, str], seconds: float = 120, data: Optional[bytes] = None
) -> Tuple[int, bytes, bytes]:
    """Do what `output` does, with bytes."""
    found = commands.ended(argv, env, seconds, data)
    if found.code is not None:
        return found.code, found.out, found.err
    if found.error in ("timeout", "stuck"):
        return TIMED_OUT, b"", f"{argv[0]} gave no answer within {seconds:g} s".encode()
    return MISSING, b"", _why_not(argv, found.error == "missing", found.err.decode()).encode()


def looked(reference: str, argv: Sequence[str], env: Dict[str, str], none: str = "(?!)") -> Tuple[int, str]:
    """Return (return code, stdout) of a command that only looks; fail if it gave no answer, which is not "nothing".

    `none` is a pattern of what a command that fails prints if there is nothing.
    """
    code, out, error = output(argv, env)
    if code == TIMED_OUT or (code and not re.search(none, error.strip())):
        why = error.strip() or f"it ended with code {code}"
        raise HostFailure(reference, argv[0] + " gave no answer", " ".join(argv), why,
                          "run that command to see why, then the same command of gpusetup again")  # fmt: skip
    return code, out


def smi(env: Dict[str, str]) -> Callable[[List[str]], Dict[str, Any]]:
    """Return a function that runs nvidia-smi and answers in the probe's format."""

    def run(arguments: List[str]) -> Dict[str, Any]:
        code, out, error = output(["nvidia-smi", *arguments], env)
        return {"rc": code, "out": out, "err": error}

    return run


def _why_not(argv: Sequence[str], missing: bool, why: Optional[str]) -> str:
    return f"{argv[0]}: " + ("this program is not installed" if missing else why or "")


class _Lines:
    """Splits the bytes from a pipe into lines; a carriage return also ends a line."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.on_line = on_line
        self.rest = b""

    def take(self, piece: bytes) -> None:
        *whole, self.rest = (self.rest + piece).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            if line.strip():
                self.on_line(line.decode("utf-8", "replace").rstrip())

    def end(self) -> None:
        self.take(b"\n")
