"""Files that NVIDIA publishes as the source: what their names say, and what is planned from a `.run` installer."""

import pytest

from gpusetup.components.parsing import file_source
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.facts_machine import NvSwitch
from gpusetup.plan.settings import read_level
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import DRIVER, answer, drafted

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
    assert (found.kind, said in {(found.version, found.arch), found.directory}) == (kind, True), found


@pytest.mark.parametrize("path", ["/srv/bundle", "nvidia", "https://mirror/x.run", "/a/setup.run"])
def test_other_sources_are_no_files(path):
    assert file_source(path) is None


def test_a_file_under_another_name_is_refused_with_the_right_ones():
    with refused(BadInputError, hint="NVIDIA-Linux-"):
        read_level({"gpusetup_source": "/root/driver.run"}, "host", prefix="gpusetup_")
    with pytest.raises(BadInputError, match="gpusetup_source_sha256"):
        read_level({"gpusetup_source_sha256": "abc"}, "host", prefix="gpusetup_")


@pytest.fixture
def plan(planner, host):
    """Plan a host without a driver, or these facts, from a `.run` file."""

    def make(facts=None, *, installed=(), host_parts=(), **wishes):
        parts = {"driver": None, "dkms": (), "packages": {"installed": dict(installed)}, **dict(host_parts)}
        wish = changed(DRIVER, **{"source": RUN, **wishes})
        return drafted(planner, facts or host("debian12-t4-open", **parts), wish, OFFERED).plan

    return make


def ids(plan):
    assert plan.refusals == ()
    return [action.id for action in plan.actions]


def test_the_driver_comes_from_the_file_and_packages_bring_what_builds_it(plan):
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


def test_a_packaged_driver_is_refused_until_it_is_to_be_replaced(plan, host):
    facts = host("ubuntu22.04-a100-mismatch")
    assert [refusal.reference for refusal in plan(facts).refusals] == ["GS-325"]
    made = plan(facts, replace=True)
    assert (made.refusals, bool(made.removals)) == ((), True), "its packages go in the transaction before"


def test_one_of_another_run_file_is_its_installers_to_replace(plan, host):
    found = ids(plan(host("ubuntu22.04-t4-runfile")))
    assert ("remove-runfile" in found, "install-runfile" in found) == (False, True)


def test_what_a_file_cannot_bring(plan):
    assert [refusal.reference for refusal in plan(module="prebuilt").refusals] == ["GS-350"]
    with pytest.raises(PreflightError, match="Fabric Manager"):
        plan(host_parts={"nvswitch": NvSwitch(kind="nvlink5")})
    assert plan(source="/root/NVIDIA-Linux-aarch64-580.142.run").state == "refused"


def test_a_host_that_has_all_that_builds_modules_gets_the_driver_all_the_same(plan, host):
    headers = f"linux-headers-{host('debian12-t4-open').kernel.next}"
    made = plan(installed={"dkms": "3.0.10", "linux-headers-amd64": "6.1.170-1", headers: "1"})
    assert (made.refusals, made.variables.gpu_driver_runfile) == ((), RUN)


def test_a_version_that_the_matrix_does_not_list_is_judged_by_its_branch(plan, host):
    """On a host with a working driver too, where no repository is asked first."""
    for facts in (None, host("ubuntu22.04-t4-runfile")):
        made = plan(facts, source="/root/NVIDIA-Linux-x86_64-580.159.04.run")
        assert (made.refusals, made.variables.gpu_driver_version) == ((), "580.159.04")
