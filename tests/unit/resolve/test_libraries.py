"""What a framework brings below itself, and several toolkits side by side on one driver."""

from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements


def test_the_printed_line_keeps_cudnn_where_the_gpu_still_works(ask, shipped):
    stack = ask("jax", gpu=["v100"]).stack
    assert stack.jax.limits == ("nvidia-cudnn-cu12<9.11",)
    assert "nvidia-cudnn-cu12<9.11" in python_requirements(stack, shipped)
    assert ask("jax", gpu=["h100"]).stack.jax.limits == ()
    assert ask("jax==0.4.25", gpu=["h100"]).stack.jax.limits == ("nvidia-cudnn-cu12>=8.9.7.29,<9",)
    assert ask("tensorflow", gpu=["a100", "v100"]).stack.tensorflow.limits == stack.jax.limits, "the lowest GPU decides"


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


def asked(*words, **more):
    more = {"gpus": ("h100",), "os": "ubuntu24.04", **more}
    return resolve(Request(requirements=parse_requirements(list(words)), **more), matrix())


def versions(resolution):
    return [resolution.stack.cuda.version, *(other.version for other in resolution.stack.cudas)]


def test_what_is_on_record_of_each_stays():
    recorded = (Requirement(component="cuda", specifier="==12.8.0", beside=("==13.0.0",)),)
    assert versions(asked("cuda==12.8.*", "cuda==13.0.*", recorded=recorded)) == ["12.8.0", "13.0.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.8.*", recorded=recorded)) == ["13.0.0", "12.8.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.9.*", recorded=recorded))[0] == "13.0.0"
