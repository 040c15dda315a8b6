"""Drivers from a file or from a cloud, for guests with a vGPU too: which host takes which, and the guest's licence."""

import pytest

from gpusetup.components.parsing import file_source
from gpusetup.components.vgpu import VGPU
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.facts import Python, Service
from gpusetup.model.facts_machine import NvSwitch, Storage
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import as_delivered
from gpusetup.plan.settings import read_level
from gpusetup.rollout.options import _with_token
from tests.hosts.machines import changed
from tests.records import lock_of, record
from tests.refusals import refused
from tests.unit.plan.conftest import DRIVER, answer, asked, drafted, host, planner

DEB = "ubuntu2404-560.35.03_1.0-1_amd64.deb"
LOCAL = [("/a", DEB), ("/a", "rhel8-510.47.03-1.0-1.x86_64.rpm"), ("https://mirror", DEB)]
RUN = "/root/NVIDIA-Linux-x86_64-580.142.run"
OFFERED = answer([], ("dkms", "3.0.10"), ("linux-headers-amd64", "6.1.170-1"))


def test_other_sources_are_no_files_and_a_file_under_another_name_is_refused_with_the_right_ones():
    found = [file_source(f"{place}/nvidia-driver-local-repo-{name}") for place, name in LOCAL]
    assert [one and (one.kind, one.directory) for one in found] == [("deb", "ubuntu2404"), ("rpm", "rhel8"), None]
    assert {file_source(path) for path in ("/srv/bundle", "nvidia", "https://mirror/x.run", "/a/setup.run")} == {None}
    with refused(BadInputError, hint="NVIDIA-Linux-"):
        read_level({"gpusetup_source": "/root/driver.run"}, "host", prefix="gpusetup_")
    with pytest.raises(BadInputError, match="gpusetup_source_sha256"):
        read_level({"gpusetup_source_sha256": "abc"}, "host", prefix="gpusetup_")


def plan(facts=None, *, host_parts=(), **wishes):
    """Plan a host without a driver, or these facts, from a `.run` file."""
    parts = {"driver": None, "dkms": (), "packages": {"installed": {}}, **dict(host_parts)}
    wish = changed(DRIVER, **{"source": RUN, **wishes})
    return drafted(planner, facts or host("debian12-t4-open", **parts), wish, OFFERED).plan


def ids(plan):
    assert plan.refusals == ()
    return [action.id for action in plan.actions]


def test_the_driver_comes_from_the_file_and_packages_bring_what_builds_it():
    made = plan(source_sha256="a" * 64)
    variables = made.variables
    assert (variables.gpu_driver_runfile, variables.gpu_driver_runfile_sha256) == (RUN, "a" * 64)
    assert variables.gpu_driver_packages == ()
    assert variables.gpu_repo_pins == (), "a preference of no package ends every apt command"
    assert {"dkms", "linux-headers-amd64"} <= {item.name for item in variables.gpu_packages_prerequisites}
    assert (made.stack.driver.version, made.stack.driver.module) == ("580.142", "open")
    assert "install-runfile" in ids(made)
    assert not any("only its owner" in text for text in made.warnings)
    assert any("only its owner" in text for text in plan().warnings)


def test_a_packaged_driver_is_refused_until_it_is_to_be_replaced():
    facts = host("ubuntu22.04-a100-mismatch")
    assert [refusal.reference for refusal in plan(facts).refusals] == ["GS-325"]
    made = plan(facts, replace=True)
    assert (made.refusals, bool(made.removals)) == ((), True), "its packages go in the transaction before"


def test_one_of_another_run_file_is_its_installers_to_replace():
    found = ids(plan(host("ubuntu22.04-t4-runfile")))
    assert ("remove-runfile" in found, "install-runfile" in found) == (False, True)


def test_what_a_file_cannot_bring():
    assert [refusal.reference for refusal in plan(module="prebuilt").refusals] == ["GS-350"]
    with pytest.raises(PreflightError, match="Fabric Manager"):
        plan(host_parts={"nvswitch": NvSwitch(kind="nvlink5")})
    assert plan(source="/root/NVIDIA-Linux-aarch64-580.142.run").state == "refused"


GOOGLE = "https://storage.googleapis.com/nvidia-drivers-us-public/GRID"


def run(version):
    return f"/root/NVIDIA-Linux-x86_64-{version}-grid.run"


def guest(name="debian12-t4-open", *, vgpu=True, **parts):
    return host(name, gpus=tuple(changed(gpu, vgpu=vgpu) for gpu in host(name).gpus), **parts)


def planned(source, wish="driver", *, vgpu=True, **wishes):
    facts = guest(vgpu=vgpu, driver=None, dkms=())
    return drafted(planner, facts, asked(wish, source=source, **wishes), OFFERED).plan


