"""Packages above the frameworks: what their metadata and the index's own resolver say, asked as questions."""

import json

import msgspec
import pytest

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import canonical, load_file, package_files
from gpusetup.model.request import PACKAGES, Request
from gpusetup.model.stack import Stack
from gpusetup.resolve.api import resolve
from gpusetup.resolve.packages import specifiers_meet
from gpusetup.resolve.requests import parse_requirements
from tests.stored import stored_rows


def _ask(matrix, *words, **machine):
    return resolve(Request(requirements=parse_requirements(list(words)), **machine), matrix).stack


def _refused(matrix, *words, **machine):
    with pytest.raises(NoStackError) as raised:
        _ask(matrix, *words, **machine)
    return raised.value.to_document()


FITS = stored_rows("packages_fits.json")

REFUSED = stored_rows("packages_refused.json")


@pytest.mark.parametrize(("words", "machine", "expected"), FITS, ids=str)
def test_it_fits(matrix, words, machine, expected):
    stack = _ask(matrix, *words, **machine)
    assert {name: stack.part(name).version for name in expected} == expected


@pytest.mark.parametrize(("words", "machine", "said"), REFUSED, ids=str)
def test_it_is_refused_with_the_reason(matrix, words, machine, said):
    assert said in json.dumps(_refused(matrix, *words, **machine)["conflict"])


def test_two_environments_are_the_way_out(matrix):
    hints = _refused(matrix, "vllm", "sglang")["suggestions"]
    assert any("two environments" in hint for hint in hints)


def test_a_named_build_of_torch_may_stand_beside(matrix):
    assert _ask(matrix, "torch==2.14.1+cu126", "xformers").torch.variant == "cu126"


@pytest.mark.parametrize(
    ("words", "about"),
    [(("torch-tensorrt==2.9.0",), {}), (("tensorrt-llm==1.2.1",), {"allow_builds": True}), (("xformers==0.0.33",), {})],
)
def test_what_the_index_s_torch_cannot_be_linked_with_gets_the_build_that_can(matrix, words, about):
    torch = _ask(matrix, *words, **about).torch
    assert (torch.version.rpartition(".")[0], torch.variant) == ("2.9", "cu130")


def test_the_compilers_that_a_package_was_seen_to_bring_are_kept_within_the_driver(matrix):
    lines = python_requirements(_ask(matrix, "vllm==0.33.0", "driver==580.*"), matrix)
    assert {"nvidia-cuda-nvcc<13.1", "nvidia-cuda-crt<13.1", "nvidia-nvvm<13.1", "cuda-bindings<13.1"} <= set(lines)


def test_a_hint_repeats_what_was_asked(matrix):
    hints = _refused(matrix, "torch==2.8.*", "flash-attn", gpus=("rtx 4090",), os="ubuntu24.04")["suggestions"]
    asked = "gpusetup resolve flash-attn 'torch==2.8.*' --gpu 'rtx 4090' --os ubuntu24.04 --allow-builds"
    assert any(hint.endswith(asked) for hint in hints)


def test_lines_to_install(matrix):
    lines = python_requirements(_ask(matrix, "vllm==0.19.1"), matrix)
    assert {"torch==2.10.0", "vllm==0.19.1"} <= set(lines)
    assert "nvidia-cublas-cu12" in python_requirements(_ask(matrix, "faster-whisper"), matrix)


def test_a_stack_is_read_as_it_is_written(matrix):
    stack = _ask(matrix, "flash-attn", allow_builds=True)
    document = msgspec.to_builtins(stack)
    assert document["flash-attn"]["version"] == stack.flash_attn.version
    assert msgspec.convert(document, Stack) == stack


def test_every_file_is_a_component_and_printed_alike(matrix):
    names = {name.partition("/")[2] for name in package_files()}
    assert names | {"torchvision", "torchaudio"} == set(PACKAGES)
    for name in package_files():
        path = matrix.path(name)
        with open(path, "rb") as file:
            assert canonical(load_file(name, path)) == file.read()


def test_specifiers_meet():
    assert specifiers_meet("==0.65.0", "<0.66,>=0.60")
    assert not specifiers_meet("==0.65.0", "<0.65.0,>=0.60.0")
    assert not specifiers_meet("==0.2.8", "==0.2.7")
    assert not specifiers_meet(">=2", "<2")
    assert specifiers_meet(">1", "<2")
