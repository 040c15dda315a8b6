"""A cloud's guest driver as the source: which file is taken, and what is said where none can be."""

from collections.abc import Callable

import msgspec
import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import files_of
from gpusetup.model.facts import HostFacts
from gpusetup.model.request import Requirement
from gpusetup.plan.settings import read_level
from tests.unit.plan.test_guest import guest, planned

Make = Callable[..., HostFacts]

GOOGLE = "https://storage.googleapis.com/nvidia-drivers-us-public/GRID"


def driver(specifier):
    return (Requirement(component="driver", specifier=specifier),)


@pytest.mark.parametrize(
    ("cloud", "wishes", "file"),
    [
        ("google", {}, f"{GOOGLE}/vGPU19.6/NVIDIA-Linux-x86_64-580.178.04-grid.run"),
        ("google", {"vgpu_host": "18.4"}, f"{GOOGLE}/vGPU18.4/NVIDIA-Linux-x86_64-570.172.08-grid.run"),
        ("google", {"requirements": driver("==535.*")}, f"{GOOGLE}/vGPU16.11/NVIDIA-Linux-x86_64-535.261.03-grid.run"),
        ("azure", {}, "NVIDIA-Linux-x86_64-570.211.01-grid-azure.run"),
        ("azure", {"vgpu_host": "20.0"}, "NVIDIA-Linux-x86_64-595.91.07-grid-azure.run"),
        ("azure", {"requirements": driver("==595.58.03")}, "NVIDIA-Linux-x86_64-595.58.03-grid-azure.run"),
        ("aws", {}, "grid-20.2/NVIDIA-Linux-x86_64-595.91.07-grid-aws.run"),
    ],
)
def test_the_newest_that_was_asked_for_and_that_the_host_takes(planner, host, cloud, wishes, file):
    plan = planned(planner, guest(host), cloud, **wishes)
    assert not plan.refusals, plan.refusals
    assert str(plan.variables.gpu_driver_runfile).endswith(file)
    assert plan.state == "change"
    assert any(file.rpartition("/")[2] in action.what for action in plan.actions)


def test_a_published_digest_is_asked_for_unless_the_site_names_one(planner, host):
    plan = planned(planner, guest(host), "azure", vgpu_host="20.2")
    assert str(plan.variables.gpu_driver_runfile_sha256).startswith("72056e38")
    mine = planned(planner, guest(host), "azure", vgpu_host="20.2", source_sha256="ab" * 32)
    assert mine.variables.gpu_driver_runfile_sha256 == "ab" * 32


@pytest.mark.parametrize(
    ("cloud", "wishes", "words"),
    [
        ("google", {"requirements": driver("==999.*")}, "580.178.04 (vGPU 19.6)"),
        ("azure", {"requirements": driver("==535.*"), "vgpu_host": "20.0"}, "595.58.03 (vGPU 20.0)"),
        ("alibaba", {}, "grid_driver_install"),
    ],
)
def test_no_file_is_refused_with_those_that_are_known(planner, host, cloud, wishes, words):
    plan = planned(planner, guest(host), cloud, **wishes)
    (refusal,) = plan.refusals
    assert refusal.reference == "GS-356"
    assert words in refusal.note


@pytest.mark.parametrize("cloud", ["google", "alibaba"])
def test_a_guest_driver_that_works_stays(planner, host, cloud):
    facts = host("ubuntu24.04-h200-keep")
    facts = msgspec.structs.replace(facts, gpus=tuple(msgspec.structs.replace(gpu, vgpu=True) for gpu in facts.gpus))
    plan = planned(planner, facts, cloud)
    assert not plan.refusals, plan.refusals
    assert not isinstance(plan.variables.gpu_driver_runfile, str)


def test_every_address_is_a_file_that_a_source_may_be():
    for cloud in matrix().vgpu.clouds:
        for file in files_of(cloud, matrix()):
            read_level({"gpusetup_source": file.url}, "host", prefix="gpusetup_")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("ibm", "a cloud (azure, google, aws, alibaba)"),
        ("https://site.example/driver.run", "its path on the host, or its address"),
        ("https://site.example/NVIDIA-Linux-x86_64-580.105.06-vgpu-kvm.run", "a vGPU host"),
        ("/root/nvidia-linux-grid-580_580.178.04_amd64.deb", "guest driver's .run file"),
    ],
)
def test_what_is_no_source_says_what_would_be(source, hint):
    with pytest.raises(BadInputError) as caught:
        read_level({"gpusetup_source": source}, "host", prefix="gpusetup_")
    assert hint in caught.value.hint
