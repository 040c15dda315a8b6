"""The machine that gpusetup runs on is known under any name, and is not rebooted under it without a word."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from gpusetup.facts.collect import this_boot
from gpusetup.model.facts_machine import Boot
from gpusetup.model.plan import HostPlan
from gpusetup.model.settings import Settings
from gpusetup.model.variables import NOTHING
from gpusetup.rollout.looks import Rollout, _with_care
from gpusetup.rollout.waves import _as_now

HERE = Boot(id="b1", time=1, machine="m1")


@pytest.fixture
def rollout(monkeypatch):
    def make(boot, connection="ssh", reboot=None):
        monkeypatch.setattr("gpusetup.rollout.looks.this_boot", lambda: HERE)
        session = SimpleNamespace(run=SimpleNamespace(id="1"))
        facts = SimpleNamespace(boot=boot, display=SimpleNamespace(sessions=()), state=None, unreadable=())
        return Rollout(
            session, None, None, facts={"a": facts}, settings={"a": Settings(reboot=reboot)},
            connections={"a": connection},
        )  # fmt: skip

    return make


@pytest.mark.parametrize(
    ("boot", "same"),
    [(HERE, True), (replace(HERE, time=2), True), (replace(HERE, id="b2"), False), (replace(HERE, machine="m2"), False),
     (Boot(id=None, time=None), False)],
)  # fmt: skip
def test_it_is_known_by_machine_and_boot(rollout, boot, same):
    assert rollout(boot).local("a") is same
    said = _as_now(rollout(boot), "a", NOTHING)
    assert (said.gpu_reboot_policy, said.gpu_reboot_local) == (("never", False) if same else ("when-needed", False))
    assert said.gpu_state_planned == ("", ""), "nothing was applied when it was planned"


def test_it_reboots_when_that_is_said_and_never_under_ansible(rollout):
    said = _as_now(rollout(HERE, reboot="when-needed"), "a", NOTHING)
    assert (said.gpu_reboot_policy, said.gpu_reboot_local) == ("when-needed", True)


def test_a_plan_says_it_where_the_name_does_not(rollout):
    change = HostPlan(state="change")
    assert "gpusetup runs on this machine" in _with_care(rollout(HERE), "a", change).warnings[0]
    assert _with_care(rollout(HERE, "local"), "a", change) is change
    assert _with_care(rollout(replace(HERE, id="b2")), "a", change) is change


def test_this_machine_knows_itself():
    assert this_boot().id
    assert this_boot() == this_boot()
