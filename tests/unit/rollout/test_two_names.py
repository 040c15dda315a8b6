"""One machine under two names is refused; who changes a host is told to it."""

from __future__ import annotations

from typing import Any

import msgspec

from gpusetup.facts.collect import captured, matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts_machine import Boot
from gpusetup.rollout.looks import twins
from tests.unit.plan.conftest import HOSTS


def booted(facts: Any, boot: str | None, machine: str | None) -> Any:
    return msgspec.structs.replace(facts, boot=Boot(id=boot, time=1, machine=machine))


def test_two_names_of_one_machine_are_refused_and_copies_of_one_image_are_not() -> None:
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
