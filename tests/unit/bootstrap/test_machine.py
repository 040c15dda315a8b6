"""The state machine: every sequence of outcomes, kills and reboots ends with a reason."""

import ast
import itertools
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from gpusetup.bootstrap import run
from gpusetup.bootstrap.machine import Limits, Moment, Outcome, advance, begin, pause_before
from gpusetup.bootstrap.run import message
from gpusetup.bootstrap.userdata import Config, instance_file
from gpusetup.model.status import FINAL, Problem, Status

OK = Outcome("ok", verified="pass")
NOTHING = Outcome("nothing-to-do")
REBOOT = Outcome("reboot", reasons=("driver 580 is not loaded",))


def trouble(code: int) -> Outcome:
    return Outcome("problem", Problem(reference="GS-1", message="no", exit=code))


def now(boot: str = "b1") -> Moment:
    return Moment("2026-01-01T00:00:00Z", boot)


def drive(status: Status, *outcomes: Outcome, limits: Limits | None = None, boot: str = "b1") -> Status:
    for outcome in outcomes:
        status = advance(status, outcome, limits or Limits(), now(boot))
    return status


def test_a_reboot_is_recorded_before_it_happens_and_resumed_after():
    status = drive(begin(None, now()), OK, REBOOT)
    assert status.state == "rebooting"
    assert [(item.reason, item.boot) for item in status.reboots] == [("driver 580 is not loaded", "b1")]
    assert begin(status, now("b1")).state == "rebooting", "killed before the reboot: it is made, not counted again"
    resumed = begin(status, now("b2"))
    assert (resumed.state, resumed.boot, len(resumed.reboots)) == ("waiting", "b2", 1)
    assert drive(resumed, OK, OK, boot="b2").state == "done"


def test_reboots_are_counted_over_boots():
    status = begin(None, now("b0"))
    for number in range(2):
        status = drive(status, OK, REBOOT, boot=f"b{number}")
        status = begin(status, now(f"b{number + 1}"))
    status = drive(status, OK, REBOOT, boot="b2")
    assert (status.state, status.ok, len(status.reboots)) == ("failed", False, 2)
    assert "driver 580 is not loaded" in status.last_error.message


@pytest.mark.parametrize("state", ["preparing", "waiting", "fetching", "applying", "retrying"])
def test_a_reboot_by_others_or_a_kill_is_gone_on_from(state):
    before = Status(state=state, started="t", since="t", boot="b1", attempts=1)
    for boot in ("b1", "b2"):
        resumed = begin(before, now(boot))
        tries = 2 if state == "applying" and boot == "b2" else 1
        assert (resumed.state, resumed.reboots, resumed.attempts) == ("waiting", (), tries)
        assert drive(resumed, OK, OK, boot=boot).state == "done"


def test_a_stack_that_ends_the_machine_is_not_applied_at_each_boot_for_ever():
    status, boots = begin(None, now("0")), 0
    while status.state not in FINAL:
        boots += 1
        status = begin(drive(status, OK, boot=str(boots)), now(str(boots + 1)))
    assert (status.state, boots, status.last_error.reference) == ("failed", 8, "GS-740")
    assert begin(status, now("9")).attempts == 0


def test_the_first_stage_has_the_same_final_states():
    assert set(ast.literal_eval(instance_file("first-stage").partition("\nFINAL = ")[2].partition("\n")[0])) == FINAL


def test_a_person_may_try_again_after_a_failure():
    failed = drive(begin(None, now()), OK, trouble(5))
    again = begin(failed, now())
    assert (again.state, again.ok, again.last_error, again.attempts) == ("waiting", True, None, 0)


