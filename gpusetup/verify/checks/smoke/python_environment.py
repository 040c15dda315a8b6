"""The Python that apply made (or the one that was named) is there and imports CuPy.

By its absolute path: what a login shell's PATH finds is not what a service or an SSH command finds. When the stack
has no CuPy, or nobody wanted a Python, this is skipped; otherwise a missing environment is a fail, since nothing
that runs on the GPU could be proven.

To do: `gpusetup apply`, or name the interpreter with `--python /path/to/python`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.verdict import Finding
from gpusetup.verify.reasons import explain
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@check("python.environment", "Python with CuPy is ready", needs=("gpu",))
def judge(machine: Machine) -> Finding:
    """Judge interpreter and import."""
    interpreter = machine.sections.get("interpreter")
    wanted = machine.wanted.has("cupy")
    if not isinstance(interpreter, dict):
        return Finding("skip", "not checked: no GPU was found (see gpu.count)")
    if interpreter.get("error"):
        if wanted is False:
            return Finding("skip", "CuPy is not part of this host's stack")
        return Finding("fail", f"{interpreter['error']}; give the Python that has CuPy with --python")
    answers = [worker.get("hello", {}) for worker in machine.workers.values()]
    failed = [answer for answer in answers if "error" in answer]
    if failed and wanted is False:
        return Finding("skip", "CuPy is not part of this host's stack")
    if failed:
        return Finding("fail", f"{interpreter['path']}: {explain(failed[0])}", expected=machine.wanted.version("cupy"))
    if not answers:
        return Finding("skip", "not checked: no GPU was found (see gpu.count)")
    found = answers[0]
    version, expected = found.get("cupy"), machine.wanted.version("cupy")
    if expected and version != expected:
        return Finding("fail", f"CuPy is {version}, the lock says {expected}", version, expected)
    return Finding(
        "pass",
        f"{interpreter['path']}: Python {found.get('python')}, CuPy {version}, NumPy {found.get('numpy')}",
        version,
        expected,
    )
