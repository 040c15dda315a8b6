"""Does an installed version fit a wanted one: apt's, rpm's and vendors' spellings, patterns, epochs."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions
from hypothesis import given
from hypothesis import strategies as some

from tests.stored import stored_rows

VERSION = some.from_regex(r"([0-9]:)?[0-9]{1,3}(\.[0-9]{1,3}){0,2}(-[0-9]([a-z~+.][0-9]){0,2})?", fullmatch=True)


@pytest.mark.parametrize(("version", "wanted", "fits"), stored_rows("versions-that-fit.json"))
def test_a_version_fits_or_not(version, wanted, fits):
    assert versions.fits(version, wanted) is fits


@given(VERSION)
def test_a_version_fits_itself_and_every_shortening_of_itself(version):
    assert versions.fits(version, version)
    plain = version.partition(":")[2] or version
    for cut in range(len(plain) + 1):
        assert versions.fits(version, plain[:cut] + "*")
        assert versions.fits(version, plain[:cut] + "*" + plain[cut:])


@given(VERSION, VERSION)
def test_without_a_star_only_the_same_version_fits(version, wanted):
    if versions.fits(version, wanted):
        assert wanted.rpartition(":")[2] == version.rpartition(":")[2]


TWICE = {"kernel-devel-5.14.0-1.el9": "0:5.14.0-1.el9", "kernel-devel-5.14.0-2.el9": "0:5.14.0-2.el9", "a": "1"}


@pytest.mark.parametrize(
    ("name", "wanted", "version", "satisfied"),
    [
        ("kernel-devel", "5.14.0-1.el9", "0:5.14.0-1.el9", True),
        ("kernel-devel", "5.14.0-9.el9", "0:5.14.0-2.el9", False),
        ("kernel", "", None, False),
        ("a", "", "1", True),
        ("b", "", None, False),
    ],
)
def test_of_a_package_that_is_there_twice_the_wanted_version_is_told(name, wanted, version, satisfied):
    assert versions.version_of(TWICE, name, *filter(None, [wanted])) == version
    assert versions.satisfied(TWICE, name, *filter(None, [wanted])) is satisfied


@pytest.mark.parametrize(
    ("installed", "there"),
    [
        ({"kernel-devel": "0:1-1"}, ["kernel-devel"]),
        ({"kernel-devel-1-1": "1-1", "kernel-devel-2-1": "2-1"}, ["kernel-devel-1-1", "kernel-devel-2-1"]),
        ({"kernel-devel-matched": "1-1"}, []),
    ],
)
def test_what_is_on_record_is_found_beside_versions_that_followed_it(installed, there):
    assert versions.places(installed, "kernel-devel", "0:1-1") == there
    for name, version in installed.items():
        assert versions.recorded_as({"kernel-devel": "0:1-1"}, name, version) == ("kernel-devel" if there else None)


def test_one_of_several_on_record_is_found_when_it_is_the_only_one_left():
    assert versions.places({"kernel-devel": "0:2-1"}, "kernel-devel-2-1", "2-1") == ["kernel-devel"]
    assert versions.places({"kernel-devel": "0:1-1"}, "kernel-devel-2-1", "2-1") == []
    assert versions.recorded_as({"kernel-devel-2-1": "2-1"}, "kernel-devel", "0:2-1") == "kernel-devel-2-1"


def test_a_foreign_architecture_is_named_behind_a_colon():
    assert [versions.matches(name, ["libcuda*"]) for name in ("libcuda1:i386", "xorg")] == [True, False]


def test_pins_are_read_from_a_requirements_file():
    lines = [
        "--index-url https://x", "CuPy_cuda12x==13.4.0 \\", "    --hash=sha256:1", "torch[extra] == 2.6.0+cu124",
        "tomli==2 ; python_version<'3.11'", "nvidia-nvjitlink<13.1", "# x",
    ]  # fmt: skip
    assert versions.pins(lines) == {"cupy-cuda12x": "13.4.0", "torch": "2.6.0+cu124"}
