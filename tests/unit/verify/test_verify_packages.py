"""Packages above the frameworks: which test each has, how they are run, and what is made of what they say."""

import ast
import copy
import json
import shutil
import subprocess
import sys
import textwrap

import pytest

from gpusetup.content import host_code
from gpusetup.model.applied import Applied
from gpusetup.model.request import PACKAGES
from gpusetup.model.stack import PackageChoice, Stack
from gpusetup.verify.baseline import compare, record
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.registry import judge
from tests.unit.verify.verify_documents import ASKED, FILES, FIXTURES, captured, results

TABLE = host_code("gpu_measure.package_table")
RAN = (
    "accelerate", "bitsandbytes", "deepspeed", "flashinfer-python", "numba-cuda", "onnxruntime-gpu", "peft", "torchao",
    "torchaudio", "torchvision", "transformers", "triton", "xgboost",
)  # fmt: skip


def _of(document, package):
    return document["sections"]["packages"][package]


def _stack(**packages):
    return Wanted(Applied(stack=Stack(**{name: PackageChoice(version=version) for name, version in packages.items()})))


def test_every_package_has_a_test_or_a_reason_why_not():
    tried = {smoke.package for smoke in TABLE.SMOKES}
    assert tried | set(TABLE.SAME) | set(TABLE.OTHERS) == set(PACKAGES)
    assert not tried & (set(TABLE.SAME) | set(TABLE.OTHERS))
    assert set(TABLE.SAME.values()) <= tried


@pytest.mark.parametrize("smoke", TABLE.SMOKES, ids=lambda smoke: smoke.package)
def test_the_test_of_a_package_is_there(smoke):
    tree = ast.parse((FILES / f"{smoke.script}.py").read_text(encoding="utf-8"))
    assert smoke.function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_what_computed_right_on_an_h100_passes_and_its_rates_are_told():
    found = results(captured("h100-x1-packages"), ASKED)
    assert {name: found[f"package.{name}"].verdict for name in RAN} == dict.fromkeys(RAN, "pass")
    rate = found["rate.onnxruntime-gpu"]
    assert (rate.verdict, rate.unit) == ("skip", "runs/s")
    assert rate.items[0].measured > 1000
    assert found["package.vllm"].verdict == "fail"  # only its record was there
    assert "No module named 'vllm'" in found["package.vllm"].text


def test_what_was_broken_on_an_h100_fails_with_what_why_and_what_to_do():
    asked = _stack(ctranslate2="", onnxruntime_gpu="", vllm="", xformers="")
    found = results(captured("h100-x1-packages-broken"), asked)
    assert {name for name, result in found.items() if result.verdict == "fail"} == {
        "package.ctranslate2",  # whose release the test of that day did not know
        "package.onnxruntime-gpu",  # the library of its CUDA provider was taken away
        "package.vllm",
        "package.xformers",  # built for torch 2.10 with CUDA 12.8, beside torch 2.11 with CUDA 13.0
    }
    hidden, other = found["package.onnxruntime-gpu"].text, found["package.xformers"].text
    assert "it runs on the CPU, without an error" in hidden
    assert "libonnxruntime_providers_cuda.so: cannot open" in hidden
    assert "xFormers was built for: PyTorch 2.10.0+cu128" in other
    assert other.endswith("install the release that names this torch")


def test_an_engine_that_chose_other_tokens_than_the_best_fails():
    document = captured("h100-x1-packages")
    answer = json.loads((FIXTURES / "packages/vllm-h100.json").read_text(encoding="utf-8"))
    document["sections"]["packages"]["vllm"] = answer
    assert "32 tokens is off by 0.33" in results(document)["package.vllm"].text
    answer["gpus"][0]["operations"][0]["error"] = 0.01
    found = results(document)
    assert found["package.vllm"].verdict == "pass"
    assert found["rate.vllm"].unit == "tokens/s"
    assert found["rate.vllm"].items[0].measured == 2065.19


