#!/usr/bin/env python3
"""Make a real GPU machine fail in known ways and compare what the doctor says with what was done.

    python3 tests/gpu/doctor_live.py [--out FILE]

Needs one NVIDIA GPU, PyTorch with CUDA, nvcc and the packages of gpusetup (msgspec); no network, no root, and nothing on
the machine is changed: faults live in a temporary folder and in the environment of child processes. A fault that cannot
be made here is skipped with its reason. Ends with 1 when the doctor was wrong about one that could.
"""

import argparse
import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TORCH = "import torch; torch.zeros(8, device='cuda').sum().item(); print('ran')"
LOAD_PTX = """
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        text = ctypes.c_char_p(); label = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text)); cuda.cuGetErrorName(code, ctypes.byref(label))
        sys.exit(f'{name} failed: CUDA error {code}: {label.value.decode()}: {text.value.decode()}')
call('cuInit', 0)
context, device, module = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
call('cuDeviceGet', ctypes.byref(device), 0)
call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
call('cuCtxSetCurrent', context)
call('cuModuleLoadData', ctypes.byref(module), open(sys.argv[1], 'rb').read() + b'\\0')
print('ran')
"""
KERNEL = """
#include <cstdio>
__global__ void nothing(int *x) { *x = 1; }
int main() {
  int *x = 0; cudaMalloc(&x, 4); nothing<<<1, 1>>>(x);
  cudaError_t e = cudaDeviceSynchronize(); if (e == cudaSuccess) e = cudaGetLastError();
  if (e != cudaSuccess) { fprintf(stderr, "CUDA error: %s: %s\\n", cudaGetErrorName(e), cudaGetErrorString(e)); return 1; }
  puts("ran"); return 0; }
"""


