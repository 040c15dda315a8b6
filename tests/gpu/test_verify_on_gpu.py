"""The checks on a real GPU: `pytest tests/gpu` on a GPU machine, with GPUSETUP_GPU_PYTHON naming a Python that has CuPy."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

CANDIDATES = (os.environ.get("GPUSETUP_GPU_PYTHON", ""), "/opt/gpusetup/bin/python", sys.executable)


def _python():
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA driver here (there is no nvidia-smi)")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    if listed.returncode != 0 or "GPU 0" not in listed.stdout:
        pytest.skip(f"nvidia-smi lists no GPU: {listed.stdout.strip() or listed.stderr.strip()}")
    for path in CANDIDATES:
        argv = [path, "-c", "import cupy"]
        if path and Path(path).exists() and not subprocess.run(argv, capture_output=True, check=False).returncode:
            return path
    pytest.skip("no Python with CuPy: set GPUSETUP_GPU_PYTHON")


def _verify(tmp_path, *arguments):
    out = tmp_path / "report.json"
    started = time.monotonic()
    finished = subprocess.run(
        [sys.executable, "-m", "gpusetup", "verify", "--python", _python(), "--format", "json", "--out", str(out), *arguments],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - started
    assert out.exists(), finished.stderr
    document = json.loads(out.read_text(encoding="utf-8"))
    return finished.returncode, {result["id"]: result for result in document["hosts"]["localhost"]}, seconds


def _failed(results):
    """What failed of the stack itself: which packages a machine's own Python has, and how well they go, is its own matter."""
    return [result for name, result in results.items() if result["verdict"] == "fail" and not _of_a_package(name)]


def _of_a_package(name):
    return name.startswith("package.")


def _seconds_of_packages(results):
    return sum(result["seconds"] for name, result in results.items() if _of_a_package(name))


def _gpus():
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout.count(
        "GPU "
    )


def test_quick_takes_seconds(tmp_path):
    code, results, seconds = _verify(tmp_path, "--level", "quick")
    assert code == 0, [result for result in results.values() if result["verdict"] == "fail"]
    assert seconds < 3 + 0.5 * _gpus()


def test_smoke_computes_right_on_every_gpu(tmp_path):
    _code, results, seconds = _verify(tmp_path)
    assert _failed(results) == []
    for name in ("cuda.context", "cupy.kernel", "cupy.cublas", "cuda.ptx", "gpu.memory"):
        assert results[name]["verdict"] == "pass", results[name]
    if _gpus() == 1:
        assert seconds < 10 + _seconds_of_packages(results)


def test_full_is_fast_enough_and_leaves_nothing_behind(tmp_path):
    _code, results, seconds = _verify(tmp_path, "--level", "full")
    assert _failed(results) == []
    assert results["memory.copy"]["measured"] > results["memory.copy"]["limit"]
    assert seconds < 120 + _seconds_of_packages(results)
    left = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert left.stdout.strip() == "" or "worker.py" not in left.stdout
