"""A finished machine is looked at again: when the lock is applied, and what is told otherwise."""

import json

import pytest
from msgspec.structs import replace

from gpusetup.bootstrap import run
from gpusetup.bootstrap.effects import TIMER, units
from gpusetup.bootstrap.machine import Moment, Outcome, begin
from gpusetup.bootstrap.run import message, why_apply
from gpusetup.bootstrap.userdata import Config
from gpusetup.model.status import Recheck, Status

NEW = begin(None, Moment("2026-01-01T00:00:00Z", "b1"))
DONE = replace(NEW, state="done", doing="", lock="aaaa")
CONFIG = Config(source="http://x", manifest_sha256="", lock_url="http://x/l", lock_sha256="aaaa")


@pytest.mark.parametrize(
    ("status", "pinned", "boot", "applied"),
    [
        (DONE, "aaaa", "b2", False),
        (DONE, "bbbb", "b1", True),
        (replace(DONE, state="failed"), "aaaa", "b1", False),
        (replace(DONE, state="failed"), "bbbb", "b1", True),
        (replace(DONE, state="pending-reboot"), "aaaa", "b1", False),
        (replace(DONE, state="pending-reboot"), "aaaa", "b2", True),
        (replace(DONE, state="applying"), "aaaa", "b1", True),
        (replace(DONE, state="nothing-to-do", lock=""), "bbbb", "b1", False),
    ],
)
def test_the_lock_is_applied_for_a_reason(status, pinned, boot, applied):
    assert bool(why_apply(status, pinned, boot)) is applied


def test_units_only_where_they_were_asked_for():
    assert units(CONFIG) == {}
    made = units(replace(CONFIG, recheck=600))
    assert set(made) == {"gpusetup-recheck.service", TIMER}
    assert "OnUnitActiveSec=600s" in made[TIMER]
    assert "RandomizedDelaySec=60s" in made[TIMER]


class Machine:
    """Stands for a machine: what was run on it, what is on record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path, answer: object) -> None:
        self.record: list[Status] = [DONE]
        self.ran: list[str] = []
        machine = self

        class Acting:
            def __init__(self, *_: object) -> None: ...

            def gpusetup(self, command: str) -> tuple[None, str]:
                machine.ran.append(command)
                return None, json.dumps(answer)

            def prepare(self) -> None: ...

            def finish(self, _: Status) -> None: ...

            def perform(self, status: Status) -> Outcome:
                machine.ran.append(status.state)
                if status.state == "applying":
                    return Outcome("reboot", reasons=("another driver is loaded",))
                return Outcome("ok")

        monkeypatch.setattr(run, "Effects", Acting)
        monkeypatch.setattr(run, "HOME", tmp_path)
        monkeypatch.setattr(run, "boot_id", lambda: "b1")
        monkeypatch.setattr(run, "load", lambda: self.record[-1])
        monkeypatch.setattr(run, "save", self.record.append)
        monkeypatch.setattr(run, "RESERVE", tmp_path / "reserve")


def drifted(mend: str, **more: str) -> dict[str, object]:
    difference = {"id": "package", "what": "nvidia-smi", "was": "580", "now": "absent", "mend": "apply", **more}
    return {"hosts": {"localhost": {"state": "drifted", "differences": [difference], "mend": mend}}}


def test_what_differs_is_told_and_left(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, tmp_path, drifted("gpusetup apply"))
    status = run.recheck(CONFIG, print)
    assert machine.ran == ["drift"]
    assert machine.record[-1] == status
    assert status.state == "done"
    assert status.recheck.differences == ("nvidia-smi: was 580, is absent",)
    assert "nvidia-smi: was 580, is absent (gpusetup cloud-init bootstrap run)" in message(status)


def test_what_no_apply_mends_is_left_to_a_person(monkeypatch, tmp_path):
    Machine(monkeypatch, tmp_path, drifted("", hint="remove it"))
    assert run.recheck(CONFIG, print).recheck.mend == "remove it"


def test_a_look_that_fails_leaves_the_record(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, tmp_path, {"error": {}})
    assert run.recheck(CONFIG, print) == DONE
    assert machine.record == [DONE]


def test_a_new_pin_is_applied_and_nothing_reboots(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, tmp_path, {})
    machine.record = [replace(DONE, recheck=Recheck(time="t", state="drifted", differences=("x",)))]
    status = run.recheck(replace(CONFIG, lock_sha256="bbbb"), print)
    assert machine.ran == ["waiting", "fetching", "applying"]
    assert (status.state, status.recheck, status.reboots) == ("pending-reboot", None, ())
    assert "another driver is loaded" in message(status)
