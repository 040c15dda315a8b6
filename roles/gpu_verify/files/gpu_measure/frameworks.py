"""Run the checks beside the CuPy workers (frameworks, nvcc, containers, the host's cuDNN) as parallel processes."""

import glob
import json
import os
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple, cast

import child
import container

if TYPE_CHECKING:
    from child import Answer
    from collect import Collection

HERE = os.path.dirname(os.path.abspath(__file__))
FRAMEWORKS = ("torch", "tensorflow", "jax")
DEADLINES = {"torch": 120, "tensorflow": 180, "jax": 180, "nvcc": 90, "cudnn": 60, "container": 300}
LDCONFIG = "/sbin/ldconfig"
SYSTEM_NVCC, SYSTEM_HOST_COMPILER = "/usr/bin/nvcc", "/usr/bin/cuda-g++"
"""The distribution's toolkit, and the older g++ that it ships because it does not support the system's."""


class Work:
    """Running framework checks."""

    def __init__(self) -> None:
        self._threads: List[Tuple[str, threading.Thread]] = []
        self._answers: Dict[str, Dict[str, Any]] = {}

    def add(self, name: str, function: Callable[..., Dict[str, Any]], *arguments: Any) -> None:
        thread = threading.Thread(target=self._one, args=(name, function, *arguments))
        thread.daemon = True
        thread.start()
        self._threads.append((name, thread))

    def _one(self, name: str, function: Callable[..., Dict[str, Any]], *arguments: Any) -> None:
        started = time.monotonic()
        try:
            answer = function(*arguments)
        except Exception as failure:
            answer = {"error": "failed", "message": f"{type(failure).__name__}: {failure}"}
        answer.setdefault("seconds", round(time.monotonic() - started, 3))
        self._answers[name] = answer

    def finish(self) -> Dict[str, Any]:
        late: Dict[str, Any] = {}
        for name, thread in self._threads:
            limit = DEADLINES.get(name.partition("-")[0], 60) + 60
            thread.join(limit)
            late[name] = {"error": "timeout", "deadline": limit, "message": "it did not end in time"}
        return dict(late, **self._answers)


def start(python: str, request: Dict[str, Any], scratch: str, collection: "Collection") -> Work:
    """Start the checks of what is installed or requested."""
    work = Work()
    if python:
        installed = _installed(python)
        wanted = request.get("components") or []
        for name in FRAMEWORKS:
            if name in installed or name in wanted:
                work.add(name, _python_script, python, name, scratch, request)
    compiler = nvcc(request)
    if compiler:
        work.add("nvcc", _compile_and_run, compiler, scratch, collection, request)
    for release, other in _others(compiler, collection.wait("facts") or {}):
        work.add("nvcc-" + release, _compile_and_run, other, scratch, collection, request)
    for runtime in container.to_try(collection.wait("facts") or {}):
        work.add("container-" + runtime, container.look, runtime, scratch)
    if _has_cudnn():
        work.add("cudnn", _python_script, sys.executable, "cudnn", scratch, request)
    return work


def _others(compiler: Optional[List[str]], facts: Dict[str, Any]) -> List[Tuple[str, List[str]]]:
    """Return (version, compiler) of the other toolkits on the host's record, even if a compiler is gone."""
    lock = (facts.get("state") or {}).get("lock") or {}
    roots = ((lock.get("wanted") or {}).get("packages") or {}).get("cuda_roots") or []
    done = os.path.realpath(compiler[0]) if compiler else ""
    paths = [(root["version"], os.path.join(root["path"], "bin", "nvcc")) for root in roots if len(roots) > 1]
    return [(release, [path]) for release, path in paths if os.path.realpath(path) != done]


def _installed(python: str) -> Set[str]:
    """Return the frameworks installed for this interpreter, without starting it."""
    root = os.path.dirname(os.path.dirname(python))
    return {
        name
        for name in FRAMEWORKS
        if glob.glob(os.path.join(root, "lib*", "python3*", "*-packages", name, "__init__.py"))
    }


def _has_cudnn() -> bool:
    """Return whether the loader knows a cuDNN of the host: those of wheels are not in its cache."""
    return "libcudnn.so." in child.run([LDCONFIG, "-p"], 10)["stdout"]


def _python_script(python: str, name: str, scratch: str, request: Dict[str, Any]) -> Dict[str, Any]:
    return _on_the_chosen([python, os.path.join(HERE, name + "_smoke.py")], DEADLINES[name], scratch, request)


def _on_the_chosen(argv: List[str], deadline: float, folder: str, request: Dict[str, Any]) -> Dict[str, Any]:
    """Run a program that prints JSON; show it only the GPUs that the request names."""
    chosen = request.get("gpus") or []
    extra = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, chosen))} if chosen else {}
    answer = last_json(child.run(argv, deadline, cwd=folder, extra=extra))
    for gpu in answer.get("gpus", []) if chosen else []:
        gpu["index"] = chosen[gpu["index"]]
    return answer


def last_json(answer: "Answer") -> Dict[str, Any]:
    for line in reversed(answer["stdout"].splitlines()):
        if line.startswith("{"):
            try:
                return cast("Dict[str, Any]", json.loads(line))
            except ValueError:
                continue  # printed after the answer
    if answer["error"] in ("timeout", "timeout-unkillable"):
        message = "no answer within {:g} s; killed".format(answer["deadline"])
    else:
        message = child.ending(answer["rc"])
    return {
        "error": answer["error"] or "crashed",
        "message": message,
        "rc": answer["rc"],
        "deadline": answer["deadline"],
        "stderr": answer["stderr"][-1500:],
        "seconds": answer["seconds"],
    }


def nvcc(request: Dict[str, Any]) -> Optional[List[str]]:
    """Return the command of the first nvcc: in the named home, the default link, the newest folder, or /usr/bin."""
    homes = [request.get("cuda_home"), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True)]
    paths = [os.path.join(home, "bin", "nvcc") for home in homes if home] + [SYSTEM_NVCC]
    for path in paths:
        if os.access(path, os.X_OK):
            own = path == SYSTEM_NVCC and os.access(SYSTEM_HOST_COMPILER, os.X_OK)
            return [path, "-ccbin", SYSTEM_HOST_COMPILER] if own else [path]
    return None


def _compile_and_run(
    compiler: List[str], scratch: str, collection: "Collection", request: Dict[str, Any]
) -> Dict[str, Any]:
    query = collection.wait("smi_query") or {}
    capabilities = sorted(
        {
            line.split(",")[3].strip().replace(".", "")
            for line in query.get("stdout", "").splitlines()
            if line.count(",") >= 3 and "." in line.split(",")[3]
        }
    )
    folder = tempfile.mkdtemp(dir=scratch)  # toolkits side by side are tested at the same time
    program = os.path.join(folder, "nvcc_smoke")
    options = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in capabilities]
    source = os.path.join(HERE, "nvcc_smoke.cu")
    built = child.run([*compiler, "-O1", *options, "-o", program, source], DEADLINES["nvcc"], cwd=folder)
    answer: Dict[str, Any] = {
        "compiler": compiler[0],
        "architectures": capabilities,
        "compile_seconds": built["seconds"],
    }
    if built["rc"] != 0:
        answer.update(
            {"error": "compile", "message": built["stderr"][-1500:] or built["error"] or child.ending(built["rc"])}
        )
        return answer
    answer.update(_on_the_chosen([program], 30, folder, request))
    answer.setdefault("error", None)
    return answer
