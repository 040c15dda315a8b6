"""Why something on the GPU went wrong, in words: CUDA statuses, crashes, deadlines, missing interpreters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

__all__ = ["STATUSES", "explain", "interpreter_problem"]

STATUSES: dict[int, str] = {
    2: "out of GPU memory",
    3: "CUDA could not be initialised",
    35: "the driver is older than this CUDA runtime needs",
    36: "the driver library is a stub: LD_LIBRARY_PATH leads to a stubs folder",
    46: "the GPU is busy or not available (exclusive compute mode, or it fell off the bus)",
    100: "the driver shows no CUDA device: device files, CUDA_VISIBLE_DEVICES or the GPU itself",
    101: "no such CUDA device",
    209: "the program holds no code for this GPU",
    214: "an uncorrectable ECC error happened",
    218: "the PTX could not be compiled",
    222: "the PTX is newer than the driver can compile",
    304: "an operating system call failed: device files or limits",
    700: "a kernel touched memory that is not its own",
    702: "a kernel ran past the launch timeout",
    719: "a kernel failed; after it the context is dead",
    800: "not permitted",
    802: "the system is not yet initialised: NVSwitch fabric without a working fabric manager",
    803: "the driver library and the kernel module do not match",
    804: "forward compatibility was tried on a GPU that has none",
    999: "unknown error: the kernel module and device files are the usual cause",
}


def explain(answer: dict[str, Any]) -> str:
    """Return one sentence for an answer that carries an error."""
    error, status = answer.get("error"), answer.get("status")
    message = re.sub(r"\s+", " ", str(answer.get("message") or "")).strip()
    if error in ("timeout", "timeout-unkillable"):
        stuck = "; it stays in the driver, only a reboot ends it" if error == "timeout-unkillable" else ""
        return f"no answer within {answer.get('deadline', 0):g} s; killed{stuck}"
    if error == "crashed":
        tail = str(answer.get("stderr") or "").strip().splitlines()[-1:]
        return f"the process crashed: {message}" + (f" ({tail[0][:120]})" if tail else "")
    if isinstance(status, int) and status in STATUSES:
        name = message.split(":")[0] if message.startswith("cudaError") else ""
        return f"{STATUSES[status]} (CUDA error {status}{', ' + name if name else ''})"
    if error == "import":
        return f"CuPy cannot be imported: {message[:200]}"
    if error == "out-of-memory":
        return "out of GPU memory"
    return message[:240] or str(error)


def interpreter_problem(machine: Machine) -> str | None:
    """Return why no worker could be started, None when one could."""
    interpreter = machine.sections.get("interpreter")
    if isinstance(interpreter, dict) and interpreter.get("error"):
        return f"could not run: {interpreter['error']}; name the Python that holds CuPy with --python"
    return None
