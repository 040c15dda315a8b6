"""What GPUs ask: driver windows, module flavours, code inside builds, what a framework brings, several toolkits."""

from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import NoStackError
from gpusetup.model.release import ArchCode
from gpusetup.model.request import LibraryCandidates, Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from gpusetup.resolve.rules import code_for
from tests.stored import stored_rows


@pytest.mark.parametrize(("wishes", "fields", "rule"), stored_rows("rules-that-refuse.json"))
def test_what_cannot_be_is_refused_by_its_rule(refused, wishes, fields, rule):
    assert rule in refused(*wishes, **fields)["rules"]


@pytest.mark.parametrize(("targets", "ptx", "cc", "way"), stored_rows("code-for-gpus.json"))
def test_a_cubin_runs_upwards_within_its_major_and_ptx_upwards(targets, ptx, cc, way):
    assert code_for(ArchCode(targets=tuple(targets), ptx=tuple(ptx)), cc) == way


def test_nccl_beside_one_gpu_warns_instead(ask, refused):
    offered = (LibraryCandidates(component="nccl", builds=(("2.32.3", "12"),)),)
    one = ask(gpu=["m60"], library_candidates=offered)
    assert any("NCCL 2.32.3 has no code for Tesla M60 (5.2); with one GPU" in text for text in one.warnings)
    assert "nccl-gpu-code" in refused(gpu=["m60"], gpu_count=2, library_candidates=offered)["rules"]


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


def test_what_is_on_record_of_each_stays(ask):
    recorded = (Requirement(component="cuda", specifier="==12.8.0", beside=("==13.0.0",)),)

    def versions(*words):
        stack = ask(*words, gpu=["h100"], os="ubuntu24.04", recorded=recorded).stack
        return [stack.cuda.version, *(other.version for other in stack.cudas)]

    assert versions("cuda==12.8.*", "cuda==13.0.*") == ["12.8.0", "13.0.0"]
    assert versions("cuda==13.0.*", "cuda==12.8.*") == ["13.0.0", "12.8.0"]
    assert versions("cuda==13.0.*", "cuda==12.9.*")[0] == "13.0.0"


def test_a_products_first_driver_only_warns_when_the_driver_is_named(ask):
    resolution = ask("driver==535.154.05", gpu=["h200"])
    assert resolution.stack.driver.version == "535.154.05"
    assert any("lists h200 from driver 550.90.07" in text for text in resolution.warnings)
