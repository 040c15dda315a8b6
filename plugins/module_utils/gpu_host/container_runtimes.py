"""Container runtimes: their containers and their restart; containerd's settings, and which an addition would hide.

containerd 1 replaces settings: a drop-in that names one runtime hides what the main file says about that plugin, and a
main file that names one runtime hides the built-in `runc`. Only containerd itself can tell, so it is asked.
"""

import re
from typing import Callable, Dict, List, Optional, Tuple

from . import process, systemd
from .failure import HostFailure

Settings = Dict[Tuple[str, str], str]

MARK = "# gpusetup"
"""Ends each of our lines in somebody else's file."""
CDI = "enable_cdi"
_OF_THE_FILES = (("", "imports"), ("", "version"))
_HEADER = re.compile(r"^\s*(\[.+\])\s*(#.*)?$")
_PAIR = re.compile(r"""^\s*([\w.-]+|"[^"]*"|'[^']*')\s*=\s*(.*)$""")


def read_by(program: str, path: str, env: Dict[str, str]) -> Settings:
    """Return containerd's settings from a file and everything that the file imports."""
    code, text, error = process.output([program, "--config", path, "config", "dump"], env, 60)
    if code:
        raise HostFailure(
            "GS-490", "containerd cannot read its settings", path, (error or text).strip()[-500:],
            "check it with: containerd config dump",
        )  # fmt: skip
    return parsed(text)


def parsed(text: str) -> Settings:
    """Return {(table, key): value} of TOML as programs print it: one pair per line, values may continue."""
    found: Settings = {}
    table, last = "", None
    for line in text.splitlines():
        header, pair = _HEADER.match(line), _PAIR.match(line)
        if pair:
            last = (table, pair.group(1).strip("\"'"))
            found[last] = pair.group(2).rstrip()
        elif header and not (last and found[last].endswith(("[", ","))):
            table, last = _plain(header.group(1)), None
        elif last and line.strip():
            found[last] += " " + line.strip()
    return found


def _plain(header: str) -> str:
    return re.sub(r"\s+", "", header).replace("'", '"')


def lost(before: Settings, after: Settings) -> List[Tuple[str, str]]:
    """Return the settings that another file has changed."""
    said = {pair: value for pair, value in before.items() if pair not in _OF_THE_FILES and pair[1] != CDI}
    return [pair for pair, value in said.items() if after.get(pair) != value]


def knows_nvidia(settings: Settings) -> bool:
    return any("nvidia-container-runtime" in value for value in settings.values())


def of_nvidia(settings: Settings) -> Settings:
    return {pair: value for pair, value in settings.items() if "nvidia" in pair[0] or pair[1] == CDI}


def without_ours(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.rstrip().endswith(MARK))


def with_ours(text: str, additions: Settings) -> str:
    """Return a file with added settings that it lacks; nothing else in it changes, not even comments."""
    lines = text.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    there, tables = parsed(text), {}
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        if header and not line.lstrip().startswith("[["):
            tables[_plain(header.group(1))] = number
    inserted: Dict[int, List[str]] = {}
    end: List[str] = []
    for table in dict.fromkeys(table for table, _key in additions):
        pairs = [f"{key} = {value}" for (where, key), value in additions.items() if where == table]
        missing = [pair for pair in pairs if (table, pair.partition(" = ")[0]) not in there]
        if missing and table in tables:
            inserted[tables[table]] = missing
        elif missing:
            end += [table, *missing]
    made = []
    for number, line in enumerate(lines):
        made += [line, *(f"{ours} {MARK}\n" for ours in inserted.get(number, ()))]
    return "".join(made) + "".join(f"{ours} {MARK}\n" for ours in end)


def stated(base: str, additions: Settings, read: Callable[[str], Settings]) -> str:
    """Return a main file with added settings that hides none; `read` returns what containerd reads from a file."""
    before = read(base)
    text = with_ours(base, additions)
    gone = lost(before, read(text))
    if gone:  # its defaults, all of which the first setting of their kind hides
        text = with_ours(base, {**{pair: before[pair] for pair in gone}, **additions})
        gone = lost(before, read(text))
    if gone or not knows_nvidia(read(text)):
        what = ", ".join(sorted({f"{table} {key}" for table, key in gone})[:4]) or "NVIDIA's runtime itself"
        raise HostFailure(
            "GS-490", "containerd would lose its own settings through NVIDIA's runtime", "it would not read " + what,
            "with containerd 1 a drop-in replaces all earlier settings",
            "move your drop-ins' settings to /etc/containerd/config.toml, then run the same command again",
        )  # fmt: skip
    return text


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


def restart(runtime: str, env: Dict[str, str], *, knows_nvidia: bool = True) -> None:
    """Restart a runtime; fail unless it starts and, if required, knows NVIDIA's runtime."""
    systemd.restart(runtime, env, "GS-490", " with its new configuration")
    if runtime != "docker" or not knows_nvidia:
        return
    code, names, _error = process.output(
        ["docker", "info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}"], env, 60
    )
    if code == 0 and "nvidia" not in names.split():
        raise HostFailure(
            "GS-490", "docker runs without NVIDIA's runtime: it does not read /etc/docker/daemon.json",
            "it knows " + (names.strip() or "none"),
            hint="see which file it reads: systemctl cat docker (look for --config-file)",
        )  # fmt: skip
