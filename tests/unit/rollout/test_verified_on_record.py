"""What a host's record says of its last verification decides whether it is measured again."""

from types import SimpleNamespace

import msgspec
import pytest

from gpusetup.model.applied import Applied, Verified
from gpusetup.rollout.verification import _on_record
from tests.records import record

KEPT = {"key": "k", "driver": "580", "verdict": "pass", "simulated": False, "time": "noon", "newer": 1}


def on_record(kept):
    loaded = SimpleNamespace(loaded=SimpleNamespace(version="580"))
    facts = SimpleNamespace(state=record({"verified": kept}), driver=loaded)
    return _on_record(SimpleNamespace(facts={"a": facts}, plans={"a": SimpleNamespace(lock=Applied(key="k"))}), "a")


def test_what_was_verified_is_not_measured_again():
    assert on_record(KEPT) == "pass on noon"
    assert on_record(dict(KEPT, verdict="skip", simulated=True)) == "on noon, as far as a simulated GPU allows"
    assert (
        on_record(msgspec.to_builtins(Verified(key="k", driver="580", verdict="warn", time="dusk"))) == "warn on dusk"
    )


@pytest.mark.parametrize(
    "kept",
    [
        None, "yes", dict(KEPT, key="other"), dict(KEPT, driver="575"), dict(KEPT, verdict="fail"),
        dict(KEPT, verdict="skip"), dict(KEPT, verdict=7), dict(KEPT, time=None),
    ],
)  # fmt: skip
def test_what_was_not_or_cannot_be_read_is_measured(kept):
    assert on_record(kept) == ""
