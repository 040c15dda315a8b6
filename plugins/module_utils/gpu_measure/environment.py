"""The Python environment the checks run in: versions, packages, and the libraries really loaded."""

import importlib
import json
import os
import re
import sys
import time
from typing import Any, Callable, Dict, List

_PACKAGE = re.compile(r"^(cupy|torch|tensorflow|jax|jaxlib|triton|nvidia|numpy)", re.IGNORECASE)
_LIBRARY = re.compile(r"(lib(?:cuda|cudart|nvrtc|cublas|cublasLt|cudnn|nccl|nvJitLink|nvidia-ml))\.so[.\d]*$")


def packages() -> Dict[str, str]:
    """Installed packages that matter here, by the folders pip leaves (no import, no metadata parsing)."""
    found: Dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            match = re.match(r"(.+?)-([^-]+)\.(?:dist|egg)-info$", name)
            if match and _PACKAGE.match(match.group(1)):
                found.setdefault(match.group(1).replace("_", "-").lower(), match.group(2))
    return found


def loaded_libraries() -> Dict[str, List[str]]:
    """CUDA libraries mapped into this process, by stem; two paths under one stem are two copies."""
    found: Dict[str, List[str]] = {}
    try:
        with open("/proc/self/maps") as maps:
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
    """Import CuPy and say which everything is; no CUDA context yet."""
    answer: Dict[str, Any] = {"python": sys.version.split()[0], "executable": sys.executable, "packages": packages()}
    import cupy
    import numpy

    answer.update({"cupy": cupy.__version__, "numpy": numpy.__version__})
    return answer


def print_framework(name: str, look: Callable[[Any], Dict[str, Any]]) -> None:
    """Import a framework, look at it, and print one JSON document as the last line, whatever happens."""
    started = time.time()
    try:
        answer = look(importlib.import_module(name))
    except ImportError as failure:
        answer = {"error": "import", "message": str(failure)[:1000]}
    except Exception as failure:
        answer = {"error": "failed", "message": f"{type(failure).__name__}: {str(failure)[:1000]}"}
    answer["loaded"] = loaded_libraries()
    answer["seconds"] = round(time.time() - started, 3)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
