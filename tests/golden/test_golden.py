"""Whole explanations as people read them at 80 columns, whole plans of captured machines with all that the roles get, and
traces: all that the commands run and write on a host in memory, in their order, and what they leave.
`python -m tests.golden.test_golden --update` writes them anew.

A change of the data or of a sentence changes these files: read the difference before keeping it.
"""

import difflib
import json
import os
import re
import shlex
import sys
import tempfile
from functools import partial
from itertools import groupby
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec import to_builtins

import tests.lab.faults  # noqa: F401 - finds what runs on hosts, also without pytest
from gpusetup.plan.settings import read_level, settings_for
from tests.hosts.machines import machine
from tests.hosts.test_sick import SICK, build
from tests.lab.repository import catalog_rpm
from tests.modules.cuts import COMMANDS as CHANGES
from tests.modules.cuts_beside import WORLDS
from tests.property.test_command_line import run
from tests.unit.plan.conftest import answer, applied, drafted, nvidia_debian, nvidia_ubuntu, planner

FOLDER = Path(__file__).resolve().parent
COMMANDS, PLANS = json.loads((FOLDER / "asked.json").read_text()).values()
"""Name → a command line; name → a machine, whether it has its driver, and the wishes of applies in a row."""
OFFERS = {
    "ubuntu": nvidia_ubuntu, "debian": nvidia_debian,
    "rocky": answer([*(item for some in catalog_rpm.drivers().values() for item in some), *catalog_rpm.libraries()]),
}  # fmt: skip


def planned(host, driver, wishes):
    """Return the last plan, without its lock, which has the digest of the whole matrix."""
    facts = machine(host) if driver else machine(host, driver=None)
    offers = next(OFFERS[name] for name in OFFERS if host.startswith(name))
    for values in wishes:
        plan = drafted(planner, facts, settings_for(read_level(values, "the wishes"), {}, {}, ()), offers).plan
        facts = applied(facts, plan)
    return json.dumps({key: part for key, part in to_builtins(plan).items() if key != "lock"}, indent=1) + "\n"


def diagnosed(folder):
    """Return what the doctor says of a sick machine."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / folder.name
        build(folder, root)
        return told(f"doctor --root {root}").replace(place, "tests/hosts/sick")


def told(command):
    """Return what a command says, answer and warnings, and its exit code."""
    environment = {name: text for name, text in os.environ.items() if name not in ("GPUSETUP_MATRIX", "COLUMNS")}
    with patch.dict(os.environ, environment, clear=True):
        code, out, err = run(shlex.split(command))
    aside = "".join(line + "\n" for line in err.splitlines() if "days old" not in line)
    return f"$ gpusetup {command}\n{out}{'--- standard error' + chr(10) if aside else ''}{aside}--- exit {code}\n"


CHANCE = {
    r"rename (\S*/)\.gpusetup-(\S+)-\w{8}\b": r"write \1\2", r"\b[0-9a-f]{64}\b": "DIGEST", r"\b\d{8}T\d{6}Z-\w{6}": "TIME",
    r"/tmp/gpusetup-\w{8}": "/tmp/gpusetup",
}  # fmt: skip
"""What differs each time, and how it is written instead."""
STATE = ("installed", "held", "enabled", "active", "arguments", "chosen", "gpu", "more")


def traced(world):
    """Return what an apply, an update, its rollback and a removal do on a host in memory, and leave."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        host, lines = world(Path(folder) / "host", patch), []
        for command in CHANGES:
            lines += [f"{command}: {host.run(command) or 'done'}"]
            lines += [f"  {call}" for call in host.calls if not call.startswith(("look", "mkdir"))]
            left = host.snapshot()
            for name, what in left["tree"].items():
                mode, content = what if isinstance(what, tuple) else (0, b"")
                lines += [f"  {name} {mode:o}" if mode else f"  {name} -> {what}"]
                lines += [f"  | {line}" for line in content.decode().splitlines()]
            lines += [
                f"  {name}: {sorted(left[name]) if isinstance(left[name], set) else left[name]}" for name in STATE
            ]
        text = "\n".join(lines).replace(str(host.root), "") + "\n"
    for pattern, instead in CHANCE.items():
        text = re.sub(pattern, instead, text)
    return "".join(line for line, _again in groupby(text.splitlines(keepends=True)))


def kept():
    """Yield each file with what it should have in it."""
    yield from ((FOLDER / f"{name}.txt", partial(told, command)) for name, command in COMMANDS.items())
    yield from ((FOLDER / "plans" / f"{name}.json", partial(planned, **of)) for name, of in PLANS.items())
    yield from ((FOLDER / "sick" / f"{folder.name}.txt", partial(diagnosed, folder)) for folder in SICK)
    yield from ((FOLDER / "traces" / f"{world.__name__.lower()}.txt", partial(traced, world)) for world in WORLDS)


@pytest.mark.parametrize(("path", "made"), list(kept()), ids=[path.stem for path, _made in kept()])
def test_a_whole_answer(path, made):
    expected, found = path.read_text(encoding="utf-8"), made()
    difference = difflib.unified_diff(expected.splitlines(), found.splitlines(), "kept", "now", lineterm="")
    assert found == expected, "\n" + "\n".join(difference)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if "--format" not in command])
def test_answers_fit_80_columns(name):
    answer = told(COMMANDS[name]).partition("--- standard error")[0].splitlines()[1:]
    whole = ("|", "$ ")  # rows of tables and commands to copy are not broken
    assert not [
        line for line in answer if len(line) > 80 and "https://" not in line and not line.strip().startswith(whole)
    ]


def test_no_explanation_is_left_behind():
    assert {*FOLDER.glob("*.txt"), *FOLDER.glob("[pst]*/*")} == {path for path, _made in kept()}


if __name__ == "__main__":
    if "--update" not in sys.argv:
        sys.exit("say --update to write the explanations anew")
    for path in (*FOLDER.glob("*.txt"), *FOLDER.glob("[pst]*/*")):
        path.unlink()
    for golden, made in kept():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(made(), encoding="utf-8")
    print(f"written to {FOLDER}")
