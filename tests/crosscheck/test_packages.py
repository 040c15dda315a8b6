"""Packages above the frameworks: what their metadata and the index's own resolver say, asked as questions."""

import json

import msgspec
import pytest

from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix, canonical, load_file, package_files
from gpusetup.model.request import PACKAGES, Request
from gpusetup.model.stack import Stack
from gpusetup.resolve.api import resolve
from gpusetup.resolve.packages import specifiers_meet
from gpusetup.resolve.requests import parse_requirements


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


def _ask(matrix: Matrix, *words: str, **machine) -> Stack:
    return resolve(Request(requirements=parse_requirements(list(words)), **machine), matrix).stack


def _refused(matrix: Matrix, *words: str, **machine) -> dict:
    with pytest.raises(NoStackError) as raised:
        _ask(matrix, *words, **machine)
    return raised.value.to_document()


FITS = [
    (("vllm==0.33.0",), {}, {"vllm": "0.33.0", "torch": "2.14.0"}),
    (("vllm==0.27.0",), {}, {"torch": "2.13.0"}),
    (("vllm==0.20.0",), {}, {"torch": "2.11.0"}),
    (("vllm==0.19.1",), {}, {"torch": "2.10.0"}),
    (("vllm==0.8.*",), {"gpus": ("h100",)}, {"vllm": "0.8.5.post1", "torch": "2.6.0"}),
    (("vllm",), {"driver": "535.154.05"}, {"vllm": "0.19.1"}),
    (("vllm",), {"driver": "550.144.03"}, {"vllm": "0.19.1"}),
    (("sglang==0.5.23",), {}, {"torch": "2.14.1"}),
    (("sglang==0.5.11",), {}, {"torch": "2.11.0"}),
    (("sglang",), {"driver": "550.144.03"}, {"sglang": "0.5.10.post1", "torch": "2.9.1"}),
    (("xformers",), {"gpus": ("h100",)}, {"xformers": "0.0.35", "torch": "2.10.0"}),
    (("xformers==0.0.33.post2",), {}, {"torch": "2.9.1"}),
    (("xformers==0.0.32.post2",), {}, {"torch": "2.8.0"}),
    (("onnxruntime-gpu",), {"driver": "535.154.05"}, {"onnxruntime-gpu": "1.26.0"}),
    (("torchao", "torch==2.10.*"), {}, {"torchao": "0.16.0"}),
    (("torchvision==0.21.0",), {}, {"torch": "2.6.0"}),
    (("whisperx",), {}, {"torch": "2.8.0"}),
    (("torch-tensorrt==2.14.0",), {}, {"torch": "2.14.1"}),
    (("flash-attn",), {"allow_builds": True}, {"flash-attn": "2.8.3.post2"}),
    (("vllm==0.19.1",), {"gpus": ("v100",)}, {"torch": "2.10.0"}),
    (("unsloth",), {"gpus": ("gh200",)}, {"torch": "2.14.1"}),
    (("torchaudio",), {}, {"torchaudio": "2.11.0", "torch": "2.11.0"}),
    (("torchaudio", "torch==2.14.*"), {}, {"torchaudio": "2.11.0", "torch": "2.14.1"}),
    (("torchaudio", "torch==2.9.*"), {}, {"torchaudio": "2.9.1", "torch": "2.9.1"}),
    (("vllm==0.33.0", "torchaudio"), {}, {"torchaudio": "2.11.0", "torch": "2.14.0"}),
    (("lightning", "torch==2.14.*"), {}, {"torch": "2.14.1"}),
    (("pytorch-lightning==2.5.*",), {"gpus": ("v100",)}, {"torch": "2.14.0"}),
]

REFUSED = [
    (("vllm", "sglang"), {}, "package-pins-agree"),
    (("vllm==0.33.0", "sglang==0.5.23"), {}, "package-requires"),
    (("vllm==0.33.0", "cudf-cu13==26.10.*"), {}, "numba"),
    (("sglang==0.5.23", "cudf-cu13==26.10.*"), {}, "numba"),
    (("torch==2.14.*", "xformers"), {}, "package-cuda-major"),
    (("vllm==0.33.0",), {"driver": "535.154.05"}, "package-cuda-needs-driver"),
    (("vllm==0.33.0",), {"gpus": ("v100",)}, "7.5"),
    (("flash-attn",), {}, "package-built-from-source"),
    (("tensorrt-llm",), {}, "package-built-from-source"),
    (("sglang==0.5.23", "python==3.14"), {}, "python"),
    (("cudf-cu13==0.0.0a0",), {}, "does not know cudf-cu13==0.0.0a0"),
    (("vllm==0.8.9",), {}, "0.8.5.post1"),
    (("sglang==0.5.23",), {"os": "rocky8"}, "glibc"),
    (("nvidia-dali-cuda130",), {"gpus": ("v100",)}, "7.5"),
    (("xformers",), {"gpus": ("gh200",)}, "xformers has wheels for aarch64 in no release"),
    (("cudf-cu12",), {"driver": "525.147.05"}, "https://docs.rapids.ai/platform-support"),
    (("vllm==0.33.0",), {"driver": "535.154.05"}, "https://pypi.org/project/vllm/"),
]


