"""A vGPU guest's driver from a file or from a cloud: which host takes it, which file it is, and what else it may not be."""

import pytest

from gpusetup.components.vgpu import VGPU
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import files_of, fitting
from gpusetup.model.settings import Settings
from gpusetup.plan.settings import read_level
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import answer, asked, drafted

OFFERED = answer([], ("dkms", "3.0.10"), ("linux-headers-amd64", "6.1.170-1"))
GOOGLE = "https://storage.googleapis.com/nvidia-drivers-us-public/GRID"


def run(version, kind="-grid"):
    return f"/root/NVIDIA-Linux-x86_64-{version}{kind}.run"


def guest(host, name="debian12-t4-open", *, vgpu=True, **parts):
    return host(name, gpus=tuple(changed(gpu, vgpu=vgpu) for gpu in host(name).gpus), **parts)


def planned(planner, host, source, wish="driver", *, vgpu=True, **wishes):
    facts = guest(host, vgpu=vgpu, driver=None, dkms=())
    return drafted(planner, facts, asked(wish, source=source, **wishes), OFFERED).plan


def test_a_guest_driver_of_the_hosts_release_is_installed_from_its_file(planner, host):
    plan = planned(planner, host, run("580.159.03"), vgpu_host="19.6")
    assert not plan.refusals, plan.refusals
    assert (plan.variables.gpu_driver_runfile, plan.stack.driver.version) == (run("580.159.03"), "580.159.03")
    assert not any("gpusetup_vgpu_host" in text for text in plan.warnings)
    assert any("NVIDIA licenses" in text for text in plan.warnings)
    assert any("gpusetup_vgpu_host" in text for text in planned(planner, host, run("580.159.03")).warnings)


@pytest.mark.parametrize(
    ("host_release", "releases"),
    [("20", "20 19"), ("19", "19 18 16"), ("18", "18 17"), ("16", "16 15 13"), ("11", "11")],
)
def test_what_a_host_takes(host_release, releases):
    assert fitting(host_release, matrix()) == tuple(releases.split())


@pytest.mark.parametrize(("version", "takes"), [("595.71.05", False), ("550.163.01", False), ("570.211.01", True)])
def test_another_branch_is_refused_with_those_that_fit(planner, host, version, *, takes):
    plan = planned(planner, host, run(version), vgpu_host="19.4")
    assert [refusal.reference for refusal in plan.refusals] == ([] if takes else ["GS-354"])
    for refusal in plan.refusals:
        assert "vGPU 19, 18, 16" in refusal.note
        assert "580.178.04 (vGPU 19.6)" in refusal.hint


def test_a_branch_without_vgpu_software_and_the_data_centre_driver_are_refused(planner, host):
    (refusal,) = planned(planner, host, run("575.57.08")).refusals
    assert (refusal.reference, "575" in refusal.message) == ("GS-354", True)
    plan = planned(planner, host, run("580.159.03", ""))
    assert (plan.state, "vGPU" in str(plan.refusals)) == ("refused", True)
    assert any("not a vGPU" in text for text in planned(planner, host, run("580.159.03"), vgpu=False).warnings)


def test_the_file_brings_the_daemon_of_the_licence(host):
    wish = Settings(source=run("580.159.03"), vgpu_token="/site/a.tok")
    assert VGPU.refusals(guest(host, driver=None), wish) == ()
    assert VGPU.refusals(guest(host, driver=None), changed(wish, source="nvidia"))


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ({"source": run("580.159.01", "-vgpu-kvm")}, "for a vGPU host"),
        ({"source": "https://site.example/NVIDIA-Linux-x86_64-580.105.06-vgpu-kvm.run"}, "a vGPU host"),
        ({"source": "ibm"}, "a cloud (azure, google, aws, alibaba)"),
        ({"source": "https://site.example/driver.run"}, "its path on the host, or its address"),
        ({"source": "/root/nvidia-linux-grid-580_580.178.04_amd64.deb"}, "guest driver's .run file"),
        ({"vgpu_host": "R580"}, "19 or 19.4"),
        ({"vgpu_host": 580}, "19 or 19.4"),
    ],
)
def test_what_it_cannot_be_says_what_would_be(level, said):
    with refused(BadInputError, hint=said):
        read_level(level, "host")


@pytest.mark.parametrize(
    ("cloud", "wishes", "file"),
    [
        ("google", {}, f"{GOOGLE}/vGPU19.6/NVIDIA-Linux-x86_64-580.178.04-grid.run"),
        ("google", {"vgpu_host": "18.4"}, f"{GOOGLE}/vGPU18.4/NVIDIA-Linux-x86_64-570.172.08-grid.run"),
        ("google", {"wish": "driver==535.*"}, f"{GOOGLE}/vGPU16.11/NVIDIA-Linux-x86_64-535.261.03-grid.run"),
        ("azure", {}, "NVIDIA-Linux-x86_64-570.211.01-grid-azure.run"),
        ("azure", {"vgpu_host": "20.0"}, "NVIDIA-Linux-x86_64-595.91.07-grid-azure.run"),
        ("azure", {"wish": "driver==595.58.03"}, "NVIDIA-Linux-x86_64-595.58.03-grid-azure.run"),
        ("aws", {}, "grid-20.2/NVIDIA-Linux-x86_64-595.91.07-grid-aws.run"),
    ],
)
def test_of_a_cloud_comes_the_newest_that_was_asked_for_and_that_the_host_takes(planner, host, cloud, wishes, file):
    plan = planned(planner, host, cloud, **wishes)
    assert (plan.refusals, plan.state) == ((), "change")
    assert str(plan.variables.gpu_driver_runfile).endswith(file)
    assert any(file.rpartition("/")[2] in action.what for action in plan.actions)


def test_a_published_digest_is_asked_for_unless_the_site_names_one(planner, host):
    plan = planned(planner, host, "azure", vgpu_host="20.2")
    assert str(plan.variables.gpu_driver_runfile_sha256).startswith("72056e38")
    mine = planned(planner, host, "azure", vgpu_host="20.2", source_sha256="ab" * 32)
    assert mine.variables.gpu_driver_runfile_sha256 == "ab" * 32


@pytest.mark.parametrize(
    ("cloud", "wishes", "words"),
    [
        ("google", {"wish": "driver==999.*"}, "580.178.04 (vGPU 19.6)"),
        ("azure", {"wish": "driver==535.*", "vgpu_host": "20.0"}, "595.58.03 (vGPU 20.0)"),
        ("alibaba", {}, "grid_driver_install"),
    ],
)
def test_no_file_is_refused_with_those_that_are_known(planner, host, cloud, wishes, words):
    (refusal,) = planned(planner, host, cloud, **wishes).refusals
    assert (refusal.reference, words in refusal.note) == ("GS-356", True), refusal.note


@pytest.mark.parametrize("cloud", ["google", "alibaba"])
def test_a_guest_driver_that_works_stays(planner, host, cloud):
    plan = drafted(planner, guest(host, "ubuntu24.04-h200-keep"), asked("driver", source=cloud), OFFERED).plan
    assert plan.refusals == ()
    assert not isinstance(plan.variables.gpu_driver_runfile, str)


def test_every_address_is_a_file_that_a_source_may_be():
    for file in (file for cloud in matrix().vgpu.clouds for file in files_of(cloud, matrix())):
        read_level({"gpusetup_source": file.url}, "host", prefix="gpusetup_")
