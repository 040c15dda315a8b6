"""The seam of engines: what Ansible is called with stays what it was, and settings are those that an engine has."""

import sys

import pytest

from gpusetup.drive.engines import ENGINES, Ansible, Play, engine_of
from gpusetup.drive.rundir import new_run
from gpusetup.errors import BadInputError


@pytest.fixture
def play(tmp_path):
    return Play(
        run=new_run(tmp_path / "state"), name="apply", shard=0, playbook="gpusetup.stack.apply",
        options=("--inventory=hosts.ini", "--limit=gpu"), environment={"PATH": "/usr/bin:/bin"},
        handed={"GPUSETUP_INVENTORY": "7:hosts.ini"}, descriptors=(7,),
    )  # fmt: skip


def test_ansible_is_called_by_our_own_interpreter(play):
    command = Ansible().command(play)
    assert command.argv == (
        sys.executable, "-m", "ansible", "playbook", "--inventory=hosts.ini", "--limit=gpu", "gpusetup.stack.apply"
    )  # fmt: skip
    assert command.environment == {"PATH": "/usr/bin:/bin", "GPUSETUP_INVENTORY": "7:hosts.ini"}
    assert command.descriptors == (7,)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("option", ["colour=red", "=", "", "name=x", "-x"])
def test_a_setting_that_an_engine_does_not_have_is_refused(name, option):
    with pytest.raises(BadInputError, match="does not take") as caught:
        engine_of(name, [option])
    assert caught.value.hint


def test_awx_is_no_engine_and_the_refusal_names_the_command():
    with pytest.raises(BadInputError, match="AWX runs gpusetup") as caught:
        engine_of("awx")
    assert caught.value.hint == "gpusetup export handover awx --out awx-handover"
