"""Files that NVIDIA publishes as the source: what their names say, and what is planned from a `.run` installer."""

from collections.abc import Callable

import msgspec
import pytest

from gpusetup.components.parsing import file_source
from gpusetup.errors import BadInputError
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import NvSwitch
from gpusetup.plan.settings import read_level
from tests.unit.plan.conftest import DRIVER, answer, drafted

Make = Callable[..., HostFacts]

RUN = "/root/NVIDIA-Linux-x86_64-580.142.run"
OFFERED = answer([], ("dkms", "3.0.10"), ("linux-headers-amd64", "6.1.170-1"))


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        (RUN, "runfile", ("580.142", "x86_64")),
        ("/a/NVIDIA-Linux-aarch64-580.95.05.run", "runfile", ("580.95.05", "aarch64")),
        ("/a/NVIDIA-Linux-x86_64-535.161.08-grid.run", "runfile", ("535.161.08", "x86_64")),
        ("/a/nvidia-driver-local-repo-ubuntu2404-560.35.03_1.0-1_amd64.deb", "deb", "ubuntu2404"),
        ("/a/nvidia-driver-local-repo-rhel8-510.47.03-1.0-1.x86_64.rpm", "rpm", "rhel8"),
        ("/a/cuda-repo-debian12-12-6-local_12.6.2-560.35.03-1_amd64.deb", "deb", "debian12"),
    ],
)
def test_a_files_name_says_what_it_is(path, kind, said):
    found = file_source(path)
    assert found is not None
    assert found.kind == kind
    assert said in {(found.version, found.arch), found.directory}


@pytest.mark.parametrize("path", ["/srv/bundle", "nvidia", "https://mirror/x.run", "/a/setup.run"])
def test_other_sources_are_no_files(path):
    assert file_source(path) is None


def test_a_file_under_another_name_is_refused_with_the_right_ones():
    with pytest.raises(BadInputError) as caught:
        read_level({"gpusetup_source": "/root/driver.run"}, "host", prefix="gpusetup_")
    assert "NVIDIA-Linux-" in caught.value.hint
    with pytest.raises(BadInputError, match="gpusetup_source_sha256"):
        read_level({"gpusetup_source_sha256": "abc"}, "host", prefix="gpusetup_")


def planned(planner, facts, **wishes):
    settings = msgspec.structs.replace(DRIVER, **{"source": RUN, **wishes})
    return drafted(planner, facts, settings, OFFERED).plan


def bare(host, **more):
    facts = host("debian12-t4-open", driver=None, dkms=(), **more)
    return msgspec.structs.replace(facts, packages=msgspec.structs.replace(facts.packages, installed={}))


def test_the_driver_comes_from_the_file_and_packages_bring_what_builds_it(planner, host):
    plan = planned(planner, bare(host), source_sha256="a" * 64)
    assert not plan.refusals, plan.refusals
    variables = plan.variables
    assert variables.gpu_driver_runfile == RUN
    assert variables.gpu_driver_runfile_sha256 == "a" * 64
    assert variables.gpu_driver_packages == ()
    assert variables.gpu_repo_pins == (), "a preference of no package ends every apt command"
    assert {"dkms", "linux-headers-amd64"} <= {item.name for item in variables.gpu_packages_prerequisites}
    assert plan.stack is not None
    assert plan.stack.driver is not None
    assert (plan.stack.driver.version, plan.stack.driver.module) == ("580.142", "open")
    assert "install-runfile" in [action.id for action in plan.actions]
    assert not any("only its owner" in text for text in plan.warnings)
    assert any("only its owner" in text for text in planned(planner, bare(host)).warnings)


def test_a_packaged_driver_is_refused_until_it_is_to_be_replaced(planner, host):
    facts = host("ubuntu22.04-a100-mismatch")
    (refusal,) = planned(planner, facts).refusals
    assert refusal.reference == "GS-325"
    plan = planned(planner, facts, replace=True)
    assert not plan.refusals, plan.refusals
    assert plan.removals, "its packages go in the transaction before"


def test_one_of_another_run_file_is_its_installers_to_replace(planner, host):
    plan = planned(planner, host("ubuntu22.04-t4-runfile"))
    assert not plan.refusals, plan.refusals
    assert "remove-runfile" not in [action.id for action in plan.actions]
    assert "install-runfile" in [action.id for action in plan.actions]


def test_prebuilt_modules_and_nvswitches_it_has_not(planner, host):
    (refusal,) = planned(planner, bare(host), module="prebuilt").refusals
    assert refusal.reference == "GS-350"
    from gpusetup.errors import PreflightError

    with pytest.raises(PreflightError, match="Fabric Manager"):
        planned(planner, bare(host, nvswitch=NvSwitch(kind="nvlink5")))


def test_another_cpu_has_no_driver_in_it(planner, host):
    plan = planned(planner, bare(host), source="/root/NVIDIA-Linux-aarch64-580.142.run")
    assert plan.state == "refused"


def test_a_host_that_has_all_that_builds_modules_gets_the_driver_all_the_same(planner, host):
    facts = bare(host)
    there = {"dkms": "3.0.10", "linux-headers-amd64": "6.1.170-1", f"linux-headers-{facts.kernel.next}": "1"}
    facts = msgspec.structs.replace(facts, packages=msgspec.structs.replace(facts.packages, installed=there))
    plan = planned(planner, facts)
    assert not plan.refusals, plan.refusals
    assert plan.variables.gpu_driver_runfile == RUN


def test_a_version_that_the_matrix_does_not_list_is_judged_by_its_branch(planner, host):
    """On a host with a working driver too, where no repository is asked first."""
    for facts in (bare(host), host("ubuntu22.04-t4-runfile")):
        plan = planned(planner, facts, source="/root/NVIDIA-Linux-x86_64-580.159.04.run")
        assert not plan.refusals, plan.refusals
        assert plan.variables.gpu_driver_version == "580.159.04"
