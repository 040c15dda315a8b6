"""What `plan` would do on a host is what `resolve --from` its facts says, and what `why-not` and `matrix` judge by."""

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.errors import NoStackError
from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.model.facts import Facts
from gpusetup.model.request import COMPONENTS, Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.host import Planner
from gpusetup.resolve.api import resolve
from tests.property.laws import MATRIX
from tools.refresh.questions import SERIES

HOSTS = {
    path.parent.name: captured(path, matrix_lookup(MATRIX))
    for path in sorted((Path(__file__).parents[1] / "hosts").glob("*/root"))
}
WISHES = 12


def wishes(chance):
    names = chance.sample([name for name in SERIES if name != "python"], k=chance.choice((1, 1, 2)))
    ordered = sorted(names, key=COMPONENTS.index)
    return tuple(Requirement(component=name, specifier=chance.choice(SERIES[name])) for name in ordered)


def planned(host, wanted):
    """Return what the planner chooses before it has seen a repository: a state, and the stack."""
    found: list[Any] = []

    def noting(request, matrix):
        try:
            found.append(resolve(request, matrix))
        except NoStackError:
            found.append(None)
            raise
        return found[-1]

    draft = Planner(MATRIX, noting).first(host, Settings(requirements=wanted))
    if not found:
        return draft.plan.state, None
    return ("no stack", None) if found[0] is None else ("stack", msgspec.to_builtins(found[0].stack))


def asked(tmp_path, command, host, *words):
    """Return what a command says of a host's facts."""
    path = tmp_path / "facts.json"
    path.write_bytes(msgspec.json.encode(Facts(hosts={"host": host})))
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main([command, *words, "--from", str(path), "--format", "json"])
    return int(code), json.loads(out.getvalue())


@pytest.mark.parametrize("name", HOSTS)
def test_plan_does_what_resolve_says_of_the_facts(name, tmp_path):
    chance = random.Random(name)
    for wanted in (wishes(chance) for _ in range(WISHES)):
        state, stack = planned(HOSTS[name], wanted)
        code, told = asked(tmp_path, "resolve", HOSTS[name], *map(str, wanted))
        (answer,) = told["classes"].values()
        given = {part: {**choice} for part, choice in (answer.get("stack") or {}).items()}
        if state == "stack":
            assert code == 0
            for part, choice in stack.items():
                if isinstance(choice, dict) and "version" in choice:
                    assert given[part]["version"] == choice["version"], (part, wanted)
        else:
            assert {"no stack": (4,), "refused": (5,), "nothing-to-do": (0,)}[state] == (code,), wanted
            assert not given


@pytest.mark.parametrize("name", ["ubuntu24.04-rtx5090-open", "debian12-v100-proprietary", "rocky9-a100-open"])
def test_why_not_judges_by_the_facts(name, tmp_path):
    for version in ("2.6.0", "2.14.1", "2.15.0"):
        code, told = asked(tmp_path, "why-not", HOSTS[name], f"torch={version}")
        accepted, _ = asked(tmp_path, "resolve", HOSTS[name], f"torch=={version}")
        assert (code, told["forbidden"]) == (accepted, accepted != 0)
