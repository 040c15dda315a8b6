"""Does an installed version fit a wanted one: apt's, rpm's and vendors' spellings, patterns, epochs."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions

from tests.stored import stored_rows


@pytest.mark.parametrize(("version", "wanted", "fits"), stored_rows("versions-that-fit.json"))
def test_a_version_fits_or_not(version, wanted, fits):
    assert versions.fits(version, wanted) is fits


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


def test_pins_are_read_from_a_requirements_file():
    lines = [
        "--index-url https://x", "CuPy_cuda12x==13.4.0 \\", "    --hash=sha256:1", "torch[extra] == 2.6.0+cu124",
        "tomli==2 ; python_version<'3.11'", "nvidia-nvjitlink<13.1", "# x",
    ]  # fmt: skip
    assert versions.pins(lines) == {"cupy-cuda12x": "13.4.0", "torch": "2.6.0+cu124"}
