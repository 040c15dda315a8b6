"""A fleet's answers: each host's facts or its own failure, with the gravest exit."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpusetup.content import host_code
from gpusetup.drive.events import Failure, Track
from gpusetup.drive.playbook import PlaybookRun
from gpusetup.drive.runner import Finished
from gpusetup.errors import Exit, gravest
from gpusetup.facts import fleet

CAPTURE = Path(__file__).parents[2] / "hosts/debian12-t4-open/root"


@dataclass
class Answers:
    track: Track

    def host(self, name, data=None, failure=None):
        progress = self.track.host(name)
        if data is not None:
            progress.data[fleet.ACTION] = data
        progress.failure = failure
        return self

    def read(self):
        return fleet.read(PlaybookRun("facts", Finished((), 0, "", "", 1.0), self.track))


@pytest.fixture
def answers():
    return Answers(Track())


def good():
    package = host_code("gpu_probe.host")
    return {
        "changed": False,
        "facts": json.loads(json.dumps(host_code("gpu_probe.facts").collect(package.open_host(str(CAPTURE))))),
    }


def test_every_host_has_facts_or_a_failure(answers):
    answers.host("good", good())
    answers.host(
        "gone", failure=Failure("Look at the host", "ssh: connect to host\n  10.0.0.9 port 22: timed out", True)
    )
    answers.host("key", failure=Failure("Look at the host", "Host key verification failed.", True))
    answers.host("sudo", failure=Failure("Look at the host", "Missing sudo password"))
    answers.host("python", {"msg": "x"}, Failure("Look at the host", "/usr/bin/python3: not found"))
    answers.host("old", {"facts": {"os": {}}})
    answers.host("silent")
    told = answers.read().facts
    assert set(told.hosts) == {"good"}
    assert told.ok is False
    assert {name: (item.reference, item.exit) for name, item in told.failures.items()} == {
        "gone": ("GS-308", 6),
        "key": ("GS-308", 6),
        "sudo": ("GS-309", 5),
        "python": ("GS-309", 5),
        "old": ("GS-304", 3),
        "silent": ("GS-309", 6),
    }
    assert "-m ping" in told.failures["gone"].hint
    assert "gpusetup fleet known-hosts" in told.failures["key"].hint
    assert "-K" in told.failures["sudo"].hint
    assert "\n" not in told.failures["gone"].message
    assert gravest([Exit(item.exit) for item in told.failures.values()]) is Exit.UNREACHABLE


def test_captures_travel_beside_the_facts(answers):
    told = answers.host("a", {**good(), "capture": {"schema": "gpusetup/capture/1"}}).host("b", good()).read()
    assert set(told.captures) == {"a"}
    assert told.facts.ok is True


def test_the_playbook_asks_with_our_module_once():
    import yaml

    from gpusetup.content import COLLECTION, content_path

    (play,) = yaml.safe_load((content_path() / "playbooks/facts.yml").read_text())
    assert play["gather_facts"] is False
    assert [f"{COLLECTION}.{fleet.ACTION}" in task for task in play["tasks"]] == [True]
