"""Every kernel gets its own headers, and a package by which the next kernel gets them too; SLES and openSUSE Leap by zypper."""

import pytest

from gpusetup.components.base import Offers
from gpusetup.components.driver import modules
from gpusetup.components.driver.sources import context_of
from gpusetup.components.judge import versions
from gpusetup.matrix.load import matrix
from gpusetup.model.plan import Offer
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import described_host
from tests.stored import stored_rows
from tests.unit.plan.conftest import answer, asked, debian12_archive, host, planner


def _context(system, release, *, arch="x86_64", installed=(), offers=None):
    name, _, version = system.partition(" ")
    facts = host(
        "debian12-t4-open", os={"id": name, "version_id": version}, arch=arch, kernel={"next": release, "running": release},
        packages={"installed": dict.fromkeys(installed, "1")},
    )  # fmt: skip
    known = None if offers is None else {name: (Offer(version=version),) for name, version in offers.items()}
    return context_of(matrix().repos, facts, Settings(), Offers(known))


def _headers(context):
    return [str(package) for package in modules.headers(context)]


@pytest.mark.parametrize(("system", "release", "image"), stored_rows("headers-of-an-image.json"))
def test_the_metapackage_of_the_image_names_that_of_the_headers(system, release, image):
    """Whoever gets new images by it gets their headers by its sister, whatever the line is called."""
    installed = (f"linux-image-{release}", f"linux-image-{image}", "linux-image-other")
    offered = {f"linux-headers-{image}": "99.0", f"linux-headers-{release}": "1"}
    context = _context(system, release, installed=installed, offers=offered)
    assert _headers(context) == [f"linux-headers-{release}", f"linux-headers-{image}"]
    assert f"linux-headers-{image}" in modules.header_patterns(context)
    assert modules.flavour_of(context) == image


@pytest.mark.parametrize(("system", "arch", "release", "wanted"), stored_rows("rpm-headers.json"))
def test_rpm_kernels_have_headers_of_their_kind(system, arch, release, wanted):
    context = _context(system, release, arch=arch)
    assert _headers(context)[0] == wanted
    assert modules.unknown_kernel_note(context) == ()


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


@pytest.mark.parametrize(("driver", "names", "goes"), stored_rows("headers-that-go.json"))
def test_the_generation_of_a_branch_comes_and_the_others_go(driver, names, goes):
    settings = asked(f"driver=={driver}")
    facts = host(
        "rocky9-a100-open", driver=None, secure_boot=False, kernel={"running": KERNEL, "next": KERNEL},
        os={"id": "opensuse-leap", "version_id": "15.6", "name": "SUSE", "family": "suse"},
        packages={"manager": "zypper", "installed": {}, "sources": ()},
    )  # fmt: skip
    draft = planner.first(facts, settings)
    assert (draft.stage, draft.ask.gpu_package_manager) == ("offers", "zypper"), draft.plan.refusals
    plan = planner.second(facts, settings, OFFERED).plan
    assert not plan.refusals, plan.refusals
    variables = plan.variables
    assert [str(package) for package in variables.gpu_driver_packages] == names.split()
    for name in goes.split():
        assert versions.matches(name, variables.gpu_packages_remove), name
    for package in variables.gpu_driver_packages:
        assert not versions.matches(package.name, variables.gpu_packages_remove), package


def test_headers_that_are_there_do_not_spare_the_metapackage():
    """The running kernel's headers are there: without the metapackage the next kernel would have none."""
    facts = host("debian12-t4-open", driver=None, packages={"installed": {}})
    plan = planner.second(facts, Settings(source="distro"), debian12_archive).plan
    assert plan.variables.gpu_packages_prerequisites[0].name == "linux-headers-amd64"


def test_a_host_of_which_only_the_name_is_known_has_zypper():
    assert described_host(Request(os="opensuse-leap15")).packages.manager == "zypper"
