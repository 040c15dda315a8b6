"""What a framework brings below itself: libraries and compilers that must know the GPU too."""

from itertools import pairwise
from typing import Any, cast

import pytest
from packaging.specifiers import SpecifierSet

from gpusetup.components.python.requirements import python_requirements
from gpusetup.model.request import Request
from gpusetup.resolve import rules
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import domain
from gpusetup.resolve.hardware import limits_of
from gpusetup.resolve.requests import parse_requirements

CAPABILITIES = ("3.7", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("framework", ["tensorflow", "jax", "onnxruntime-gpu"])
def test_no_requirement_of_a_framework_lets_pip_take_a_cudnn_that_has_dropped_the_gpu(shipped, framework, cc):
    """Every release on every architecture: where a cuDNN of its range supports the GPU, the newest allowed one does."""
    gpu = "sm_" + cc.replace(".", "")
    space = build(shipped, Request(requirements=parse_requirements([framework]), gpus=(gpu,), gpu_count=1))
    for value in cast("list[Any]", space.values[framework]):
        pins = getattr(value.release, "pins", getattr(value.release, "requires", {}))
        major = next((int(name[-2:]) for name in pins if name.startswith("nvidia-cudnn-cu")), 0)
        pin = pins.get(f"nvidia-cudnn-cu{major}")
        if pin is None or pin[:1].isdigit():
            continue
        limits = [line.removeprefix(f"nvidia-cudnn-cu{major}") for line in limits_of(space, value)]
        allowed = SpecifierSet(",".join([pin.rpartition("]")[2], *limits]))
        rows: dict[str, list[Any]] = {}
        for item in cast("list[Any]", domain("cudnn", shipped, space.request)):
            if major in item.cuda_majors and item.row.cuda[0].partition(".")[0] == str(major):
                rows.setdefault(item.version, []).append(item.row)
        covers = {name: any(rules.cudnn_row_covers(shipped, row, cc) for row in rows[name]) for name in rows}
        serving = {version for version in rows if covers[version]}
        in_range = {version for version in rows if SpecifierSet(pin.rpartition("]")[2]).contains(version)}
        taken = rules.newest(version for version in rows if allowed.contains(version))
        if in_range & serving:
            assert taken in serving, (value.version, gpu, taken, limits)
        else:
            assert not limits


def test_the_printed_line_keeps_cudnn_where_the_gpu_still_works(ask, shipped):
    stack = ask("jax", gpu=["v100"]).stack
    assert stack.jax.limits == ("nvidia-cudnn-cu12<9.11",)
    assert "nvidia-cudnn-cu12<9.11" in python_requirements(stack, shipped)
    assert ask("jax", gpu=["h100"]).stack.jax.limits == ()


def test_the_lowest_gpu_of_a_host_decides(ask):
    assert ask("tensorflow", gpu=["a100", "v100"]).stack.tensorflow.limits == ("nvidia-cudnn-cu12<9.11",)


def test_triton_has_a_floor_of_its_own(ask, refused):
    assert "package-gpu-floor" in refused("triton", gpu=["p100"])["rules"]
    assert ask("triton", gpu=["v100"]).stack.triton.version
    warnings = ask("torch", gpu=["k80"]).warnings
    assert any("Triton and torch.compile need compute capability 7.0" in text for text in warnings)
    assert not any("torch.compile and CuPy work" in text for text in warnings)
    assert not any("torch.compile need" in text for text in ask("torch", gpu=["v100"]).warnings)


@pytest.mark.parametrize("cc", CAPABILITIES)
def test_a_toolkit_is_offered_exactly_where_its_compiler_knows_the_gpu(shipped, cc):
    gpu = "sm_" + cc.replace(".", "")
    space = build(shipped, Request(requirements=parse_requirements(["cuda"]), gpus=(gpu,), gpu_count=1))
    masks = [item.allowed for item in space.constraints if item.rule == "toolkit-targets-gpu"]
    measured = {chain.minor: chain.targets for chain in shipped.cuda.toolchains if chain.targets}
    for index, value in enumerate(cast("list[Any]", space.values["cuda"])):
        if value.release.minor in measured:
            offered = all(mask >> index & 1 for mask in masks)
            assert offered == (cc in measured[value.release.minor]), value.version


def test_an_unmeasured_toolkit_knows_no_gpu_that_a_newer_one_does_not(shipped):
    chains = [chain.minor for chain in shipped.cuda.toolchains if chain.minor.startswith("11.")]
    for older, newer in pairwise(chains):
        for cc in CAPABILITIES:
            assert not rules.compiles_for(shipped, older, cc) or rules.compiles_for(shipped, newer, cc)


def test_arm_says_which_torch_would_be_native(ask):
    resolution = ask("torch", "driver==580.*", gpu=["gb200"])
    assert resolution.stack.torch.relation == "minor-version"
    assert any("is native to R580; the last torch that has one" in reason.text for reason in resolution.reasons)
