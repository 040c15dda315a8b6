"""Run the smoke tests of the packages in one environment, each in its own process.

Several run at a time; engines, which allocate all free memory, run one after the other at the end.
"""

import glob
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set

import child
import environment
import frameworks
import package_table

if TYPE_CHECKING:
    from measure import Member

HERE = os.path.dirname(os.path.abspath(__file__))
TOGETHER = (4, 8)
"""Minimum and maximum of parallel processes: each imports a framework and holds a context."""
CONTEXT = 2048
"""MiB of GPU memory counted per process when more than the minimum run."""
WHOLE = 330.0
"""Seconds for all packages of an environment, and again for its engines."""


class Packages:
    """The packages of one environment and their answers."""

    def __init__(self, python: str, request: Dict[str, Any], scratch: str, members: "Sequence[Member]") -> None:
        self._python, self._scratch, self._members = python, scratch, members
        self._cuda_home = request.get("cuda_home") or ""
        wanted = {environment.plain_name(name) for name in request.get("components") or []}
        self.smokes = to_try(installed(python) | wanted) if python and members else []
        self._answers: Dict[str, Dict[str, Any]] = {}
        self._threads: List[threading.Thread] = []
        self._waiting: List[package_table.Smoke] = []
        self._taking = threading.Lock()
        self._ends = 0.0

    def start(self) -> None:
        """Start all tests but those of engines."""
        sizes = [None if member.part else member.gpu.get("memory") for member in self._members]
        at_a_time = together(len(os.sched_getaffinity(0)), sizes)
        self._begin([smoke for smoke in self.smokes if not smoke.engine], at_a_time)

    def finish(self) -> Dict[str, Any]:
        """Wait for them, then run the engines' tests on GPUs that no other job uses; return all answers."""
        self._wait()
        self._begin([smoke for smoke in self.smokes if smoke.engine], 1)
        self._wait()
        return dict(self._answers)

    def _begin(self, smokes: "List[package_table.Smoke]", together: int) -> None:
        self._waiting, self._ends = list(smokes), time.monotonic() + WHOLE
        self._answers.update({smoke.package: _late(WHOLE) for smoke in smokes})
        self._threads = [threading.Thread(target=self._work) for _ in range(min(together, len(smokes)))]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def _wait(self) -> None:
        for thread in self._threads:
            thread.join(max(1.0, self._ends - time.monotonic() + 15))

    def _work(self) -> None:
        while True:
            with self._taking:
                if not self._waiting or time.monotonic() >= self._ends:
                    return
                smoke = self._waiting.pop(0)
            try:
                self._answers[smoke.package] = self._one(smoke)
            except Exception as failure:
                self._answers[smoke.package] = {"error": "failed", "message": f"{type(failure).__name__}: {failure}"}

    def _one(self, smoke: "package_table.Smoke") -> Dict[str, Any]:
        """Run one process for all GPUs, or one per GPU in parallel."""
        members = [member for member in self._members if not (smoke.engine and member.busy)]
        if not members:
            return {"skipped": "another job uses every GPU"}
        if not smoke.apart and not any(member.part for member in members):
            return self._process(smoke, members)
        found: Dict[str, Dict[str, Any]] = {}

        def alone(member: "Member") -> None:
            found[member.key] = self._process(smoke, [member])

        threads = [threading.Thread(target=alone, args=(member,)) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return merged([found[member.key] for member in members if member.key in found])

    def _process(self, smoke: "package_table.Smoke", members: "Sequence[Member]") -> Dict[str, Any]:
        limit = min(smoke.deadline, max(1.0, self._ends - time.monotonic()))
        seen = [member.part["uuid"] if member.part else str(member.gpu["index"]) for member in members]
        script = os.path.join(HERE, "package_smoke.py")
        argv = [self._python, script, smoke.package]
        extra = surroundings(self._python, self._scratch, self._cuda_home, dict(os.environ))
        extra["CUDA_VISIBLE_DEVICES"] = ",".join(seen)
        answer = frameworks.last_json(child.run(argv, limit, cwd=self._scratch, extra=extra))
        for gpu in answer.get("gpus", []):
            gpu["index"] = members[gpu["index"]].key
        return answer


def together(processors: int, memory: "Sequence[Optional[int]]") -> int:
    """Return how many processes to run in parallel: each needs two processors, and memory on every GPU."""
    least, most = TOGETHER
    room = min((size or 0) // CONTEXT for size in memory) if memory else 0
    return max(least, min(most, processors // 2, room))


def _late(limit: float) -> Dict[str, Any]:
    return {"error": "timeout", "deadline": limit, "message": f"not begun: the others took {limit:g} s"}


def merged(answers: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return one answer for several processes: the first failure of a process, else the GPUs of all."""
    failed = next((answer for answer in answers if answer.get("error") or not answer.get("devices")), None)
    if failed is not None:
        return failed
    whole = dict(answers[0])
    whole["gpus"] = [gpu for answer in answers for gpu in answer["gpus"]]
    whole["devices"] = len(whole["gpus"])
    whole["seconds"] = max(float(answer.get("seconds", 0)) for answer in answers)
    return whole


def installed(python: str) -> Set[str]:
    """Return the packages installed for this interpreter, without starting it."""
    root = os.path.dirname(os.path.dirname(python))
    folders = glob.glob(os.path.join(glob.escape(root), "lib*", "python3*", "*-packages"))
    return {name for folder in folders for name in environment.distributions(folder)}


def to_try(names: Set[str]) -> "List[package_table.Smoke]":
    """Return the tests of packages, in the table's order."""
    meant = names | {package_table.SAME[name] for name in names if name in package_table.SAME}
    return [smoke for smoke in package_table.SMOKES if smoke.package in meant]


def surroundings(python: str, scratch: str, cuda_home: str, found: Dict[str, str]) -> Dict[str, str]:
    """Return variables as in an activated environment, with caches and home directory in our folder."""
    home = os.path.join(scratch, "home")
    if not os.path.isdir(home):
        os.makedirs(home, exist_ok=True)
    extra = {
        "PATH": os.pathsep.join([os.path.dirname(python), child.environment()["PATH"]]),
        "HOME": home,
        "XDG_CACHE_HOME": os.path.join(home, "cache"),
        "XDG_CONFIG_HOME": os.path.join(home, "config"),
        "CUDA_CACHE_PATH": os.path.join(home, "cuda"),
        "TRITON_CACHE_DIR": os.path.join(home, "triton"),
        "TORCH_EXTENSIONS_DIR": os.path.join(home, "torch"),
        "FLASHINFER_WORKSPACE_BASE": home,
        "VLLM_CACHE_ROOT": os.path.join(home, "vllm"),
    }
    if "HOME" in found:
        extra["PYTHONUSERBASE"] = found.get("PYTHONUSERBASE") or os.path.join(found["HOME"], ".local")
    compiler = _toolkit(cuda_home)
    if compiler and "CUDA_HOME" not in found:
        extra["CUDA_HOME"] = compiler
    return extra


def _toolkit(named: str) -> Optional[str]:
    compiler = frameworks.nvcc({"cuda_home": named})
    home = os.path.dirname(os.path.dirname(compiler[0])) if compiler else ""
    return home if home and home != "/usr" else None
