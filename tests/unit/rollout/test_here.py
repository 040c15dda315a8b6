"""The machine that gpusetup runs on is known under any name; a wish that a host's own variable overrules is said."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpusetup.drive.events import HostProgress
from gpusetup.facts.collect import this_boot
from gpusetup.model.facts_machine import Boot
from gpusetup.model.plan import HostPlan
from gpusetup.model.settings import Settings
from gpusetup.model.variables import NOTHING
from gpusetup.resolve.requests import parse_requirements
from gpusetup.rollout.looks import Rollout, _with_care
from gpusetup.rollout.options import Wishes, settings_of_hosts
from gpusetup.rollout.waves import _as_now

HERE = Boot(id="b1", time=1, machine="m1")


@pytest.fixture
def rollout(monkeypatch):
    def make(boot, connection="ssh", reboot=None):
        monkeypatch.setattr("gpusetup.rollout.looks.this_boot", lambda: HERE)
        session = SimpleNamespace(run=SimpleNamespace(id="1"))
        facts = SimpleNamespace(boot=boot, display=SimpleNamespace(sessions=()), state=None, record_unread="")
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
    asked = _as_now(rollout(boot, reboot="when-needed"), "a", NOTHING)
    assert (asked.gpu_reboot_policy, asked.gpu_reboot_local) == ("when-needed", same)


def test_a_plan_says_it_where_the_name_does_not(rollout):
    change = HostPlan(state="change")
    assert "gpusetup runs on this machine" in _with_care(rollout(HERE), "a", change, ()).warnings[0]
    for elsewhere in (rollout(HERE, "local"), rollout(replace(HERE, id="b2"))):
        assert _with_care(elsewhere, "a", change, ()) is change


def test_this_machine_knows_itself():
    assert this_boot().id
    assert this_boot() == this_boot()


def asked(
    words: list[str], inventory: str | None = None, rivals: Any = (), **variables: Any
) -> tuple[Settings, tuple[str, ...]]:
    track: Any = SimpleNamespace(hosts={"a": HostProgress("a", variables=variables, rivals=dict(rivals))})
    settings, lost = settings_of_hosts(Wishes(requirements=parse_requirements(words)), inventory, track)
    return settings["a"], lost["a"]


def test_the_file_beside_the_inventory_is_named_and_a_host_s_variable_before_it(tmp_path):
    (tmp_path / "gpusetup.toml").write_text('torch = "2.5.*"\n', encoding="utf-8")
    inventory = str(tmp_path / "hosts.ini")
    assert "torch = 2.5.* in gpusetup.toml wins" in asked(["torch==2.6.*"], inventory)[1][0]
    both = asked(["torch==2.6.*"], inventory, gpusetup_torch="2.7.*")[1]
    assert "gpusetup_torch = 2.7.* in the inventory wins" in both[0]
    assert len(both) == 1


def test_the_command_that_is_offered_wins():
    """Ansible's -e is the last word on a variable."""
    (text,) = asked(["torch==2.6.*"], gpusetup_torch="2.7.*")[1]
    name, _, value = text.rpartition("-e ")[2].strip("'").partition("=")
    settings, lost = asked(["torch==2.6.*"], **{name: value})
    assert [str(item) for item in settings.requirements] == ["torch==2.6.*"]
    assert lost == ()


@pytest.mark.parametrize("value", ["none", "latest"])
def test_a_wish_that_loses_is_named_with_what_wins(value):
    assert f"gpusetup_driver = {value} in the inventory wins" in asked(["driver==580.*"], gpusetup_driver=value)[1][0]
