"""What is on record against what is there: packages that somebody took away, versions in every spelling, and the rest."""

from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift, versions

from tests.stored import stored_rows
from tests.unit.judge.conftest import VERSION

RECORD: dict[str, Any] = {
    "packages": {"nvidia-driver": "535.1-1", "cuda-toolkit": "13.0-1"},
    "brought": {"nvidia-driver": "535.1-1", "nvidia-smi": "0:535.1-1", "dkms": "3.0", "cuda-toolkit": "13.0-1"},
    "holds": ["nvidia-driver", "nvidia-smi"],
}
INSTALLED = {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1", "dkms": "3.0", "cuda-toolkit": "13.0-1"}
WISHES = {"nvidia-driver": "535.1-*", "cuda-toolkit": ""}


@pytest.mark.parametrize(
    ("gone", "record", "wishes", "asked"),
    [
        ((), RECORD, WISHES, {}),
        (("nvidia-smi", "dkms"), RECORD, WISHES, {"nvidia-smi": "535.1-1"}),
        (("nvidia-driver",), RECORD, WISHES, {}),  # the wish says it already
        (("nvidia-smi",), {}, WISHES, {}),
        (("nvidia-smi",), RECORD, {**WISHES, "libcudnn9": ""}, {"nvidia-smi": "535.1-1"}),  # beside something new
        (("nvidia-smi",), RECORD, {**WISHES, "nvidia-driver": "580.1-1"}, {}),  # where the driver moves
    ],
)
def test_what_came_with_the_driver_and_was_taken_away_is_asked_for_again(gone, record, wishes, asked):
    installed = {name: version for name, version in INSTALLED.items() if name not in gone}
    assert drift.missing(installed, record, wishes) == asked


@pytest.mark.parametrize(("kept", "gone"), [([], ["a-1", "a-2:i386"]), (["a-1"], ["a-2:i386"]), (["a-2"], ["a-1"])])
def test_what_must_go_fits_a_pattern_and_nobody_asks_for_it(kept, gone):
    assert drift.unwanted({"a-1": "1", "a-2:i386": "1", "b": "1"}, ["a-*"], kept) == gone


STRAY = {"/usr/local/lib/libcuda.so.570.1": "570.1", "/usr/lib/libcuda.so.580.95.05": "580.95.05"}
DRIVER: dict[str, Any] = {
    "expect": {"driver_version": "580.95.05", "driver_module": "open"},
    "packages": {"nvidia-driver": "580.95.05-1"},
    "lock": {"wanted": {"packages": {"manager": "apt", "remove": ["libnvidia-compute-570*"]}}},
}


@pytest.mark.parametrize(
    ("installed", "mend", "now"),
    [
        ({"nvidia-driver": "580.95.05-1"}, "hand", "/usr/local/lib/libcuda.so.570.1"),
        ({"nvidia-driver": "570.1-1"}, "apply", "570.1"),
        ({"nvidia-driver": "580.95.05-1", "libnvidia-compute-570-server": "570.1-1"}, "apply", "570.1"),
    ],
)
def test_a_stray_library_is_told_with_what_helps(facts, installed, mend, now):
    """An apply changes packages; a file that none of them brought is there afterwards as before."""
    facts["driver"].update(libraries={"libcuda.so.1": ["570.1", "580.95.05"]}, library_files=STRAY)
    facts["packages"] = {"installed": installed, "held": [], "problems": []}
    found = next(item for item in drift.differences(facts, DRIVER) if item.id == "library")
    assert (found.mend, found.now) == (mend, now)
    assert ("ldconfig" in found.hint) is (mend == "hand")


def test_another_default_among_several_toolkits_is_a_difference(facts):
    roots = [{"version": version, "path": f"/usr/local/cuda-{version}"} for version in ("12.8", "13.0")]
    record = {"lock": {"wanted": {"packages": {"cuda_roots": roots, "cuda_default": "12.8"}}}}
    facts["cuda"] = {"default": "/usr/local/cuda-12.8"}
    assert drift.differences(facts, record) == []
    facts["cuda"] = {"default": "/usr/local/cuda-13.0"}
    (found,) = drift.differences(facts, record)
    assert (found.id, found.was, found.now) == ("cuda-default", "/usr/local/cuda-12.8", "/usr/local/cuda-13.0")
    del roots[1]
    assert drift.differences(facts, record) == []


def test_a_description_of_another_driver_is_a_difference(facts):
    record = {"services": {"nvidia-cdi-refresh.service": {"was_enabled": True}}}
    facts["containers"] = {"cdi_drivers": [VERSION]}
    assert drift.differences(facts, record) == []
    facts["containers"] = {"cdi_drivers": ["535.54.03"]}
    (found,) = drift.differences(facts, record)
    assert (found.id, found.was, found.now) == ("cdi", f"driver {VERSION}", "driver 535.54.03")
    assert drift.differences(facts, {}) == []


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