def test_a_library_that_the_environment_lacks_is_named_with_what_brings_it():
    document = captured("h100-x1-packages")
    said = json.loads((FIXTURES / "packages/ctranslate2-h100.json").read_text(encoding="utf-8"))
    document["sections"]["packages"]["ctranslate2"] = said
    found = results(document, ASKED)["package.ctranslate2"]
    assert found.verdict == "fail"
    assert "Library libcublas.so.12 is not found" in found.text
    assert "install the wheel that brings it" in found.text


def test_a_step_that_was_built_at_first_use_passes():
    document = captured("h100-x1-packages")
    said = json.loads((FIXTURES / "packages/deepspeed-h100.json").read_text(encoding="utf-8"))
    document["sections"]["packages"]["deepspeed"] = said
    found = results(document)
    assert found["package.deepspeed"].verdict == "pass"
    assert found["rate.deepspeed"].items[0].measured == 40182.91


def test_a_package_that_is_neither_there_nor_wanted_is_not_listed():
    document = captured("h200-x1-full")
    assert not [name for name in results(document) if name.startswith(("package.", "rate."))]
    found = results(document, _stack(vllm="0.33.0"))
    assert found["package.vllm"].verdict == "fail"
    assert "is not installed in this Python; `gpusetup apply`" in found["package.vllm"].text
    assert "package.sglang" not in found


def test_a_right_result_that_the_processor_computed_fails():
    document = captured("h100-x1-packages")
    _of(document, "torchvision")["gpus"][0]["operations"][1]["ran_on"] = "cpu"
    found = results(document, ASKED)["package.torchvision"]
    assert (found.verdict, found.text) == ("fail", "GPU 0: roi_align ran on cpu, not on the GPU, without an error")
    document = captured("h100-x1-packages")
    del _of(document, "torchvision")["loaded"]["libcuda"]
    assert "the driver's library was never opened" in results(document, ASKED)["package.torchvision"].text


@pytest.mark.parametrize(("error", "verdict"), [(0.029, "pass"), (0.031, "fail"), (None, "fail")])
def test_a_result_is_as_right_as_rounding_lets_it_be(error, verdict):
    document = captured("h100-x1-packages")
    operation = _of(document, "torchao")["gpus"][0]["operations"][0]
    assert operation["limit"] == 0.03
    operation["error"] = error
    assert results(document, ASKED)["package.torchao"].verdict == verdict


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("Library libcublas.so.12 is not found or cannot be loaded", "lacks libcublas.so.12"),
        ("/x/_C.so: undefined symbol: _ZN3c104cuda", "built for another torch"),
        ("CUDA error: no kernel image is available for execution on the device", "no code for this GPU"),
        ("Failed to find C compiler. Please specify via CC environment variable", "install gcc"),
        ("CUDA_HOME environment variable is not set", "install the CUDA toolkit"),
        ("Ninja is required to load C++ extensions", "install ninja"),
        ("module 'numpy' has no attribute 'row_stack'", "older than this NumPy"),
    ],
)
def test_a_known_text_comes_with_what_mends_it(message, advice):
    document = captured("h100-x1-packages")
    gpu = _of(document, "peft")["gpus"][0]
    gpu.update(operations=[], error=f"RuntimeError: {message}", kind="failed")
    found = results(document, ASKED)["package.peft"]
    assert found.verdict == "fail"
    assert message in found.text
    assert advice in found.text


def test_a_release_that_the_test_does_not_know_is_no_failure():
    document = captured("h100-x1-packages")
    gpu = _of(document, "peft")["gpus"][0]
    gpu.update(
        operations=[], error="AttributeError: module 'peft' has no attribute 'get_peft_model'", kind="unknown-release"
    )
    assert results(document)["package.peft"].verdict == "warn"


def test_what_nobody_asked_for_only_warns():
    document = captured("h100-x1-packages-broken")
    found = results(document, _stack(onnxruntime_gpu="1.27.0"))
    assert found["package.onnxruntime-gpu"].verdict == "fail"
    assert found["package.xformers"].verdict == "warn"
    assert found["package.xformers"].text.endswith("(not installed by gpusetup: a warning for its owner)")
    assert (found["package.onnxruntime-gpu"].blame, found["package.xformers"].blame) == ("stack", "environment")


