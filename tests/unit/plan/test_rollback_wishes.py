"""Which apply a host goes back to: rollback notices any wish that differs, and asks for what was asked for then."""

from argparse import Namespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpusetup.cli.rollback import _target, past_of
from gpusetup.drive.events import Failure, Track
from gpusetup.drive.playbook import PlaybookRun
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import Applied, Verified
from gpusetup.model.facts import Service
from gpusetup.model.lifecycle import Past
from gpusetup.model.package import CudaRoot, Package, PackageSet, Pin, Runfile, Source, Stream
from gpusetup.model.request import Requirement
from gpusetup.model.settings import (
    AppliedSettings,
    AppliedWanted,
    DesktopsWish,
    Environment,
    Exporter,
    GpuDirect,
    ImexWish,
    MigInstances,
    MigLayout,
    Settings,
)
from gpusetup.model.stack import Stack
from gpusetup.plan.lifecycle import choose
from gpusetup.plan.wanted import packed, unpacked
from tests.hosts.machines import changed
from tests.records import lock_of, record
from tests.refusals import refused
from tests.unit.plan.conftest import host, planner

A = (Package(name="a"),)
OF_PACKAGES: dict[str, Any] = {
    "manager": "dnf",
    "sources": (Source(name="mirror"),),
    "pins": (Pin(packages=("nvidia*",), priority=1001),),
    "streams": (Stream(module="nvidia-driver", stream="580"),),
    "driver": A, "fabric": A, "cuda": A, "cudnn": A, "nccl": A, "containers": A, "rdma": A, "monitoring": A,
    "desktops": A, "python": A,
    "hold": ("linux-image*",),
    "cuda_roots": (CudaRoot(version="12.8", path="/usr/local/cuda-12.8"),),
    "cuda_default": "12.8",
    "built": "prebuilt",
    "runfile": Runfile(path="/root/NVIDIA.run", version="580.142"),
    "keeps_kernel": True,
}  # fmt: skip
BY_CHANCE = {"prerequisites", "remove", "may_remove", "enable", "replace"}
"""Of packages, what follows from what was on the host before."""
OF_WANTED: dict[str, Any] = {
    "packages": PackageSet(manager="apt", containers=A), "manage_driver": True, "requirements": ("torch==2.9.1",),
    "interpreter": "/usr/bin/python3.12", "adopted": ("torch==2.9.1",), "services": ("nvidia-persistenced",),
    "mig": (MigLayout(gpu="0000:00:06.0", enabled=True, instances=(MigInstances(profile="1g.18gb", count=7),)),),
    "imex": ImexWish(nodes=("10.0.0.1",), channels=1), "gpudirect": GpuDirect(stack="inbox"),
    "desktops": DesktopsWish(users=("anna",)), "monitoring": Exporter(kind="textfile"),
    "environments": (Environment(name="vllm", path="/opt/vllm", stack=Stack(), requirements=("vllm==0.11.0",)),),
}  # fmt: skip
OF_SETTINGS: dict[str, Any] = {
    "containers": ("docker",), "driver_options": {"NVreg_EnableGpuFirmware": 0}, "python_path": "/srv/python",
    "python_links": "/srv/bundle/python", "python_adopt": "/srv/adopted/bin/python",
    "vgpu_token": "/home/anna/site.tok", "vgpu_token_sha256": "ab" * 32, "vgpu_feature": "workstation",
}  # fmt: skip
ELSEWHERE = {
    "requirements": "stack", "native": "stack", "forward": "stack", "upgrade": "stack",
    "source": "packages", "source_sha256": "packages", "source_fingerprints": "packages", "source_key": "packages",
    "extra_sources": "packages", "module": "packages", "cuda_from": "packages", "hold_kernel": "packages",
    "dev": "packages", "hashed": "requirements", "python_interpreter": "interpreter", "environments": "environments",
    "mig": "mig", "imex": "imex", "desktops": "desktops", "persistence": "services",
    "rdma": "gpudirect", "gpudirect": "gpudirect", "ipoib": "gpudirect", "gdrcopy": "gpudirect", "gds": "gpudirect",
    "monitoring": "monitoring", "monitoring_listen": "monitoring", "monitoring_textfile": "monitoring",
    "monitoring_certificate": "monitoring", "monitoring_key": "monitoring", "monitoring_passwords": "monitoring",
}  # fmt: skip
"""Settings that are on record as what became of them."""
OF_TODAY = {
    "vgpu_host", "reboot", "reload", "replace", "no_way_back", "older_source", "despite_maintenance", "allow_vulnerable", "secure_boot", "signing_key", "signing_certificate", "containers_restart", "proxy", "policy",
}  # fmt: skip
"""How and when, not what: whoever rolls back says it."""

BARE = AppliedWanted(
    packages=PackageSet(manager="apt"), manage_driver=False, requirements=(), interpreter="", adopted=(), services=(),
    settings=AppliedSettings(),
)  # fmt: skip


def test_no_wish_is_forgotten_here():
    assert set(AppliedWanted.__struct_fields__) == {*OF_WANTED, "settings"}
    assert set(AppliedSettings.__struct_fields__) == set(OF_SETTINGS)
    assert set(PackageSet.__struct_fields__) == {*OF_PACKAGES, *BY_CHANCE}
    assert set(Settings.__struct_fields__) == {*OF_SETTINGS, *ELSEWHERE, *OF_TODAY}
    assert set(ELSEWHERE.values()) <= {"stack", *OF_WANTED}


