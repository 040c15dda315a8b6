"""The doctor's question about what exports the figures: a unit that failed, and one of ours that somebody stopped."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusetup.cli.doctor_hosts import captured
from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.steps_software import exporters
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Service
from tests.records import record

HEALTHY = Path(__file__).resolve().parents[2] / "hosts/ubuntu24.04-h200-keep/root"
UNIT = "nvidia-dcgm-exporter.service"
LOCK = {
    "schema": "gpusetup/host-lock/1", "key": "k",
    "stack": {"driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"}},
    "wanted": {
        "manage_driver": True, "packages": None, "requirements": [], "adopted": [], "services": [],
        "monitoring": {"kind": "dcgm", "listen": "127.0.0.1:9400", "dcgm": "4.6.0"},
    },
}  # fmt: skip


def look(active: str | None, *, ours: bool) -> Any:
    found = captured(HEALTHY, matrix_lookup(matrix()))
    services = found.facts.services | {"x": Service(unit=UNIT, active=active, enabled="enabled")}
    state = record({"lock": LOCK, "services": {UNIT: {"enabled": True}}}) if ours else None
    facts = msgspec.structs.replace(found.facts, services=services, state=state)
    return dataclasses.replace(found, facts=facts)


@pytest.mark.parametrize(
    ("active", "ours", "answer"),
    [
        ("active", True, "fine"), ("inactive", True, "notice"), ("failed", True, "notice"), ("failed", False, "notice"),
        ("inactive", False, "fine"), (None, True, "fine"),
    ],
)  # fmt: skip
def test_one_that_failed_or_was_stopped_is_silent(active, ours, answer):
    outcome = exporters(look(active, ours=ours))
    assert outcome.answer == answer
    if answer == "notice":
        assert (outcome.cause, f"{UNIT} is {active}" in outcome.text) == ("exporter-silent", True)
    elif ours:
        assert outcome.text == "dcgm on 127.0.0.1:9400"


def test_the_diagnosis_stays_healthy_and_says_what_to_do():
    found = diagnose(look("failed", ours=True))
    assert found.healthy
    (told,) = [notice for notice in found.notices if notice.cause == "exporter-silent"]
    assert any("gpusetup apply" in command for fix in told.fixes for command in fix.commands)