def test_a_host_without_a_record_is_not_failed_by_what_lies_in_an_environment():
    found = results(captured("h100-x1-packages-broken"))
    assert not [name for name, result in found.items() if result.verdict == "fail"]
    assert found["package.ctranslate2"].blame == found["package.xformers"].blame == "environment"


def test_another_version_than_the_locks_fails():
    found = results(captured("h100-x1-packages"), _stack(peft="0.20.0"))["package.peft"]
    assert (found.verdict, found.measured, found.expected) == ("fail", "0.21.0", "0.20.0")


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "pass"), (0.7, "warn"), (0.4, "fail")])
def test_a_rate_is_compared_with_the_hosts_first_good_run(share, verdict):
    document = captured("h100-x1-packages")
    own = record(judge(Machine(document)), 1, "2026-11-23")
    slower = copy.deepcopy(document)
    operation = _of(slower, "triton")["gpus"][0]["operations"][0]
    operation["rate"] = [rate * share for rate in operation["rate"]]
    found = {result.id: result for result in compare(judge(Machine(slower)), own)}
    assert found["rate.triton"].verdict == verdict
    assert found["rate.peft"].verdict == "pass"


DRIVER = "int cuInit(unsigned f) { return 0; } int cuDeviceGetCount(int *n) { *n = 1; return 0; }"


def _smoke(tmp_path, module, *, driver):
    """Run a package's test in a process of its own, with a stand-in for the package and for the driver's library."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "llama_cpp.py").write_text(textwrap.dedent(module), encoding="utf-8")
    (site / "kernels.py").write_text("OURS = False", encoding="utf-8")
    if driver:
        (tmp_path / "cuda.c").write_text(DRIVER, encoding="ascii")
        argv = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
        subprocess.run(argv, check=True)
    ran = subprocess.run(
        [sys.executable, str(FILES / "package_smoke.py"), "llama-cpp-python"],
        env={"PYTHONPATH": str(site), "LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    return json.loads(ran.stdout.splitlines()[-1])


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the stand-in for the driver")


@needs_cc
def test_a_build_for_the_processor_is_said_to_run_there(tmp_path):
    answer = _smoke(tmp_path, "print('a banner')\ndef llama_supports_gpu_offload(): return False\n", driver=True)
    operation = answer["gpus"][0]["operations"][0]
    assert (operation["ran_on"], operation["error"]) == ("cpu", 1.0)
    assert "libcuda" in answer["loaded"]


@needs_cc
def test_an_unlisted_release_is_reported_and_not_failed(tmp_path):
    answer = _smoke(tmp_path, "version = 2\n", driver=True)
    assert answer["gpus"][0]["kind"] == "unknown-release"


@needs_cc
def test_a_name_that_the_package_itself_does_not_find_is_its_failure(tmp_path):
    words = "import math\ndef llama_supports_gpu_offload(): return math.no_such_thing\n"
    answer = _smoke(tmp_path, words, driver=True)
    assert (answer["gpus"][0]["kind"], answer["gpus"][0]["operations"]) == ("failed", [])


@needs_cc
def test_a_package_finds_its_own_modules_before_ours_of_the_same_name(tmp_path):
    assert (FILES / "kernels.py").exists()
    words = "import kernels\nassert not kernels.OURS\ndef llama_supports_gpu_offload(): return False\n"
    assert _smoke(tmp_path, words, driver=True)["gpus"][0]["operations"]


def test_a_package_that_cannot_be_imported_and_a_machine_without_a_driver_are_answers(tmp_path):
    broken = _smoke(tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')", driver=False)
    assert broken["error"] == "import"
    shutil.rmtree(tmp_path / "site")
    alone = _smoke(tmp_path, "", driver=False)
    assert (alone["devices"], "libcuda.so.1" in alone["why_not"]) == (0, True)


def _environment(tmp_path, names, script):
    """Make a folder with these packages' records, and an interpreter that is a script."""
    packages = tmp_path / "env/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    for name in names:
        (packages / f"{name.replace('-', '_')}-1.0.dist-info").mkdir()
    python = tmp_path / "env/bin/python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return str(python)


