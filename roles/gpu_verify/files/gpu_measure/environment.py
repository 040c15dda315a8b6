"""Describe the Python environment of the checks: versions, packages, and the libraries actually loaded."""

import ctypes
import importlib
import json
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Set, Tuple

_PACKAGE = re.compile(r"^(cupy|torch|tensorflow|jax|jaxlib|triton|nvidia|numpy)", re.IGNORECASE)
_LIBRARY = re.compile(r"(lib(?:cuda|cudart|nvrtc|cublas|cublasLt|cudnn|nccl|nvJitLink|nvidia-ml))\.so[.\d]*$")


def packages() -> Dict[str, str]:
    """Return {GPU package: version}, from the names of pip's folders (no import, no metadata parsing)."""
    found: Dict[str, str] = {}
    for folder in sys.path:
        for name, version in distributions(folder or ".").items():
            if _PACKAGE.match(name):
                found.setdefault(name, version)
    return found


def versions(names: Iterable[str]) -> Dict[str, str]:
    """Return the installed versions of these packages, by their names on the index."""
    wanted = {plain_name(name) for name in names}
    found: Dict[str, str] = {}
    for folder in sys.path:
        for name, version in distributions(folder or ".").items():
            if name in wanted:
                found.setdefault(name, version)
    return found


def plain_name(name: str) -> str:
    """Return a package's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(folder: str) -> Dict[str, str]:
    """Return {package: version} in a folder, from the names of pip's folders."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    matches = (re.fullmatch(r"(.+?)-([^-]+)\.(?:dist|egg)-info", name) for name in names)
    return {plain_name(match.group(1)): match.group(2) for match in matches if match}


def processors(text: str) -> Set[int]:
    """Parse a processor list of the kernel, such as 0-15,32-47."""
    parts = [part.partition("-") for part in (text or "").split(",") if part]
    return {number for first, _, last in parts for number in range(int(first), int(last or first) + 1)}


def cuda_devices() -> Tuple[int, str]:
    """Return how many GPUs CUDA shows this process (no context is created), and why there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as failure:
        return 0, str(failure)
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return 0, f"CUDA error {status}"
    return count.value, "" if count.value else "CUDA shows no GPU"


def loaded_libraries() -> Dict[str, List[str]]:
    """Return the paths of the CUDA libraries mapped into this process, by stem; two paths are two copies."""
    found: Dict[str, List[str]] = {}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            lines = maps.read().splitlines()
    except OSError:
        return found
    for line in lines:
        path = line.split(None, 5)[5] if len(line.split(None, 5)) == 6 else ""
        match = _LIBRARY.search(os.path.basename(path))
        if match and path not in found.setdefault(match.group(1), []):
            found[match.group(1)].append(path)
    return found


def hello(_state: object, _request: Dict[str, Any]) -> Dict[str, Any]:
    """Import CuPy and return the versions of everything; creates no CUDA context yet."""
    answer: Dict[str, Any] = {"python": sys.version.split()[0], "executable": sys.executable, "packages": packages()}
    import cupy
    import numpy

    answer.update({"cupy": cupy.__version__, "numpy": numpy.__version__})
    return answer


def print_framework(name: str, look: Callable[[Any], Dict[str, Any]]) -> None:
    """Import a framework, test it, and print one JSON document as the last line, whatever happens."""
    started = time.monotonic()
    try:
        answer = look(importlib.import_module(name))
    except ImportError as failure:
        answer = {"error": "import", "message": str(failure)[:1000]}
    except Exception as failure:
        answer = {"error": "failed", "message": f"{type(failure).__name__}: {str(failure)[:1000]}"}
    answer["loaded"] = loaded_libraries()
    answer["seconds"] = round(time.monotonic() - started, 3)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
