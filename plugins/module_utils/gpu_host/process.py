"""Run a package manager: no shell, every line to the job's log, lines read as they come."""

import os
import select
import subprocess

_NEUTRAL = {
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",
    "APT_LISTCHANGES_FRONTEND": "none",
    "TERM": "dumb",
    "COLUMNS": "500",
}


def environment(network=None):
    """Return the environment for child processes: neutral language, the proxy and certificate authority asked for."""
    network = network or {}
    found = dict(os.environ, **_NEUTRAL)
    found.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    for folder in ("/usr/sbin", "/sbin"):
        if folder not in found["PATH"].split(":"):
            found["PATH"] += ":" + folder
    if network.get("proxy"):
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            found[name] = network["proxy"]
    if network.get("no_proxy"):
        found["no_proxy"] = found["NO_PROXY"] = ",".join(network["no_proxy"])
    if network.get("ca_file"):
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            found[name] = network["ca_file"]
    return found


def stream(argv, env, on_line, on_status=None, log=None, keep=400):
    """Run a command to its end and return (return code, last lines).

    `on_line` gets each line of output; `on_status`, when given, each line of an extra descriptor whose number replaces
    `{fd}` in the arguments (apt's status lines).
    """
    reader = writer = None
    if on_status:
        reader, writer = os.pipe()
        argv = [item.replace("{fd}", str(writer)) for item in argv]
    if log:
        log("$ " + " ".join(argv))
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        pass_fds=(writer,) if on_status else (),
    )
    if writer is not None:
        os.close(writer)
    tail = []

    def keep_line(line):
        tail.append(line)
        del tail[:-keep]
        if log:
            log(line)
        on_line(line)

    handlers = {process.stdout.fileno(): keep_line}
    if reader is not None:
        handlers[reader] = on_status
    _pump(handlers)
    process.stdout.close()
    if reader is not None:
        os.close(reader)
    return process.wait(), tail


def _pump(handlers):
    """Hand every line of some descriptors to their handlers until all are closed."""
    rest = dict.fromkeys(handlers, b"")
    while rest:
        for handle in select.select(list(rest), [], [])[0]:
            piece = os.read(handle, 65536)
            lines = (rest[handle] + piece).replace(b"\r", b"\n").split(b"\n")
            rest[handle] = lines.pop()
            if not piece:
                lines.append(rest.pop(handle))
            for line in lines:
                if line.strip():
                    handlers[handle](line.decode("utf-8", "replace").rstrip())


def output(argv, env, seconds=120, text=None):
    """Run a short command and return (return code, stdout, stderr); a deadline ends it with return code 124."""
    source = subprocess.DEVNULL if text is None else subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    except OSError as error:
        return 127, "", f"{argv[0]}: {error.strerror}"
    try:
        out, err = process.communicate(None if text is None else text.encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return 124, "", f"{argv[0]} gave no answer within {seconds} s"
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
