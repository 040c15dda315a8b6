"""What a host answers between two looks is read once, as one type; one machine under two names is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts_machine import Boot
from gpusetup.model.plan import HostPlan
from gpusetup.plan.host import Draft
from gpusetup.rollout.looks import _answered, twins
from tests.hosts.machines import HOSTS

DRAFT = Draft(plan=HostPlan(state="change"), stage="transaction")


def answered(told: Any) -> tuple[HostPlan, str, list[Any]]:
    """Return the plan, where the host left its lists, and what the planner was asked."""
    asked: list[Any] = []

    def third(draft: Draft, answer: Any) -> HostPlan:
        asked.append(answer)
        return draft.plan

    run: Any = SimpleNamespace(
        data=lambda _name, _action: told, track=SimpleNamespace(host=lambda _name: SimpleNamespace(failure=None))
    )
    session = SimpleNamespace(run=SimpleNamespace(log=Path("/x/log")))
    rollout: Any = SimpleNamespace(facts={"a": None}, fetched={}, session=session)
    planner: Any = SimpleNamespace(third=third)
    return _answered(rollout, planner, DRAFT, "a", run).plan, rollout.fetched["a"], asked


def test_the_answer_is_typed_and_what_nobody_asks_for_is_left_alone():
    told = {"changed": False, "findings": [{"level": "warn", "id": "x", "text": "t", "hint": "", "reference": ""}],
            "candidates": {"a": [{"version": "1", "size": None, "transitional": False, "source": "s"}]},
            "transaction": {"remove": {"b": "1"}, "install": {}, "download_bytes": 7}, "fetched": "/run/x", "space": []}  # fmt: skip
    plan, fetched, (answer,) = answered(told)
    assert (plan.state, fetched) == ("change", "/run/x")
    assert (answer.transaction.remove, answer.transaction.download_bytes) == ({"b": "1"}, 7)
    assert (answer.findings[0].level, answer.candidates["a"][0].version) == ("warn", "1")


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"transaction": {"remove": ["b"]}}, "$.transaction.remove"),
        ({"findings": [{"level": "grave"}]}, "$.findings[0].level"),
        ({"candidates": {"a": [{"size": 1}]}}, "$.candidates[...][0]"),
        ({"fetched": 1}, "$.fetched"),
    ],
)
def test_an_answer_of_another_form_names_the_field(told, named):
    plan, fetched, asked = answered(told)
    assert (plan.state, plan.refusals[0].reference, fetched, asked) == ("refused", "GS-409", "", [])
    assert named in plan.refusals[0].message


def booted(facts: Any, boot: str | None, machine: str | None) -> Any:
    return msgspec.structs.replace(facts, boot=Boot(id=boot, time=1, machine=machine))


def test_two_names_of_one_machine_are_refused_and_copies_of_one_image_are_not():
    facts = captured(HOSTS / "debian12-t4-open" / "root", matrix_lookup(matrix()))
    hosts = {
        "gpu01": booted(facts, "b1", "m1"), "gpu01.example.org": booted(facts, "b1", "m1"),
        "a copy of its image": booted(facts, "b2", "m1"), "unknown": booted(facts, "b1", None),
        "unknown too": booted(facts, "b1", None),
    }  # fmt: skip
    refused = twins(hosts)
    assert set(refused) == {"gpu01", "gpu01.example.org"}
    assert refused["gpu01"].message == "gpu01 and gpu01.example.org are the same machine"
    assert "--limit gpu01" in refused["gpu01"].hint
