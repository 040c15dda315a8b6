"""A fleet's answers: each host's facts or its own failure, with the gravest exit."""

import json
from pathlib import Path

import pytest
import yaml

from gpusetup.content import COLLECTION, content_path, host_code
from gpusetup.drive.events import Failure, Track
from gpusetup.drive.playbook import PlaybookRun
from gpusetup.drive.runner import Finished
from gpusetup.errors import Exit, gravest
from gpusetup.facts import fleet

CAPTURE = Path(__file__).parents[2] / "hosts/debian12-t4-open/root"
TIMED_OUT = "ssh: connect to host\n  10.0.0.9 port 22: timed out"
HERE = "Look at the host"


def read(**answers):
    """What is made of each host's data or failure, or of both."""
    track = Track()
    for name, (data, failure) in answers.items():
        progress = track.host(name)
        progress.data.update({} if data is None else {fleet.ACTION: data})
        progress.failure = failure
    return fleet.read(PlaybookRun("facts", Finished((), 0, "", "", 1.0), track))


@pytest.fixture(scope="module")
def good():
    found = host_code("gpu_probe.facts").collect(host_code("gpu_probe.host").open_host(str(CAPTURE)))
    return {"changed": False, "facts": json.loads(json.dumps(found))}


def test_every_host_has_facts_or_a_failure(good):
    told = read(
        good=(good, None),
        gone=(None, Failure(HERE, TIMED_OUT, True)),
        key=(None, Failure(HERE, "Host key verification failed.", True)),
        sudo=(None, Failure(HERE, "Missing sudo password")),
        python=({"msg": "x"}, Failure(HERE, "/usr/bin/python3: not found")),
        old=({"facts": {"os": {}}}, None),
        silent=(None, None),
    ).facts
    assert (set(told.hosts), told.ok) == ({"good"}, False)
    assert {name: (item.reference, item.exit) for name, item in told.failures.items()} == {
        "gone": ("GS-308", 6), "key": ("GS-308", 6), "sudo": ("GS-309", 5), "python": ("GS-309", 5), "old": ("GS-304", 3),
        "silent": ("GS-309", 6),
    }  # fmt: skip
    for name, hint in (("gone", "-m ping"), ("key", "gpusetup fleet known-hosts"), ("sudo", "-K")):
        assert hint in told.failures[name].hint
    assert "\n" not in told.failures["gone"].message
    assert gravest([Exit(item.exit) for item in told.failures.values()]) is Exit.UNREACHABLE


def test_captures_travel_beside_the_facts(good):
    told = read(a=({**good, "capture": {"schema": "gpusetup/capture/1"}}, None), b=(good, None))
    assert (set(told.captures), told.facts.ok) == ({"a"}, True)


def test_the_playbook_asks_with_our_module_once():
    (play,) = yaml.safe_load((content_path() / "playbooks/facts.yml").read_text())
    assert play["gather_facts"] is False
    assert [f"{COLLECTION}.{fleet.ACTION}" in task for task in play["tasks"]] == [True]
