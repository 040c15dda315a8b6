"""SLES and openSUSE Leap: NVIDIA's names for them, their kernels' headers, zypper as the package manager."""

import pytest

from gpusetup.components.fabric import held
from gpusetup.components.judge import versions
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.plan.requests import described_host
from tests.unit.plan.conftest import answer, asked

KERNEL = "6.4.0-150600.23.47-default"
OFFERED = answer(
    [],
    *(
        (name, f"{version}-1")
        for name in ("nvidia-open-driver-G06", "nvidia-driver-G06", "nvidia-compute-utils-G06", "nvidia-persistenced")
        for version in ("580.178.04", "580.159.04")
    ),
    *((name, "595.91.07-1") for name in ("nvidia-open-driver-G07", "nvidia-compute-utils-G07")),
    ("nvidia-open-driver-G06-kmp-default", "570.211.01_k6.4.0_150600.21-1"),
    ("nvidia-compute-utils-G06", "570.211.01-1"),
    ("kernel-default-devel", "6.4.0-150600.23.60.1"),
    ("kernel-default-devel", "6.4.0-150600.23.47.2"),
)


def suse(host, *, system="opensuse-leap", version="15.6", kernel=KERNEL):
    return host(
        "rocky9-a100-open", driver=None, secure_boot=False, kernel={"running": kernel, "next": kernel},
        os={"id": system, "version_id": version, "name": "SUSE", "family": "suse"},
        packages={"manager": "zypper", "installed": {}, "sources": ()},
    )  # fmt: skip


def planned(planner, facts, driver):
    settings = asked(f"driver=={driver}")
    draft = planner.first(facts, settings)
    assert (draft.stage, draft.ask.gpu_package_manager) == ("offers", "zypper"), draft.plan.refusals
    plan = planner.second(facts, settings, OFFERED).plan
    assert not plan.refusals, plan.refusals
    return plan.variables


@pytest.mark.parametrize(
    ("system", "version", "directory"),
    [("opensuse-leap", "15.6", "opensuse15"), ("sles", "15.6", "sles15"), ("sles", "16.0", "suse16")],
)
def test_where_the_packages_come_from(planner, host, system, version, directory):
    variables = planned(planner, suse(host, system=system, version=version), "580.178.04")
    assert variables.gpu_package_manager == "zypper"
    (source,) = variables.gpu_repo_sources
    assert source.kind == "zypper"
    assert source.uris[0].endswith(f"/repos/{directory}/x86_64")


@pytest.mark.parametrize(
    ("driver", "names", "goes"),
    [
        (
            "580.178.04",
            ["nvidia-open-driver-G06=580.178.04-1", "nvidia-compute-utils-G06=580.178.04-1", "nvidia-persistenced=580.178.04-1"],
            ["nvidia-open-driver-G07", "nvidia-driver-G06", "nvidia-open-driver-G06-kmp-default"],
        ),
        (
            "595.91.07",
            ["nvidia-open-driver-G07=595.91.07-1", "nvidia-compute-utils-G07=595.91.07-1"],
            ["nvidia-open-driver-G06", "nvidia-compute-utils-G06", "nvidia-open-driver-G07-signed-cuda-kmp-default"],
        ),
        (
            "570.211.01",
            ["nvidia-open-driver-G06-kmp-default=570.211.01_k6.4.0_150600.21-1", "nvidia-compute-utils-G06=570.211.01-1"],
            ["nvidia-open-driver-G06", "nvidia-driver-G06-kmp-default", "nvidia-gfxG05-kmp-default"],
        ),
    ],
)  # fmt: skip
def test_the_generation_of_a_branch_comes_and_the_others_go(planner, host, driver, names, goes):
    variables = planned(planner, suse(host), driver)
    assert [str(package) for package in variables.gpu_driver_packages] == names
    for name in goes:
        assert versions.matches(name, variables.gpu_packages_remove), name
    for package in variables.gpu_driver_packages:
        assert not versions.matches(package.name, variables.gpu_packages_remove), package


@pytest.mark.parametrize(
    ("kernel", "package"),
    [
        (KERNEL, "kernel-default-devel=6.4.0-150600.23.47.*"),
        ("6.4.0-150600.8.34-azure", "kernel-azure-devel=6.4.0-150600.8.34.*"),
        ("6.12.0-160000.5-64kb", "kernel-64kb-devel=6.12.0-160000.5.*"),
    ],
)
def test_every_kernel_flavour_gets_its_own_headers(planner, host, kernel, package):
    variables = planned(planner, suse(host, kernel=kernel), "580.178.04")
    assert [str(item) for item in variables.gpu_packages_prerequisites] == [package]


OURS = "nvidia-open-driver-G06 nvidia-compute-utils-G07 nvidia-common-G06 libnvidia-ml nvidia-persistenced"
OTHERS = "nvidia-container-toolkit libnvidia-container1 nvidia-driver-assistant libnvidia-containers kernel-default"


@pytest.mark.parametrize(("names", "ours"), [(OURS, True), (OTHERS, False)])
def test_what_is_held_is_the_drivers_own(names, ours):
    patterns = held(matrix().repos, "nvidia", "suse")
    assert [name for name in names.split() if versions.matches(name, patterns) is not ours] == []


def test_a_host_of_which_only_the_name_is_known_has_zypper():
    facts = described_host(Request(os="opensuse-leap15"))
    assert (facts.os.label, facts.os.family, facts.packages.manager) == ("opensuse-leap15", "suse", "zypper")
