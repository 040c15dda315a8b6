"""Whole explanations as people read them at 80 columns, and whole plans of captured machines with all that the roles get.
`python -m tests.golden.test_golden --update` writes them anew.

A change of the data or of a sentence changes these files: read the difference before keeping it.
"""

import difflib
import json
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec import to_builtins

from gpusetup.plan.settings import read_level, settings_for
from tests.hosts.machines import machine
from tests.lab.repository import catalog_rpm
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


def told(command):
    """Return what a command says, answer and warnings, and its exit code."""
    environment = {name: text for name, text in os.environ.items() if name not in ("GPUSETUP_MATRIX", "COLUMNS")}
    with patch.dict(os.environ, environment, clear=True):
        code, out, err = run(shlex.split(command))
    aside = "".join(line + "\n" for line in err.splitlines() if "days old" not in line)
    return f"$ gpusetup {command}\n{out}{'--- standard error' + chr(10) if aside else ''}{aside}--- exit {code}\n"


def kept():
    """Yield each file with what it should have in it."""
    yield from ((FOLDER / f"{name}.txt", partial(told, command)) for name, command in COMMANDS.items())
    yield from ((FOLDER / "plans" / f"{name}.json", partial(planned, **of)) for name, of in PLANS.items())


@pytest.mark.parametrize(("path", "made"), list(kept()), ids=[path.stem for path, _made in kept()])
def test_a_whole_answer(path, made):
    expected, found = path.read_text(encoding="utf-8"), made()
    difference = difflib.unified_diff(expected.splitlines(), found.splitlines(), "kept", "now", lineterm="")
    assert found == expected, "\n" + "\n".join(difference)


@pytest.mark.parametrize("name", COMMANDS)
def test_answers_fit_80_columns(name):
    answer = told(COMMANDS[name]).partition("--- standard error")[0].splitlines()[1:]
    assert not [line for line in answer if len(line) > 80 and "https://" not in line and not line.startswith("|")]


def test_no_explanation_is_left_behind():
    assert {*FOLDER.glob("*.txt"), *FOLDER.glob("plans/*")} == {path for path, _made in kept()}


if __name__ == "__main__":
    if "--update" not in sys.argv:
        sys.exit("say --update to write the explanations anew")
    for path in (*FOLDER.glob("*.txt"), *FOLDER.glob("plans/*")):
        path.unlink()
    for golden, made in kept():
        golden.write_text(made(), encoding="utf-8")
    print(f"{len(COMMANDS)} explanations and {len(PLANS)} plans written to {FOLDER}")
