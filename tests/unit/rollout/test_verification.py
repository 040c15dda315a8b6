"""Verification as the last stage of apply: whatever becomes of it, what apply did stays known."""

from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from gpusetup.cli.apply import applied_text
from gpusetup.errors import Exit
from gpusetup.model import applied as on_host
from gpusetup.model.lifecycle import Applied, HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.settings import Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.rollout import verification
from gpusetup.rollout.outcome import exit_of
from tests.records import record


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


KEPT = {"key": "k", "driver": "580", "verdict": "pass", "simulated": False, "time": "noon", "newer": 1}


NEW = msgspec.to_builtins(on_host.Verified(key="k", driver="580", verdict="warn", time="dusk"))


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (KEPT, "pass on noon"),
        (dict(KEPT, verdict="skip", simulated=True), "on noon, as far as a simulated GPU allows"),
        (NEW, "warn on dusk"),
        # What was not verified, or cannot be read, is measured again.
        (None, ""), ("yes", ""), (dict(KEPT, key="other"), ""), (dict(KEPT, driver="575"), ""), (dict(KEPT, verdict="fail"), ""),
        (dict(KEPT, verdict="skip"), ""), (dict(KEPT, verdict=7), ""), (dict(KEPT, time=None), ""),
    ],
)  # fmt: skip
def test_what_was_verified_is_not_measured_again(kept, said):
    loaded = SimpleNamespace(loaded=SimpleNamespace(version="580"))
    facts = SimpleNamespace(state=record({"verified": kept}), driver=loaded)
    plans = {"a": SimpleNamespace(lock=on_host.Applied(key="k"))}
    assert verification._on_record(SimpleNamespace(facts={"a": facts}, plans=plans), "a") == said
