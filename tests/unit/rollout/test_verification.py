"""Verification as the last stage of apply: whatever becomes of it, what apply did stays known."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from gpusetup.cli.apply import applied_text
from gpusetup.errors import Exit
from gpusetup.model.lifecycle import Applied, HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.settings import Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.rollout import verification
from gpusetup.rollout.outcome import exit_of


@pytest.fixture
def rollout(tmp_path):
    run = SimpleNamespace(path=tmp_path, id="1")
    return SimpleNamespace(
        session=SimpleNamespace(run=run), facts={"a": SimpleNamespace(state=None)}, plans={"a": HostPlan(state="change")},
        settings={"a": Settings()}, seconds={}, reporter=SimpleNamespace(watch=lambda _phase: nullcontext()),
    )  # fmt: skip


def test_a_person_who_stops_the_verification_keeps_the_report_of_what_was_done(rollout, monkeypatch):
    monkeypatch.setattr(verification, "run_playbook", lambda *_a, **_k: SimpleNamespace(interrupted=True))
    done = HostOutcome(state="done", changed=7, seconds=30.0, packages={"installed": ["x"]}, history_id="h")
    outcomes = verification.verify_hosts(rollout, {"a": done, "b": HostOutcome(state="failed")})
    assert outcomes["b"].state == "failed"
    told = outcomes["a"]
    assert (told.state, told.changed, told.packages, told.history_id) == ("interrupted", 7, {"installed": ["x"]}, "h")
    assert exit_of(told) is Exit.INTERRUPTED
    applied = Applied(ok=False, run="1", log="l", seconds={}, matrix=MatrixStamp(date="", digest=""), hosts={"a": told})
    text = " ".join(applied_text(applied).split())
    assert "The changes before it stay; run the same command to verify them" in text
    assert "package transaction" not in text