class _Member:
    def __init__(self, index, *, busy=False, part=None):
        self.gpu, self.key, self.busy, self.part = {"index": index}, str(index), busy, part


ANSWER = (
    'echo "$2 $3 $CUDA_VISIBLE_DEVICES" >> "$0.log"; '
    'echo "{\\"devices\\": 1, \\"gpus\\": [{\\"index\\": 0, \\"operations\\": []}]}"'
)


def _log(python):
    with open(f"{python}.log", encoding="utf-8") as log:
        return log.read().splitlines()


def test_installed_packages_and_wanted_ones_are_tried_and_engines_come_last(probe, tmp_path):
    python = _environment(tmp_path, ["vllm", "torchvision", "tensorrt-cu13", "numpy"], ANSWER)
    request = {"level": "smoke", "components": ["peft", "torch"]}
    found = probe.packages.Packages(python, request, str(tmp_path), [_Member(3)])
    assert [smoke.package for smoke in found.smokes] == ["torchvision", "peft", "tensorrt", "vllm"]
    found.start()
    answers = found.finish()
    assert {name: answer["gpus"][0]["index"] for name, answer in answers.items()} == dict.fromkeys(answers, "3")
    assert _log(python)[-1] == "vllm smoke 3"
    assert sorted(_log(python)[:3]) == ["peft smoke 3", "tensorrt smoke 3", "torchvision smoke 3"]


def test_an_engine_has_each_gpu_in_a_process_and_leaves_a_busy_one_alone(probe, tmp_path):
    python = _environment(tmp_path, ["vllm"], ANSWER)
    members = [_Member(0), _Member(1, busy=True), _Member(2)]
    found = probe.packages.Packages(python, {"level": "full"}, str(tmp_path), members)
    found.start()
    answer = found.finish()["vllm"]
    assert [gpu["index"] for gpu in answer["gpus"]] == ["0", "2"]
    assert sorted(_log(python)) == ["vllm full 0", "vllm full 2"]
    busy = probe.packages.Packages(python, {}, str(tmp_path), [_Member(0, busy=True)])
    busy.start()
    assert busy.finish() == {"vllm": {"skipped": "another job uses every GPU"}}


def test_a_process_that_hangs_is_killed_and_the_others_are_heard(probe, monkeypatch, tmp_path):
    script = f'[ "$2" = peft ] && exec sleep 60; {ANSWER}'
    python = _environment(tmp_path, ["peft", "torchvision"], script)
    monkeypatch.setattr(probe.packages, "WHOLE", 2.0)
    found = probe.packages.Packages(python, {}, str(tmp_path), [_Member(0)])
    found.start()
    answers = found.finish()
    assert answers["peft"]["error"] == "timeout"
    assert answers["torchvision"]["devices"] == 1


def test_a_process_finds_what_an_activated_environment_has_and_writes_into_our_folder(probe, tmp_path):
    found = probe.packages.surroundings("/env/bin/python", str(tmp_path), "", {"HOME": "/home/ada"})
    assert found["PATH"].split(":")[0] == "/env/bin"
    assert found["HOME"].startswith(str(tmp_path))
    assert found["PYTHONUSERBASE"] == "/home/ada/.local"
    assert all(str(tmp_path) in found[name] for name in found if "CACHE" in name or name.startswith("TORCH_"))


@pytest.mark.parametrize(
    ("processors", "memory", "together"),
    [
        (2, [81559], 4),
        (12, [81559], 6),
        (16, [81559], 8),
        (128, [81559, 81559], 8),
        (16, [81559, 8188], 4),
        (16, [12288], 6),
        (16, [None], 4),  # a slice of a GPU, or one of which the driver says nothing
        (16, [], 4),
    ],
)
def test_more_run_at_a_time_where_there_is_room(probe, processors, memory, together):
    assert probe.packages.together(processors, memory) == together