def child(argv: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Run a program with a deadline; return its code and what it said."""
    variables = {**os.environ, **environment}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=folder, env=variables, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def doctor(*arguments: str, folder: Path, **environment: str) -> tuple[int, dict[str, object], float]:
    """Run the doctor."""
    began = time.monotonic()
    variables = {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", **environment}
    code, said = child(
        [sys.executable, "-m", "gpusetup", "doctor", "--format", "json", *arguments], folder, **variables
    )
    begin = said.find("{")
    try:
        document = json.loads(said[begin : said.rfind("}") + 1]) if begin >= 0 else {"said": said}
    except ValueError:
        document = {"said": said}
    return code, document, time.monotonic() - began


def causes(document: dict[str, object]) -> list[str]:
    """Return what a doctor's document names, the first first."""
    if "findings" in document:
        return [finding["cause"] for finding in document["findings"]]
    hosts = document.get("hosts", {})
    return [host["cause"]["cause"] for host in hosts.values() if host["cause"]]


class Cases:
    """What was tried and how it went."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, object]] = []

    def row(self, name: str, outcome: str, **more: object) -> None:
        """Note an outcome: right, wrong, skipped."""
        self.rows.append({"case": name, "outcome": outcome, **more})
        print(f"{outcome:<8}{name}: {more.get('why') or more.get('named')}", flush=True)

    def message(self, name: str, wanted: str, code: int, said: str) -> None:
        """Compare the doctor's reading of a message with the fault that made it."""
        if code == 0:
            self.row(name, "skipped", why=f"no fault came of it: {said[-200:]}")
            return
        path = self.folder / "said.log"
        path.write_text(said)
        _, document, seconds = doctor("--text", str(path), folder=self.folder)
        named = causes(document)
        outcome = "right" if named[:1] == [wanted] else "wrong"
        self.row(name, outcome, wanted=wanted, named=named, said=said[-600:], seconds=round(seconds, 2))

    def machine(self, name: str, wanted: str | None, **environment: str) -> None:
        """Compare the doctor's look at the machine with the fault in the environment."""
        code, document, seconds = doctor(folder=self.folder, **environment)
        named = causes(document)
        outcome = "right" if named == ([wanted] if wanted else []) else "wrong"
        self.row(name, outcome, wanted=wanted, named=named, code=code, seconds=round(seconds, 2), document=document)


def newer_ptx(cases: Cases) -> None:
    """Load PTX of a version that no driver knows yet, as a newer toolkit would have written."""
    path = cases.folder / "newer.ptx"
    path.write_text(".version 99.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n")
    code, said = child([sys.executable, "-c", LOAD_PTX, str(path)], cases.folder)
    cases.message("PTX of a newer toolkit", "ptx-too-new", code, said)


def compat(cases: Cases) -> None:
    """Put a library of another version before the driver's own, as cuda-compat does."""
    found = sorted(Path("/usr/local").glob("cuda*/compat/libcuda.so.*.*"))
    if not found:
        cases.row("cuda-compat before the driver's library", "skipped", why="no cuda-compat package on this machine")
    else:
        folder = str(found[0].parent)
        code, said = child([sys.executable, "-c", TORCH], cases.folder, LD_LIBRARY_PATH=folder)
        cases.message("cuda-compat before the driver's library", "compat-shadows-driver", code, said)
    older = cases.folder / "compat"
    older.mkdir()
    (older / "libcuda.so.450.80.02").write_bytes(b"")
    (older / "libcuda.so.1").symlink_to("libcuda.so.450.80.02")
    cases.machine("an older libcuda on LD_LIBRARY_PATH", "compat-shadows-driver", LD_LIBRARY_PATH=str(older))


def no_code(cases: Cases) -> None:
    """Build a program for another GPU only, without PTX."""
    nvcc = shutil.which("nvcc") or next(map(str, sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))), None)
    if nvcc is None:
        cases.row("a program without code for this GPU", "skipped", why="no nvcc")
        return
    (cases.folder / "other.cu").write_text(KERNEL)
    argv = [nvcc, "-gencode", "arch=compute_120,code=sm_120", "-o", "other", "other.cu"]
    code, said = child(argv, cases.folder)
    if code:
        cases.row("a program without code for this GPU", "skipped", why=said[-200:])
        return
    code, said = child([str(cases.folder / "other")], cases.folder)
    cases.message("a program without code for this GPU", "no-kernel-image", code, said)
    environment = cases.folder / "old"
    (environment / "lib/python3.12/site-packages/torch-1.10.0+cu113.dist-info").mkdir(parents=True)
    cases.machine(
        "an environment with a torch that has no code for this GPU", "no-kernel-image", VIRTUAL_ENV=str(environment)
    )


def visible(cases: Cases) -> None:
    """Hide the GPUs by mistake."""
    for value in ("", "7777", "GPU-00000000", "0,0"):
        cases.machine(f"CUDA_VISIBLE_DEVICES={value!r}", "cuda-visible-devices", CUDA_VISIBLE_DEVICES=value)
    code, said = child([sys.executable, "-c", TORCH], cases.folder, CUDA_VISIBLE_DEVICES="7777")
    cases.message("torch with CUDA_VISIBLE_DEVICES=7777", "no-cuda-device", code, said)


def main() -> int:
    """Try every fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    try:
        ctypes.CDLL("libcuda.so.1")
        for needed in ("msgspec", "torch"):
            importlib.import_module(needed)
    except (OSError, ImportError) as error:
        print(f"this machine cannot run it: {error}")
        return 2
    with tempfile.TemporaryDirectory() as name:
        cases = Cases(Path(name))
        cases.machine("the machine as it is", None)
        for case in (newer_ptx, compat, no_code, visible):
            try:
                case(cases)
            except Exception as error:  # noqa: PERF203 - one broken case must not hide the others
                cases.row(case.__name__, "wrong", why=f"the case itself failed: {error!r}")
    if arguments.out:
        arguments.out.write_text(json.dumps(cases.rows, indent=1) + "\n")
    counts = {word: sum(row["outcome"] == word for row in cases.rows) for word in ("right", "wrong", "skipped")}
    print(", ".join(f"{number} {word}" for word, number in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