@pytest.mark.parametrize(("code", "tries"), [(3, 1), (4, 1), (5, 1), (6, 8), (7, 3), (8, 1)])
def test_what_may_pass_is_tried_again_and_no_longer(code, tries):
    status = drive(begin(None, now()), OK)
    seen = 0
    while status.state not in FINAL:
        if status.state == "applying":
            seen += 1
        status = drive(status, trouble(code) if status.state == "applying" else OK)
    assert (status.state, seen) == ("failed", tries)
    assert status.last_error.exit == code
    pauses = [pause_before(number) for number in range(1, 9)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 300


def test_a_machine_in_use_is_not_rebooted_and_goes_on_after_somebody_did():
    limits = Limits(asks=True)
    pending = drive(begin(None, now()), OK, REBOOT, limits=limits)
    assert (pending.state, pending.ok, pending.reboots) == ("pending-reboot", True, ())
    assert "driver 580 is not loaded" in pending.doing
    for boot in ("b1", "b2"):
        assert drive(begin(pending, now(boot)), OK, OK, limits=limits, boot=boot).state == "done"


@pytest.mark.parametrize("applied", [OK, REBOOT])
def test_an_image_is_cleaned_and_never_rebooted(applied):
    limits = Limits(image=True)
    sealing = drive(begin(None, now()), OK, applied, limits=limits)
    assert sealing.state == "sealing"
    assert begin(sealing, now("b2")).state == "waiting", "a cut while it is cleaned begins again"
    ready = drive(sealing, OK, limits=limits)
    assert (ready.state, ready.reboots) == ("sealed", ())
    assert begin(ready, now("b3")).state == "waiting"
    assert drive(sealing, trouble(5), limits=limits).state == "failed"


EVENTS = (OK, NOTHING, REBOOT, trouble(6), trouble(7), trouble(5))


@pytest.mark.parametrize(
    "limits", [Limits(reboots=0), Limits(reboots=1), Limits(reboots=2), Limits(asks=True), Limits(image=True)]
)
def test_every_sequence_ends_or_goes_on_by_itself(limits):
    """All sequences of four outcomes, a kill or a cut before each: never a state without a way on."""
    for outcomes in itertools.product(EVENTS, repeat=4):
        for cuts in itertools.product((False, True), repeat=2):
            status = begin(None, now("0"))
            for number, outcome in enumerate(outcomes):
                if number < 2 and cuts[number]:
                    status = begin(status, now(str(number + 1)))
                if status.state in FINAL:
                    break
                status = advance(status, outcome, limits, now(str(number)))
                assert status.ok is (status.state != "failed")
                assert (status.last_error is not None) or status.ok
                assert len(status.reboots) <= (0 if limits.asks or limits.image else limits.reboots)
                assert status.step <= status.of
    with pytest.raises(ValueError, match="done"):
        advance(drive(begin(None, now()), OK, OK), OK, Limits(), now())


NEW = begin(None, Moment("2026-01-01T00:00:00Z", "b1"))
DONE = replace(NEW, state="done", doing="", lock="aaaa")
CONFIG = Config(source="http://x", manifest_sha256="", lock_url="http://x/l", lock_sha256="aaaa")


def test_a_machine_in_use_is_brought_to_its_lock_and_not_rebooted(monkeypatch, tmp_path):
    record, ran = [DONE], []

    def perform(status: Status) -> Outcome:
        ran.append(status.state)
        return Outcome("reboot", reasons=("another driver is loaded",)) if status.state == "applying" else Outcome("ok")

    acting = Mock(perform=perform, **{"prepare.return_value": None, "finish.return_value": None})
    monkeypatch.setattr(run, "Effects", lambda *_: acting)
    monkeypatch.setattr(run, "HOME", tmp_path)
    monkeypatch.setattr(run, "boot_id", lambda: "b1")
    monkeypatch.setattr(run, "load", lambda: record[-1])
    monkeypatch.setattr(run, "save", record.append)
    monkeypatch.setattr(run, "RESERVE", tmp_path / "reserve")
    status = run.bootstrap(CONFIG, print)
    assert ran == ["waiting", "fetching", "applying"]
    assert (status.state, status.reboots) == ("pending-reboot", ())
    assert "another driver is loaded" in message(status)
