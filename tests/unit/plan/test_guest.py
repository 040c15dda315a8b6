"""A vGPU guest's driver from a file: which host takes it, and what else it may not be."""

from collections.abc import Callable

import msgspec
import pytest

from gpusetup.components.vgpu import VGPU
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import fitting
from gpusetup.model.facts import HostFacts
from gpusetup.model.settings import Settings
from gpusetup.plan.settings import read_level
from tests.unit.plan.conftest import DRIVER, answer, drafted

Make = Callable[..., HostFacts]

OFFERED = answer([], ("dkms", "3.0.10"), ("linux-headers-amd64", "6.1.170-1"))


def run(version, kind="-grid"):
    return f"/root/NVIDIA-Linux-x86_64-{version}{kind}.run"


def guest(host, *, vgpu=True):
    facts = host("debian12-t4-open", driver=None, dkms=())
    return msgspec.structs.replace(facts, gpus=tuple(msgspec.structs.replace(gpu, vgpu=vgpu) for gpu in facts.gpus))


def planned(planner, facts, source, **wishes):
    settings = msgspec.structs.replace(DRIVER, source=source, **wishes)
    return drafted(planner, facts, settings, OFFERED).plan


def test_a_guest_driver_of_the_hosts_release_is_installed_from_its_file(planner, host):
    plan = planned(planner, guest(host), run("580.159.03"), vgpu_host="19.6")
    assert not plan.refusals, plan.refusals
    assert plan.variables.gpu_driver_runfile == run("580.159.03")
    assert plan.stack is not None
    assert plan.stack.driver is not None
    assert plan.stack.driver.version == "580.159.03"
    assert not any("gpusetup_vgpu_host" in text for text in plan.warnings)
    assert any("NVIDIA licenses" in text for text in plan.warnings)
    assert any("gpusetup_vgpu_host" in text for text in planned(planner, guest(host), run("580.159.03")).warnings)


@pytest.mark.parametrize(
    ("host_release", "releases"),
    [
        ("20", ("20", "19")),
        ("19", ("19", "18", "16")),
        ("18", ("18", "17")),
        ("16", ("16", "15", "13")),
        ("11", ("11",)),
    ],
)
def test_what_a_host_takes(host_release, releases):
    assert fitting(host_release, matrix()) == releases


@pytest.mark.parametrize(("version", "takes"), [("595.71.05", False), ("550.163.01", False), ("570.211.01", True)])
def test_another_branch_is_refused_with_those_that_fit(planner, host, version, *, takes):
    plan = planned(planner, guest(host), run(version), vgpu_host="19.4")
    assert [refusal.reference for refusal in plan.refusals] == ([] if takes else ["GS-354"])
    if not takes:
        (refusal,) = plan.refusals
        assert "vGPU 19, 18, 16" in refusal.note
        assert "580.178.04 (vGPU 19.6)" in refusal.hint


def test_a_branch_without_vgpu_software_and_the_data_centre_driver_are_refused(planner, host):
    (refusal,) = planned(planner, guest(host), run("575.57.08")).refusals
    assert (refusal.reference, "575" in refusal.message) == ("GS-354", True)
    plan = planned(planner, guest(host), run("580.159.03", ""))
    assert plan.state == "refused"
    assert "vGPU" in str(plan.refusals)
    assert any("not a vGPU" in text for text in planned(planner, guest(host, vgpu=False), run("580.159.03")).warnings)


def test_the_file_brings_the_daemon_of_the_licence(host):
    wish = Settings(source=run("580.159.03"), vgpu_token="/site/a.tok")
    assert VGPU.refusals(guest(host), wish) == ()
    assert VGPU.refusals(guest(host), msgspec.structs.replace(wish, source="nvidia"))


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ({"source": run("580.159.01", "-vgpu-kvm")}, "for a vGPU host"),
        ({"vgpu_host": "R580"}, "19 or 19.4"),
        ({"vgpu_host": 580}, "19 or 19.4"),
    ],
)
def test_what_it_cannot_be(level, said):
    with pytest.raises(BadInputError) as stopped:
        read_level(level, "host")
    assert said in (stopped.value.hint or "")