def wish(where, name, value):
    if where == "packages":
        return changed(BARE, packages=replace(BARE.packages, **{name: value}))
    if where == "settings":
        return changed(BARE, settings=replace(BARE.settings, **{name: value}))
    return changed(BARE, **{name: value})


def past(identity, wanted):
    lock = changed(lock_of(driver="580.142"), wanted=wanted)
    # As it comes back from a host.
    lock = msgspec.json.decode(msgspec.json.encode(lock), type=Applied)
    return Past(id=identity, lock=lock, packages={"nvidia": "580.142"}, verified=Verified(verdict="pass"))


WISHES = [
    *(("wanted", name, value) for name, value in OF_WANTED.items()),
    *(("settings", name, value) for name, value in OF_SETTINGS.items()),
    *(("packages", name, value) for name, value in OF_PACKAGES.items()),
]


@pytest.mark.parametrize(("where", "name", "value"), WISHES, ids=lambda item: item if isinstance(item, str) else "")
def test_another_wish_is_another_state_and_comes_back(where, name, value):
    with_it, without = wish(where, name, value), BARE
    for before, now in ((with_it, without), (without, with_it)):
        history = (past("a1", before), past("a2", now), past("a3", now))
        found = choose(history, "a3")
        assert found.id == "a1"
        of_today = Settings(**{name: getattr(now.settings, name) for name in OF_SETTINGS})
        again = unpacked(found.lock, of_today)
        have = {"packages": again.packages, "settings": again.settings, "wanted": packed(again)}[where]
        then = {"packages": before.packages, "settings": before.settings, "wanted": before}[where]
        assert (getattr(have, name) or None) == (getattr(then, name) or None)


def test_a_licence_comes_back_with_the_same_token_alone():
    service = Service(unit="nvidia-gridd.service", active="active", enabled="enabled")
    facts = host("ubuntu24.04-h200-keep", services={"gridd": service})
    there = Settings(requirements=(Requirement(component="driver"),), vgpu_token="/a.tok", vgpu_token_sha256="ab" * 32)
    lock = planner.first(facts, there).plan.lock
    moved = changed(there, vgpu_token="/now.tok")
    assert planner.recorded(facts, moved, lock).plan.variables.gpu_licence_token == "/now.tok"
    with refused(PreflightError, "GS-816", match="another token"):
        planner.recorded(facts, changed(moved, vgpu_token_sha256="cd" * 32), lock)

    name = "/etc/nvidia/ClientConfigToken/client_configuration_token_gpusetup.tok"
    licensed = changed(facts, state=record({"schema": "gpusetup/record/1", "files": {name: {"sha256": "ab"}}}))
    plan = planner.first(licensed, Settings(requirements=there.requirements)).plan
    assert plan.variables.gpu_licence_give_up is True
    assert [action.what for action in plan.actions] == ["no longer license the vGPU"]


def old(identity, version="580", verdict="pass"):
    lock, verified = lock_of(driver=version), Verified(verdict=verdict)
    return Past(id=identity, lock=lock, packages={"nvidia": version}, verified=verified)


def test_the_last_that_verified_and_is_another_one():
    history = (old("a1", "570"), old("a2", "575", "fail"), old("a3", "580"), old("a4", "580"))
    assert choose(history, "a4").id == "a1"
    assert choose((*history, old("a5", "590", "fail")), "a5").id == "a4", (
        "the last good one before an apply that failed"
    )
    with refused(PreflightError, "GS-802"):
        choose((old("a1", "570", "skip"), old("a2")), "a2")
    assert choose(history[:3], "").id == "a3"
    assert choose((*history[:3], old("a4", "580", None)), "a4").id == "a3"


def test_by_id_or_its_beginning():
    history = (old("20261120T1", "570", "fail"), old("20261121T2"))
    assert choose(history, "20261121T2", "20261120").lock == lock_of(driver="570")
    for unclear in ("2026112", "nonsense"):
        with refused(BadInputError, "GS-803"):
            choose(history, "", unclear)


def test_a_history_of_another_form_names_the_field_and_newer_fields_are_left_alone():
    told = {"id": "a1", "finished": "", "lock": {}, "verified": {"verdict": "pass", "newer": [1]}, "also": "newer"}
    current, (read,) = past_of({"current": "a1", "history": [told]}, "gpu07")
    assert (current, read.verified) == ("a1", Verified(verdict="pass"))
    with refused(BadInputError, "GS-805", match=r"history of gpu07 .*\$\[0\]\.verified\.verdict"):
        past_of({"history": [dict(told, verified={"verdict": 7})]}, "gpu07")


def test_a_history_that_could_not_be_read_is_the_reason_and_not_an_empty_one():
    track = Track()
    said = {
        "reference": "GS-499",
        "message": "the record cannot be read",
        "context": "/x/state.json",
        "hint": "a backup",
    }
    track.host("a").failure = Failure("Applies on record", "GS-499: do", document=said)
    with refused(PreflightError, "GS-499", "cannot be read; /x/state.json", hint="a backup"):
        _target(
            PlaybookRun("history", Finished((), 0, "", "", 0.0), track), "a", Namespace(inventory="hosts.ini", to="")
        )
