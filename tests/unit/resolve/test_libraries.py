"""What a framework brings below itself, and several toolkits side by side on one driver."""

from copy import copy
from typing import Any, cast

import pytest
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve import rules
from gpusetup.resolve.api import resolve
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
        of_its_major = [line for line in limits if line.startswith(">=")]  # JAX before 0.4.26 names no upper end
        allowed = SpecifierSet(",".join([pin.rpartition("]")[2], *limits]))
        rows: dict[str, list[Any]] = {}
        for item in cast("list[Any]", domain("cudnn", shipped, space.request)):
            if major in item.cuda_majors and item.row.cuda[0].partition(".")[0] == str(major):
                rows.setdefault(item.version, []).append(item.row)
        covers = {name: any(rules.cudnn_row_covers(shipped, row, cc) for row in rows[name]) for name in rows}
        serving = {version for version in rows if covers[version]}
        whole = SpecifierSet(",".join([pin.rpartition("]")[2], *of_its_major]))
        in_range = {version for version in rows if whole.contains(version)}
        taken = rules.newest(version for version in rows if allowed.contains(version))
        if in_range & serving:
            assert taken in serving, (value.version, gpu, taken, limits)
        else:
            assert limits == of_its_major, "no limit for a GPU that none serves"


def test_the_printed_line_keeps_cudnn_where_the_gpu_still_works(ask, shipped):
    stack = ask("jax", gpu=["v100"]).stack
    assert stack.jax.limits == ("nvidia-cudnn-cu12<9.11",)
    assert "nvidia-cudnn-cu12<9.11" in python_requirements(stack, shipped)
    assert ask("jax", gpu=["h100"]).stack.jax.limits == ()
    assert ask("jax==0.4.25", gpu=["h100"]).stack.jax.limits == ("nvidia-cudnn-cu12>=8.9.7.29,<9",)
    assert ask("tensorflow", gpu=["a100", "v100"]).stack.tensorflow.limits == stack.jax.limits, "the lowest GPU decides"


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


def test_a_release_that_is_silent_after_one_that_refuses_the_gpu_is_taken_only_by_name(shipped):
    file = shipped.package("flashinfer-python")
    later = replace(file.releases[0], version="99.0", cc_min=None)
    world = copy(shipped)
    world._packages = {file.name: replace(file, releases=(later, *file.releases))}

    def ask(wish: str) -> Any:
        return resolve(Request(requirements=parse_requirements([wish]), gpus=("v100",), gpu_count=1), world)

    with pytest.raises(NoStackError) as caught:
        ask("flashinfer-python")
    assert "package-gpu-untold" in {item["rule"] for item in caught.value.to_document()["conflict"]}
    assert ask("flashinfer-python==99.0").stack.packages()["flashinfer-python"].version == "99.0"


def test_arm_says_which_torch_would_be_native(ask):
    resolution = ask("torch", "driver==580.*", gpu=["gb200"])
    assert resolution.stack.torch.relation == "minor-version"
    assert any("is native to R580; the last torch that has one" in reason.text for reason in resolution.reasons)


def asked(*words, **more):
    more = {"gpus": ("h100",), "os": "ubuntu24.04", **more}
    return resolve(Request(requirements=parse_requirements(list(words)), **more), matrix())


def versions(resolution):
    return [resolution.stack.cuda.version, *(other.version for other in resolution.stack.cudas)]


@pytest.mark.parametrize(
    "words", ["cuda>=12 cuda<13", "cuda==12.8.* cuda>=12.8", "cuda==12.8.* cuda!=12.8.0", "cuda==12.8.* cuda==12.8.1"]
)
def test_limits_of_one_toolkit_stay_one(words):
    (wish,) = parse_requirements(words.split())
    assert wish.beside == ()
    assert len(wish.specifier.split(",")) == 2


def test_what_is_on_record_of_each_stays():
    recorded = (Requirement(component="cuda", specifier="==12.8.0", beside=("==13.0.0",)),)
    assert versions(asked("cuda==12.8.*", "cuda==13.0.*", recorded=recorded)) == ["12.8.0", "13.0.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.8.*", recorded=recorded)) == ["13.0.0", "12.8.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.9.*", recorded=recorded))[0] == "13.0.0"


def test_the_reasons_speak_of_every_toolkit():
    texts = " ".join(item.text for item in asked("cuda==12.8.*", "cuda==13.0.*").reasons if item.component == "cuda")
    assert "CUDA 12.8" in texts
    assert "CUDA 13.0" in texts
