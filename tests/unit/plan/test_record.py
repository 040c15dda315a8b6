"""Records of this and of other versions: what is understood is used and stays until it is asked for anew, what is not is named."""

import json

import msgspec
import pytest

from gpusetup.components.record import forgotten, hidden, read_applied, read_record
from gpusetup.errors import PreflightError
from gpusetup.facts.collect import from_probe, read_facts
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import NO_LOCK, SCHEMA, Apply, HostRecord, Verified
from gpusetup.model.facts import Unreadable
from gpusetup.plan.requests import request_for
from gpusetup.resolve.api import resolve
from tests.hosts.machines import changed
from tests.records import record
from tests.refusals import refused
from tests.stored import stored_rows
from tests.unit.plan.conftest import DRIVER, asked, host, nvidia_ubuntu, planner

LOCK, RECORD = stored_rows("records.json").values()
RECORD["apply"]["lock"] = LOCK


def with_value(document, path, value):
    copy = json.loads(json.dumps(document))
    *parents, last = path.split(".")
    place = copy
    for name in parents:
        place = place[name]
    place[last] = value
    return copy


keep = host("ubuntu24.04-h200-keep")


@pytest.mark.parametrize(("path", "value", "named"), stored_rows("record-fields-of-another-version.json"))
def test_a_field_that_another_version_wrote_is_named(path, value, named):
    told = with_value(LOCK, path, value)
    lock = read_applied(told)
    assert named in lock.unread
    facts = changed(keep, driver=None, state=record({"lock": told}))
    with refused(PreflightError, "GS-804", message=named):
        planner.recorded(facts, DRIVER, lock)
    plan = planner.second(facts, DRIVER, nvidia_ubuntu).plan
    assert plan.state == "change"
    assert [text for text in plan.warnings if named in text and "chooses the stack again" in text], plan.warnings
    assert plan.lock.repeatable, "the next record is one that this version understands"


@pytest.mark.parametrize("told", [{"site": "ours"}, ["x"], "x"])
def test_what_the_roles_alone_recorded_is_no_other_version(told):
    assert not read_applied(told).repeatable
    facts = changed(keep, driver=None, state=record({"lock": told}))
    assert not [text for text in planner.second(facts, DRIVER, nvidia_ubuntu).plan.warnings if "anew" in text]


@pytest.mark.parametrize(("path", "value", "named"), stored_rows("record-unread-parts.json"))
def test_a_part_that_removal_stands_on_makes_the_record_unreadable(path, value, named, tmp_path):
    told = with_value(RECORD, path, value)
    assert read_record(told)[0] is None
    probe = json.loads(msgspec.json.encode(keep)) | {"state": told}
    document = tmp_path / "facts.json"
    document.write_text(json.dumps({"schema": "gpusetup/facts/1", "hosts": {"a": probe}}))
    for facts in (from_probe(probe, "a"), read_facts(document).hosts["a"]):
        refusal = hidden(facts)
        assert (facts.state, refusal.reference, named in refusal.message) == (None, "GS-801", True), refusal.message


def test_the_same_lock_begun_again_after_its_packages_went_is_planned_by_the_one_that_finished():
    """An apply under way is chosen anew while its packages lack: a version may have left the repository since, and the old
    choice would fail for ever. One that finished is brought back as it was."""
    bare = changed(keep, driver=None)
    lock = planner.second(bare, DRIVER, nvidia_ubuntu).plan.lock
    for begun, done, stage in ((lock, NO_LOCK, "offers"), (lock, lock, "transaction"), (NO_LOCK, lock, "transaction")):
        facts = changed(bare, state=HostRecord(apply=Apply(id="a2", lock=begun), lock=done))
        assert (lock in facts.state.locks, planner.first(facts, DRIVER).stage) == (True, stage)


def test_an_earlier_record_that_was_lost_is_told():
    lost = {"time": "noon", "why": "it is no JSON", "kept": "/x"}
    assert forgotten(changed(keep, state=record({"lost": lost, "verified": {}}))) == (
        "an earlier record was lost (it is no JSON); the rest of it: /x: changes that gpusetup made before noon are unknown"
    )
    assert record({"verified": {"verdict": "pass", "newer": 1}}).verified == Verified(verdict="pass")


def test_a_record_that_is_lost_is_begun_anew_unless_only_root_can_read_it():
    for why, told in (("it is no JSON", ["it is no JSON"]), ("Permission denied", [])):
        facts = changed(keep, state=None, unreadable=(Unreadable(field="state", reason=why),))
        plan = planner.first(facts, DRIVER).plan
        assert [action.why for action in plan.actions if action.kind == "record"] == told


STACK = {
    "driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"},
    "torch": {"version": "2.14.1", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": "", "on_pypi": True},
}  # fmt: skip


@pytest.mark.parametrize(("manages", "version"), [(True, "620.70.06"), (False, keep.driver.version)])
def test_upgrade_moves_a_driver_of_ours_and_keeps_one_that_was_there(manages, version):
    wanted = {"manage_driver": manages, "packages": None, "requirements": [], "adopted": [], "services": []}
    lock = {"schema": SCHEMA, "key": "another matrix", "stack": STACK, "wanted": wanted}
    facts = changed(keep, state=record({"lock": lock}))
    chosen = resolve(request_for(facts, asked("torch", upgrade=True)), matrix())
    assert chosen.stack.driver.version == version


@pytest.mark.parametrize("dev", [False, True])
def test_libraries_are_held_beside_a_driver_that_was_there_and_headers_come_when_asked_for(dev):
    plan = planner.second(keep, asked("cuda", "cudnn", "nccl", dev=dev), nvidia_ubuntu).plan
    assert plan.lock.wanted.manage_driver is False
    theirs = "disable the entries in /etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.sources"
    assert [action.what for action in plan.actions if action.kind == "repository"] == [theirs]
    names = {package.name for package in plan.variables.gpu_cuda_packages}
    assert {name.partition("-")[0] for name in names} >= {"cuda", "libcudnn9", "libnccl2"}
    assert ("libnccl-dev" in names, any(name.startswith("libcudnn9-dev") for name in names)) == (dev, dev)
    assert set(plan.holds) == names
    assert "hold-libraries" in {action.id for action in plan.actions if action.kind == "hold"}


def test_holds_that_an_apply_without_packages_releases_are_named():
    packages = {"installed": {**keep.packages.installed, "libnccl2": "2"}, "held": ("libnccl2",)}
    facts = changed(keep, packages=packages, state=HostRecord(holds=("libnccl2",)))
    assert planner.first(facts, DRIVER).plan.state == "unchanged", "they stay while nothing changes"
    begun = changed(facts, state={"apply": Apply(id="run-1")})
    told = [action.what for action in planner.first(begun, DRIVER).plan.actions if action.kind == "hold"]
    assert told == ["no longer libnccl2"]
