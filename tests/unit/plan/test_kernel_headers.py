"""Every kernel gets its own headers, and a package by which the next kernel gets them too; SLES and openSUSE Leap by zypper."""

import pytest

from gpusetup.components.base import Offers
from gpusetup.components.driver import modules
from gpusetup.components.driver.sources import context_of
from gpusetup.components.judge import versions
from gpusetup.matrix.load import matrix
from gpusetup.model.plan import Offer
from gpusetup.model.settings import Settings
from tests.lab.repository import catalog
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


@pytest.mark.parametrize("offered", ["5.14.0-427.13.1.el9_4", "5.14.0-503.11.1.el9_5"])
def test_on_el_the_matched_package_comes_in_this_kernels_version_or_not_at_all(offered):
    release, version = "5.14.0-427.13.1.el9_4.aarch64+64k", "5.14.0-427.13.1.el9_4"
    context = _context("rhel 9.4", release, arch="aarch64", offers={"kernel-64k-devel-matched": offered})
    assert _headers(context)[1:] == [f"kernel-64k-devel-matched={version}"] * (offered == version)


@pytest.mark.parametrize(
    ("system", "release"), [("amzn 2023", "6.99.1-1.amzn2023.x86_64"), ("ol 9.5", "6.12.0-1.el9uek.aarch64+64k")]
)
def test_a_kernel_that_no_source_names_is_said_not_guessed(system, release):
    context = _context(system, release)
    assert (_headers(context), release in modules.unknown_kernel_note(context)[0]) == ([], True)


def test_headers_that_are_there_do_not_spare_the_metapackage():
    """The running kernel's headers are there: without the metapackage the next kernel would have none."""
    facts = host("debian12-t4-open", driver=None, packages={"installed": {}})
    assert facts.kernel.target.headers
    plan = planner.second(facts, Settings(source="distro"), debian12_archive).plan
    assert plan.variables.gpu_packages_prerequisites[0].name == "linux-headers-amd64"


def test_the_prebuilt_modules_of_the_next_kernel_come_by_this_hosts_line():
    """Beside an HWE kernel the metapackage `generic` would pull the older line's kernel in."""
    release, follower = "6.11.0-26-generic", "linux-modules-nvidia-580-server-open-generic"
    facts = host(
        "ubuntu24.04-rtx4090-open", driver=None, kernel={"next": release, "running": release, "installed": ()},
        packages={"installed": {f"linux-image-{release}": "1", "linux-image-generic-hwe-24.04": "1"}},
    )  # fmt: skip
    both = ((follower, "6.8.0-50.51"), (f"{follower}-hwe-24.04", "6.11.0-26.26+1"))
    plan = planner.second(facts, Settings(source="distro"), answer(catalog.ubuntu_archive(release), *both)).plan
    names = [package.name for package in plan.variables.gpu_driver_packages]
    assert (f"{follower}-hwe-24.04" in names, follower in names) == (True, False)


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


def suse(*, system="opensuse-leap", version="15.6", kernel=KERNEL):
    return host(
        "rocky9-a100-open", driver=None, secure_boot=False, kernel={"running": kernel, "next": kernel},
        os={"id": system, "version_id": version, "name": "SUSE", "family": "suse"},
        packages={"manager": "zypper", "installed": {}, "sources": ()},
    )  # fmt: skip


def planned(facts, driver):
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
def test_where_the_packages_come_from(system, version, directory):
    variables = planned(suse(system=system, version=version), "580.178.04")
    assert variables.gpu_package_manager == "zypper"
    (source,) = variables.gpu_repo_sources
    assert source.kind == "zypper"
    assert source.uris[0].endswith(f"/repos/{directory}/x86_64")


@pytest.mark.parametrize(("driver", "names", "goes"), stored_rows("headers-that-go.json"))
def test_the_generation_of_a_branch_comes_and_the_others_go(driver, names, goes):
    variables = planned(suse(), driver)
    assert [str(package) for package in variables.gpu_driver_packages] == names.split()
    for name in goes.split():
        assert versions.matches(name, variables.gpu_packages_remove), name
    for package in variables.gpu_driver_packages:
        assert not versions.matches(package.name, variables.gpu_packages_remove), package
