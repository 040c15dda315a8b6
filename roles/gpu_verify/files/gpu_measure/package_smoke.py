"""Test one package on every GPU with small operations, whose expected results are computed in another way.

Runs as its own process in the package's environment: `python package_smoke.py NAME`. Prints one JSON
document.
"""

import importlib
import json
import math
import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, Iterable, List

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)
import environment
import package_table

# Our folder goes last from here on: a library that imports `kernels` must find its own, not ours.
sys.path[:] = [folder for folder in sys.path if folder != HERE] + [HERE]


class Trial:
    """An operation and its expected result."""

    def __init__(self, name: str, run: Callable[[], Any], wanted: Any, limit: float, **how: Any) -> None:
        self.name, self.run, self.wanted, self.limit = name, run, wanted, limit
        self.where: Callable[[Any], str] = how.get("where", device_of)
        """Returns where a result was computed: even a correct result fails if it is not from a GPU."""
        self.distance: Callable[[Any, Any], float] = how.get("distance", relative_error)
        self.note: str = how.get("note", "")


def device_of(result: Any) -> str:
    """Return the device of a result."""
    device = getattr(result, "device", None)
    if device is not None:
        return str(device)
    return "cuda" if hasattr(result, "__cuda_array_interface__") else "cpu"


def relative_error(got: Any, wanted: Any) -> float:
    """Return the relative error of a result."""
    import numpy

    left, right = (numpy.asarray(plain(value), dtype=numpy.float64) for value in (got, wanted))
    if left.shape != right.shape:
        raise ValueError(f"the result has the shape {left.shape}, {right.shape} is right")
    return float(numpy.linalg.norm(left - right) / max(float(numpy.linalg.norm(right)), 1e-300))


def plain(value: Any) -> Any:
    """Return a result in a form that NumPy accepts."""
    if hasattr(value, "detach"):  # torch
        return value.detach().double().cpu().numpy()
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
        return value.get()
    return value.copy_to_host() if hasattr(value, "copy_to_host") else value  # Numba


def try_all(trials: Iterable[Trial]) -> Dict[str, Any]:
    """Run trials one after the other up to the first failure; keep the results before it."""
    found: Dict[str, Any] = {"operations": []}
    operations: List[Dict[str, Any]] = found["operations"]
    try:
        operations.extend(_one(trial) for trial in trials)
    except Exception as failure:
        found["error"] = f"{type(failure).__name__}: {str(failure)[:1500]}"
        found["kind"] = kind_of(failure)
        found["where"] = traceback.format_exc().strip().splitlines()[-4:]
    return found


def _one(trial: Trial) -> Dict[str, Any]:
    started = time.monotonic()
    got = trial.run()
    error = trial.distance(got, trial.wanted)
    operation: Dict[str, Any] = {
        "name": trial.name,
        "error": error if math.isfinite(error) else None,
        "limit": trial.limit,
        "ran_on": trial.where(got),
        "seconds": round(time.monotonic() - started, 3),
    }
    if trial.note:
        operation["note"] = trial.note
    return operation


def kind_of(failure: BaseException) -> str:
    """Return "failed", or "unknown-release" if our own line used a name or argument that this release lacks."""
    last = traceback.extract_tb(failure.__traceback__)[-1]
    ours = os.path.basename(last.filename).startswith(("smokes_of_", "package_smoke"))
    unknown = isinstance(failure, AttributeError) and str(failure).startswith(("module '", "type object '"))
    unknown = unknown or (type(failure) is ImportError and "cannot import name" in str(failure))
    unknown = unknown or isinstance(failure, TypeError)
    return "unknown-release" if ours and unknown else "failed"


def look(smoke: "package_table.Smoke") -> Dict[str, Any]:
    """Import the package, count the GPUs that CUDA shows, run the trials."""
    module = importlib.import_module(smoke.module)
    installed = environment.versions((smoke.package,))
    answer: Dict[str, Any] = {"version": installed.get(smoke.package) or str(getattr(module, "__version__", ""))}
    count, why = environment.cuda_devices()
    answer["devices"] = count
    if not count:
        answer["why_not"] = why
        return answer
    function = getattr(importlib.import_module(smoke.script), smoke.function)
    answer["gpus"] = [dict(try_all(function(module, index)), index=index) for index in range(count)]
    return answer


def main() -> None:
    smoke = package_table.find(sys.argv[1])
    if smoke is None:
        sys.exit(f"no test for {sys.argv[1]}")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep libraries' output out of the answer
    started = time.monotonic()
    try:
        answer = look(smoke)
    except ImportError as failure:
        answer = {"error": "import", "message": str(failure)[:1000]}
    except Exception as failure:
        answer = {"error": "failed", "message": f"{type(failure).__name__}: {str(failure)[:1000]}"}
    answer["loaded"] = environment.loaded_libraries()
    answer["seconds"] = round(time.monotonic() - started, 3)
    answers.write("\n" + json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)  # do not wait for an engine's threads and processes


if __name__ == "__main__":
    # The trials import Trial from `package_smoke`, which must be this module.
    sys.modules["package_smoke"] = sys.modules["__main__"]
    main()
