"""Statements of others about the stack: those that are known to be true hold in our data, those known to be false do not."""

import pytest

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.rules import code_for
from gpusetup.versions import nv
from tests.crosscheck.facts import check_set


def _runs_on(matrix: Matrix, *capabilities: str, cpu: str = "x86_64") -> set[str]:
    """The torch builds that carry code for all of these GPUs."""
    return {
        f"{build.version}+{build.variant}"
        for build in matrix.torch.builds
        if build.code and all(code_for(build.code.get(cpu), cc) for cc in capabilities)
    }


def _newest(builds: set[str]) -> str:
    return max(builds, key=lambda build: (nv(build.partition("+")[0]), build))


def _conflict(matrix, *wishes, **machine):
    with pytest.raises(NoStackError) as raised:
        resolve(Request(requirements=wishes, **machine), matrix)
    return raised.value.document["conflict"]


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        *((one, f"tutorials name {one}, but NVIDIA never published it") for one in ("535.154.02", "560.61.02")),
        ("566.03", "565.57.01"),  # a Windows number is named as one
    ],
)
def test_drivers_of_tutorials_that_nobody_published(matrix, driver, said):
    assert (driver in matrix.driver.never_released) == ("tutorials" in said)
    assert said in _conflict(matrix, Requirement(component="driver", specifier=f"=={driver}"))[0]["text"]


def test_driver_too_old_found_version_11040(matrix):
    """torch 2.2.1 was never built for CUDA 11.6; its default build fails on R470, its CUDA 11.8 build runs there."""
    assert {build.variant for build in matrix.torch.builds if build.version == "2.2.1"} == {"cu118", "cu121"}
    assert check_set({"torch": "2.2.1+cu121"}, matrix, driver="470.86")
    assert check_set({"torch": "2.2.1+cu118"}, matrix, driver="470.86") == []


@pytest.mark.parametrize(
    ("gpu", "served_by"),
    [("6.1", "6.0"), ("8.9", "8.6"), ("12.1", "12.0"), ("7.5", "7.0"), ("8.6", "8.0"), ("8.7", "8.0")],
)
def test_code_of_the_same_major_serves_newer_minors(matrix, gpu, served_by):
    assert _runs_on(matrix, served_by) <= _runs_on(matrix, gpu)


def test_the_last_torch_for_old_gpus(matrix):
    for capability in ("5.0", "5.2", "6.0", "6.1", "7.0"):
        assert _newest(_runs_on(matrix, capability)) == "2.14.1+cu126"
    assert _newest(_runs_on(matrix, "3.7")) == "2.7.1+cu118"
    assert _runs_on(matrix, "3.0") == set()


def test_blackwell_needs_torch_2_7_and_cuda_12_8(matrix):
    builds = _runs_on(matrix, "10.0") & _runs_on(matrix, "12.0")
    assert min(builds, key=lambda build: nv(build.partition("+")[0])).startswith("2.7.0+cu128")
    assert all(nv(build.partition("+cu")[2][:2]) >= nv("12") for build in builds)
    assert not any(build.endswith(("+cu121", "+cu124", "+cu126")) for build in builds)


def test_no_wheel_covers_old_gpus_and_blackwell(matrix):
    """Pascal and Blackwell: none. Volta and Blackwell: CUDA 12.8 and 12.9 of 2.8 to 2.10, and 12.9 beyond the list."""
    assert _runs_on(matrix, "6.1", "12.0") == set()
    both = _runs_on(matrix, "7.0", "12.0")
    assert {build.partition("+")[2] for build in both} == {"cu128", "cu129"}
    assert {nv(build.partition("+")[0]).minor for build in both} == {(2, 8), (2, 9), (2, 10)}


def test_pre_turing_and_blackwell_in_one_host_is_impossible(matrix):
    assert "module-flavour" in {item["rule"] for item in _conflict(matrix, gpus=("gtx 1080 ti", "rtx 5090"))}


def test_a_plain_torch_from_2_11_on_needs_r580(matrix):
    for release in matrix.torch.releases:
        default = next(build for build in matrix.torch.builds if build.version == release.version and build.default)
        fits_r570 = not check_set({"torch": f"{release.version}+{default.variant}"}, matrix, driver="570.211.01")
        assert fits_r570 == (nv(release.version) < nv("2.11"))


def test_aarch64_on_pypi_is_cuda_from_2_11_on_and_never_turing(matrix):
    for release in matrix.torch.releases:
        assert bool(release.aarch64_default) == (nv(release.version) >= nv("2.11"))
    assert _runs_on(matrix, "7.5", cpu="aarch64") == set()
    assert _runs_on(matrix, "9.0", cpu="aarch64")


def test_tensorflow_has_no_cuda_13_build(matrix):
    assert {nv(release.cuda).major for release in matrix.tensorflow.releases} == {11, 12}
    assert check_set({"tensorflow": "2.21.0", "torch": "2.11.0+cu130"}, matrix)


def test_nccl_rebuilds_for_blackwell(matrix):
    for version in ("2.25.1", "2.26.2"):
        release = next(item for item in matrix.nccl.releases if item.version == version)
        wheels = {build.version: build for build in release.builds if build.kind == "wheel"}
        assert "12.0" not in wheels[version].targets
        assert "12.0" in wheels[f"{version}.post1"].targets


def test_cudnn_supports_blackwell_from_the_first_wheels_that_pytorch_ships_for_it(matrix):
    """The wheels of 9.7.0 and 9.8.0 were measured: code for 10.0 and 12.0, which 9.6.0 lacks."""
    for version in ("9.7.0.66", "9.7.1.26", "9.8.0.87", "9.9.0.52", "9.10.1.4"):
        assert check_set({"cudnn": version}, matrix, gpus=("b200", "rtx 5090")) == []
    assert check_set({"cudnn": "9.6.0.74"}, matrix, gpus=("rtx 5090",))


def test_a_driver_compiles_ptx_up_to_its_own_cuda(matrix):
    """Measured: R580 (CUDA 13.0) takes PTX up to 9.0, and refuses 9.1 and later."""
    ptx = {row.minor: row.ptx for row in matrix.cuda.toolchains}
    assert ptx["13.0"] == "9.0"
    assert [ptx[minor] for minor in ("12.8", "13.1", "13.2", "13.3", "13.4")] == ["8.7", "9.1", "9.2", "9.3", "9.4"]


def test_a_jetson_board_takes_no_driver_from_the_branches(matrix):
    """JetPack brings it; one that is already there is judged like any other."""
    rules = [item["rule"] for item in _conflict(matrix, gpus=("Jetson AGX Orin",), arch="aarch64")]
    assert rules == ["jetson-driver-elsewhere"]
    torch = (Requirement(component="torch"),)
    assert resolve(Request(requirements=torch, gpus=("Jetson AGX Orin",), driver="595.71.05"), matrix).stack