def test_a_guest_driver_of_the_hosts_release_is_installed_from_its_file():
    plan = planned(run("580.159.03"), vgpu_host="19.6")
    assert not plan.refusals, plan.refusals
    assert (plan.variables.gpu_driver_runfile, plan.stack.driver.version) == (run("580.159.03"), "580.159.03")
    assert not any("gpusetup_vgpu_host" in text for text in plan.warnings)
    assert any("NVIDIA licenses" in text for text in plan.warnings)
    assert any("gpusetup_vgpu_host" in text for text in planned(run("580.159.03")).warnings)


@pytest.mark.parametrize("version", ["595.71.05", "550.163.01"])
def test_another_branch_is_refused_with_those_that_fit(version):
    (refusal,) = planned(run(version), vgpu_host="19.4").refusals
    assert (refusal.reference, "vGPU 19, 18, 16" in refusal.note) == ("GS-354", True)
    assert "580.178.04 (vGPU 19.6)" in refusal.hint
    assert planned(run("570.211.01"), vgpu_host="19.4").refusals == ()


def test_the_file_brings_the_daemon_of_the_licence():
    wish = Settings(source=run("580.159.03"), vgpu_token="/site/a.tok")
    assert VGPU.refusals(guest(driver=None), wish) == ()
    assert VGPU.refusals(guest(driver=None), changed(wish, source="nvidia"))


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
def test_of_a_cloud_comes_the_newest_that_was_asked_for_and_that_the_host_takes(cloud, wishes, file):
    plan = planned(cloud, **wishes)
    assert (plan.refusals, plan.state) == ((), "change")
    assert str(plan.variables.gpu_driver_runfile).endswith(file)
    assert any(file.rpartition("/")[2] in action.what for action in plan.actions)


@pytest.mark.parametrize(
    ("cloud", "wishes", "words"),
    [
        ("google", {"wish": "driver==999.*"}, "580.178.04 (vGPU 19.6)"),
        ("azure", {"wish": "driver==535.*", "vgpu_host": "20.0"}, "595.58.03 (vGPU 20.0)"),
        ("alibaba", {}, "grid_driver_install"),
    ],
)
def test_no_file_is_refused_with_those_that_are_known(cloud, wishes, words):
    (refusal,) = planned(cloud, **wishes).refusals
    assert (refusal.reference, words in refusal.note) == ("GS-356", True), refusal.note


def test_a_published_digest_is_asked_for_unless_the_site_names_one():
    for digest, wish in (("72056e38", {}), ("ab" * 32, {"source_sha256": "ab" * 32})):
        plan = planned("azure", vgpu_host="20.2", **wish)
        assert str(plan.variables.gpu_driver_runfile_sha256).startswith(digest)


@pytest.mark.parametrize("cloud", ["google", "alibaba"])
def test_a_guest_driver_that_works_stays(cloud):
    plan = drafted(planner, guest("ubuntu24.04-h200-keep"), asked("driver", source=cloud), OFFERED).plan
    assert plan.refusals == ()
    assert not isinstance(plan.variables.gpu_driver_runfile, str)


def test_a_bundle_carries_again_what_gpusetup_installed():
    venv = lock_of(PackageSet(manager="apt", python=(Package(name="python3-venv"),)))
    pythons = (
        Python(path="/usr/bin/python3", version="3.11", ensurepip=True),
        Python(path="/opt/p", version="3", ensurepip=True),
    )
    facts = as_delivered(changed(host("debian12-t4-open"), state=record({"lock": venv}), pythons=pythons))
    assert [one.ensurepip for one in facts.pythons] == [False, True]


def test_a_token_that_cannot_be_read(tmp_path):
    token = tmp_path / "a.tok"
    with refused(BadInputError, "GS-433"):
        _with_token(Settings(vgpu_token=str(token)))
    token.write_text("secret")
    settings = _with_token(Settings(vgpu_token=str(token)))
    assert (bool(settings.vgpu_token_sha256), "secret" in str(settings)) == (True, False)


def test_a_bundle_for_a_licensed_guest_is_planned_like_the_guest():
    service = Service(unit="nvidia-gridd.service", active="active", enabled="enabled")
    guest = changed(
        host("ubuntu22.04-l4vgpu-grid"), services={"gridd": service}, storage=Storage(p2pdma=False, nvidia_fs="2")
    )
    facts = as_delivered(guest)
    wish = Settings(vgpu_token="/site/a.tok", vgpu_token_sha256="aa", vgpu_feature="workstation")
    assert list(VGPU.refusals(facts, wish)) == []
    assert facts.storage == Storage(p2pdma=False), "nvidia-fs comes instead"
