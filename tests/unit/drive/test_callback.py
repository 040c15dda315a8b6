"""The part that lives in Ansible's process: how often Ansible looks for results, short steps and long ones."""

import importlib
import json
from types import SimpleNamespace

import pytest

from gpusetup.drive import callback

constants = importlib.import_module("ansible.constants")
TASK = SimpleNamespace(
    _uuid="1", action="gpu_packages", name="One transaction", no_log=False, get_name=lambda: "One transaction",
    _role=None,
)  # fmt: skip
AGAIN = SimpleNamespace(
    host=SimpleNamespace(get_name=lambda: "h1"), task=TASK, result={"finished": False, "_ansible_no_log": False}
)


def interval():
    """Return the time between two looks of Ansible for results."""
    return constants.DEFAULT_INTERNAL_POLL_INTERVAL


@pytest.fixture
def writer(tmp_path, monkeypatch):
    def make(of_the_site):
        monkeypatch.setattr(constants, "DEFAULT_INTERNAL_POLL_INTERVAL", of_the_site, raising=False)
        monkeypatch.setenv("GPUSETUP_EVENTS", str(tmp_path / "events.jsonl"))
        monkeypatch.setattr(callback, "die_with_parent", lambda: True)  # the parent here is who runs the tests
        return callback.EventWriter()

    return make


def test_a_long_step_is_looked_at_less_often_and_the_next_one_briskly(writer, tmp_path):
    events = writer(0.001)
    events.v2_playbook_on_task_start(TASK)
    at_first = interval()
    events.v2_runner_retry(AGAIN)
    assert interval() >= 5 * at_first
    events.v2_playbook_on_task_start(TASK)
    assert interval() == at_first
    told = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert told == ["task", "retry", "task"]


def test_what_a_site_says_in_its_settings_stays(writer):
    events = writer(0.3)
    events.v2_playbook_on_task_start(TASK)
    events.v2_runner_retry(AGAIN)
    assert interval() == 0.3


@pytest.mark.parametrize(
    ("ansibles", "told"),
    [
        ("gpusetup.stack.gpu_driver : Load the module", "Load the module"),
        ("gpusetup.stack.gpu_cuda : Validating arguments against arg spec 'main' - CUDA toolkits", "CUDA toolkits"),
        ("r : Validating arguments against arg spec 'main'", "Validating arguments against arg spec 'main'"),
    ],
)
def test_a_task_is_told_by_its_own_name(writer, tmp_path, ansibles, told):
    writer(0.001).v2_playbook_on_task_start(SimpleNamespace(**vars(TASK) | {"get_name": lambda: ansibles}))
    assert json.loads((tmp_path / "events.jsonl").read_text())["name"] == told


@pytest.mark.parametrize(
    "ansibles",
    [
        "Failed to connect to the host via ssh: ",
        'Task failed: Data could not be sent to remote host "g1". Make sure this host can be reached over ssh: ',
    ],
)
def test_a_host_that_cannot_be_reached_is_told_in_the_words_of_ssh(writer, tmp_path, ansibles):
    why = "connect to host g1 port 22: Connection refused"
    result = SimpleNamespace(host=AGAIN.host, task=TASK, result={"msg": f"{ansibles}ssh: {why}", "unreachable": True})
    writer(0.001).v2_runner_on_unreachable(result)
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["message"] == why


def test_a_program_that_the_host_killed_is_no_json_that_does_not_start(writer, tmp_path):
    said = {"msg": "Module result deserialization failed: No start of json char found", "module_stderr": "Killed\n"}
    writer(0.001).v2_runner_on_failed(SimpleNamespace(host=AGAIN.host, task=TASK, result=said))
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert "when memory runs out" in json.loads(line)["message"]
