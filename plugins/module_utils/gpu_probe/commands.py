"""External commands with a deadline: a broken driver may hang a command, never the probe."""

import os
import shutil
import signal
import subprocess


def run(argv, seconds, environment=None):
    """Run a command without a shell and return {"rc", "out", "err"}; "rc" is None and "why" says so when it gave no answer."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
    variables = dict(os.environ, LC_ALL="C", LANGUAGE="C", PATH=path.lstrip(":"))
    variables.update(environment or {})
    try:
        process = subprocess.Popen(
            [_located(argv[0], variables["PATH"]), *list(argv[1:])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
    except FileNotFoundError:
        return {"rc": None, "out": "", "err": "", "why": "missing"}
    except OSError as error:
        return {"rc": None, "out": "", "err": "", "why": error.strerror or str(error)}
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        return {"rc": None, "out": "", "err": "", "why": f"gave no answer within {seconds} s"}
    return {"rc": process.returncode, "out": _text(out), "err": _text(err)}


def _located(program, path):
    """Find a program on our own path: a plain user's often lacks the sbin folders."""
    return program if "/" in program else shutil.which(program, path=path) or program


def _text(raw):
    return raw.decode("utf-8", "replace")


def _kill_group(process):
    """End the command and its children; a process stuck in the kernel is left behind rather than waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    try:
        process.communicate(timeout=1)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
