"""Running container runtimes: whether one has containers, and its restart."""

from typing import Dict, List, Optional

from . import process, systemd
from .failure import HostFailure


def running(runtime: str, env: Dict[str, str]) -> Optional[int]:
    """Return how many containers a runtime has; None if it does not answer, which does not mean none."""
    if runtime == "containerd":
        spaces = _lines(["ctr", "namespaces", "ls", "-q"], env)
        if spaces is None:
            return None
        tasks = [_lines(["ctr", "-n", space, "tasks", "ls", "-q"], env) for space in spaces]
        return None if None in tasks else sum(len(found) for found in tasks if found is not None)
    found = _lines(["docker", "ps", "-q"] if runtime == "docker" else ["crictl", "ps", "-q"], env)
    return None if found is None else len(found)


def _lines(argv: List[str], env: Dict[str, str]) -> Optional[List[str]]:
    code, text, _error = process.output(argv, env, 30)
    return None if code else text.split()


def may_restart(runtime: str, policy: str, env: Dict[str, str]) -> bool:
    """Return whether a runtime may be restarted now: always by policy, or because it runs nothing."""
    return policy == "always" or (policy == "idle" and running(runtime, env) == 0)


def restart(runtime: str, env: Dict[str, str], *, knows_nvidia: bool = True) -> None:
    """Restart a runtime; fail unless it starts and, if required, knows NVIDIA's runtime."""
    code, _out, error = process.output(["systemctl", "restart", runtime], env, 120)
    if code:
        said = systemd.last_words(runtime, env)
        raise HostFailure(
            "GS-490", f"{runtime} did not start with its new configuration", error.strip(), said,
            "journalctl -u " + runtime,
        )  # fmt: skip
    if runtime != "docker" or not knows_nvidia:
        return
    code, names, error = process.output(
        ["docker", "info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}"], env, 60
    )
    if code == 0 and "nvidia" not in names.split():
        raise HostFailure(
            "GS-490", "docker runs without NVIDIA's runtime: it does not read /etc/docker/daemon.json",
            "it knows " + (names.strip() or "none"),
            hint="see which file it reads: systemctl cat docker (look for --config-file)",
        )  # fmt: skip
