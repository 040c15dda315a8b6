"""Checks are found below their level, each with a page; what the probe compiles, loads and starts for them."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpusetup.model.verdict import Finding, Grid, Item
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import NEEDS, checks, from_items
from tests.modules.stand_ins import write
from tests.unit.verify.verify_documents import ASKED, FILES, broken, captured, results


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_a_framework_that_is_missing_or_broken_is_an_answer(name, tmp_path):
    """In its own process, as on a host: an import error, an error while looking, and prints of its own before the answer."""
    (tmp_path / "numpy.py").write_text("", encoding="utf-8")
    script = FILES / f"{name}_smoke.py"
    code = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path({str(script)!r}, run_name='__main__')"

    def say(text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(finished.stdout.splitlines()[-1])

    assert say("raise ImportError('libcudart.so.12: cannot open shared object file')")["error"] == "import"
    broken = say("print('a banner')\n__version__ = '1'")
    assert (broken["error"], "AttributeError" in broken["message"], broken["loaded"]) == ("failed", True, {})


def _program(path: Path, words: str = "exit 0") -> Path:
    write(path.parent, {path.name: f"#!/bin/sh\n{words}\n"}, 0o755)
    return path


def test_a_distributions_own_toolkit_is_called_with_the_compiler_that_it_knows(probe, monkeypatch, tmp_path):
    own = _program(tmp_path / "usr/bin/nvcc", f'echo "$@" >> {tmp_path}/called; echo "no such luck" >&2; exit 1')
    there = os.access  # this machine may have a toolkit of its own
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).startswith(str(tmp_path)) and there(path, mode))
    monkeypatch.setattr(probe.frameworks, "SYSTEM_NVCC", str(own))
    monkeypatch.setattr(probe.frameworks, "SYSTEM_HOST_COMPILER", str(tmp_path / "usr/bin/cuda-g++"))
    named = {"cuda_home": str(tmp_path / "cuda-12.6")}
    assert probe.frameworks.nvcc(named) == [str(own)]
    host_compiler = str(_program(tmp_path / "usr/bin/cuda-g++"))
    assert probe.frameworks.nvcc(named) == [str(own), "-ccbin", host_compiler]

    collection = type("Collection", (), {"wait": lambda _self, _name: {"stdout": "0, GPU, Tesla T4, 7.5\n"}})()
    answer = probe.frameworks._compile_and_run(probe.frameworks.nvcc(named), str(tmp_path), collection, {})
    assert (answer["compiler"], answer["error"], answer["message"]) == (str(own), "compile", "no such luck\n")
    probe.frameworks._compile_and_run(probe.frameworks.nvcc(named), str(tmp_path), collection, {})
    first, second = (tmp_path / "called").read_text().splitlines()
    assert first.startswith(f"-ccbin {host_compiler} -O1 -gencode=arch=compute_75,code=sm_75")
    assert first != second, "toolkits side by side would overwrite each other's program"

    preferred = str(_program(tmp_path / "cuda-12.6/bin/nvcc"))
    assert probe.frameworks.nvcc(named) == [preferred]


@pytest.mark.parametrize(
    ("line", "known"), [("libc.so.6 => /lib", False), ("libcudnn.so.9 (libc6) => /usr/lib/x", True)]
)
def test_the_hosts_own_cudnn_is_one_that_the_loader_knows(probe, monkeypatch, tmp_path, line, known):
    monkeypatch.setattr(probe.frameworks, "LDCONFIG", str(_program(tmp_path / "ldconfig", f"echo '\t{line}'")))
    assert probe.frameworks._has_cudnn() is known


CUDNN = """
#include <stddef.h>
size_t cudnnGetVersion(void) { return 92800; }
int cudnnCreate(void **handle) { *handle = (void *)1; return STATUS; }
int cudnnDestroy(void *handle) { return 0; }
const char *cudnnGetErrorString(int status) { return "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"; }
"""


def test_programs_see_the_chosen_gpus_alone_and_one_that_does_not_end_is_an_answer(probe, monkeypatch, tmp_path):
    told = """echo '{"gpus": [{"index": 1}], "seen": "'$CUDA_VISIBLE_DEVICES'"}'"""
    for chosen, index, seen in (([2, 5], 5, "2,5"), ([], 1, "")):
        answer = probe.frameworks._on_the_chosen([str(_program(tmp_path / "a", told))], 5, "/tmp", {"gpus": chosen})
        assert answer == {"gpus": [{"index": index}], "seen": seen}
    monkeypatch.setitem(probe.frameworks.DEADLINES, "container", -60)
    work, over = probe.frameworks.Work(), threading.Event()
    work.add("container-podman", lambda: over.wait() and {})
    assert work.finish()["container-podman"]["error"] == "timeout"
    over.set()


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the stand-in for cuDNN")
@pytest.mark.parametrize(("status", "error"), [(0, None), (1002, "open")])
def test_a_cudnn_is_loaded_and_opened(tmp_path, status, error):
    source, library = tmp_path / "cudnn.c", tmp_path / "libcudnn.so.9"
    source.write_text(CUDNN.replace("STATUS;", f"{status};"), encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    argv, env = [sys.executable, str(FILES / "cudnn_smoke.py")], {"LD_LIBRARY_PATH": str(tmp_path)}
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert (answer["version"], answer["status"], answer.get("error")) == (92800, status, error)
    assert answer["loaded"]["libcudnn"] == [str(library)]
    assert (answer.get("message") or "").endswith("MISMATCH") == bool(status)


def test_the_highest_ptx_version_is_the_first_that_loads_and_another_error_ends_the_search(probe):
    highest, asked = probe.ptx_sweep.highest_ptx, []
    found = highest(lambda version: 0 if float(version) <= 9.0 else 222)
    assert found == {"highest": "9.0", "refused_with": [222]}
    assert highest(lambda _version: 218)["highest"] is None
    answer = highest(lambda version: asked.append(version) or 700)
    assert (answer["status"], len(asked)) == (700, 1)


def test_every_toolkit_that_stands_beside_the_default_is_tried(probe):
    (default, *others) = (f"/usr/local/cuda-{release}" for release in ("12.8", "13.0", "12.6"))
    roots = [{"version": path[-4:], "path": path} for path in (default, *others)]
    lock = {"wanted": {"packages": {"cuda_roots": roots}}}
    found = probe.frameworks._others([f"{default}/bin/nvcc"], {"state": {"lock": lock}})
    assert found == [(path[-4:], [f"{path}/bin/nvcc"]) for path in others]
    assert probe.frameworks._others(None, {"state": {"lock": None}}) == []


RAN = {"gpus": [{"index": 0, "error": None, "wrong": 0}, {"index": 1, "error": None, "wrong": 0}], "compile_seconds": 2.1, "runtime_cuda": 12080}  # fmt: skip


@pytest.mark.parametrize(("other", "verdict", "says"), [
    (dict(RAN, runtime_cuda=13000), "pass", "CUDA 12.8, compiled in 2.1 s, correct on every GPU; beside it CUDA 13.0"),
    ({"error": "compile", "message": "x.cu(1): error: no such luck"}, "fail", "CUDA 13.0: nvcc could not compile"),
    ({"error": "cannot-start", "message": "no such file"}, "fail", "CUDA 13.0: the program did not run"),
])  # fmt: skip
def test_one_toolkit_of_several_that_fails_is_named(other, verdict, says):
    document = captured("h100-x2-full")
    document["sections"] |= {"nvcc": RAN, "nvcc-13.0": other}
    found = results(document, ASKED)["nvcc.program"]
    assert found.verdict == verdict
    assert says in " ".join([found.text, *(f"{item.subject}: {item.text}" for item in found.items)])


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.id)
def test_a_check_without_its_observations_never_passes(check):
    """Emptied documents: whatever a check needs is gone, so it may say anything but pass."""
    bare = captured("h200-x4-full")
    bare |= {"sections": {}, "quick": {}, "facts": {"gpus": bare["facts"]["gpus"]}, "gpus": [], "level": "stress"}
    assert check.run(Machine(bare)).verdict != "pass"


def test_a_crashing_check_fails_alone():
    found = results(broken("h200-x1-full", {"sections/matrix/0/formats/fp32": {"tflops": []}}))
    assert (found["matrix.fp32"].verdict, found["matrix.fp16"].verdict) == ("warn", "pass")
    assert "could not be evaluated" in found["matrix.fp32"].text
    assert found["matrix.fp32"].blame == "gpusetup"


def test_a_conclusion_has_its_diagrams_and_nothing_to_look_at_is_a_skip():
    grid = Grid(title="t", unit="", rows=("a",), columns=("a",), values=((1.0,),))
    assert from_items([Item("GPU 0", "pass")], "well", figures=(grid,)).figures == (grid,)
    assert from_items([], "well") == Finding("skip", "nothing to check")


def test_every_page_says_what_to_do():
    assert [check.id for check in checks() if "To do:" not in check.page] == []
    assert {need for check in checks() for need in check.needs} <= set(NEEDS)