@pytest.mark.parametrize(("words", "machine", "expected"), FITS, ids=str)
def test_it_fits(matrix: Matrix, words: tuple, machine: dict, expected: dict) -> None:
    stack = _ask(matrix, *words, **machine)
    assert {name: stack.part(name).version for name in expected} == expected


@pytest.mark.parametrize(("words", "machine", "said"), REFUSED, ids=str)
def test_it_is_refused_with_the_reason(matrix: Matrix, words: tuple, machine: dict, said: str) -> None:
    assert said in json.dumps(_refused(matrix, *words, **machine)["conflict"])


def test_two_environments_are_the_way_out(matrix: Matrix) -> None:
    hints = _refused(matrix, "vllm", "sglang")["suggestions"]
    assert any("two environments" in hint for hint in hints)


def test_a_named_build_of_torch_may_stand_beside(matrix: Matrix) -> None:
    assert _ask(matrix, "torch==2.14.1+cu126", "xformers").torch.variant == "cu126"


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("torch-tensorrt==2.9.0",), {}),
        (("tensorrt-llm==1.2.1",), {"allow_builds": True}),
        (("xformers==0.0.33",), {}),
    ],
)
def test_what_the_index_s_torch_cannot_be_linked_with_gets_the_build_that_can(
    matrix: Matrix, words: tuple, about: dict
) -> None:
    torch = _ask(matrix, *words, **about).torch
    assert (torch.version.rpartition(".")[0], torch.variant) == ("2.9", "cu130")


def test_the_compilers_that_a_package_was_seen_to_bring_are_kept_within_the_driver(matrix: Matrix) -> None:
    lines = python_requirements(_ask(matrix, "vllm==0.33.0", "driver==580.*"), matrix)
    assert {"nvidia-cuda-nvcc<13.1", "nvidia-cuda-crt<13.1", "nvidia-nvvm<13.1", "cuda-bindings<13.1"} <= set(lines)


def test_a_hint_repeats_what_was_asked(matrix: Matrix) -> None:
    hints = _refused(matrix, "torch==2.8.*", "flash-attn", gpus=("rtx 4090",), os="ubuntu24.04")["suggestions"]
    asked = "gpusetup resolve flash-attn 'torch==2.8.*' --gpu 'rtx 4090' --os ubuntu24.04 --allow-builds"
    assert any(hint.startswith(asked) for hint in hints)


def test_lines_to_install(matrix: Matrix) -> None:
    lines = python_requirements(_ask(matrix, "vllm==0.19.1"), matrix)
    assert {"torch==2.10.0", "vllm==0.19.1"} <= set(lines)
    assert "nvidia-cublas-cu12" in python_requirements(_ask(matrix, "faster-whisper"), matrix)


def test_a_stack_is_read_as_it_is_written(matrix: Matrix) -> None:
    stack = _ask(matrix, "flash-attn", allow_builds=True)
    document = msgspec.to_builtins(stack)
    assert document["flash-attn"]["version"] == stack.flash_attn.version
    assert msgspec.convert(document, Stack) == stack


def test_every_file_is_a_component_and_printed_alike(matrix: Matrix) -> None:
    names = {name.partition("/")[2] for name in package_files()}
    assert names | {"torchvision", "torchaudio"} == set(PACKAGES)
    for name in package_files():
        path = matrix.path(name)
        with open(path, "rb") as file:
            assert canonical(load_file(name, path)) == file.read()


def test_specifiers_meet() -> None:
    assert specifiers_meet("==0.65.0", "<0.66,>=0.60")
    assert not specifiers_meet("==0.65.0", "<0.65.0,>=0.60.0")
    assert not specifiers_meet("==0.2.8", "==0.2.7")
    assert not specifiers_meet(">=2", "<2")
    assert specifiers_meet(">1", "<2")
