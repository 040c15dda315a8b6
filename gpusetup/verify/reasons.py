"""Why something on the GPU went wrong, in words: CUDA statuses, crashes, deadlines, missing interpreters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

STATUSES: dict[int, str] = {
    2: "out of GPU memory",
    3: "CUDA could not be initialised",
    35: "the driver is older than this CUDA runtime needs",
    36: "the driver library is a stub: LD_LIBRARY_PATH contains a stubs folder",
    46: "the GPU is busy or not available (exclusive compute mode, or it fell off the bus)",
    100: "the driver shows no CUDA device: device files, CUDA_VISIBLE_DEVICES or the GPU itself",
    101: "no such CUDA device",
    209: "the program contains no code for this GPU",
    214: "an uncorrectable ECC error happened",
    218: "the PTX could not be compiled",
    222: "the driver is too old to compile this PTX",
    304: "an operating system call failed: device files or limits",
    700: "a kernel accessed invalid memory",
    702: "a kernel ran past the launch timeout",
    719: "a kernel failed; its context is no longer usable",
    800: "not permitted",
    802: "the system is not yet initialised: NVSwitch fabric without a working fabric manager",
    803: "the driver library and the kernel module do not match",
    804: "forward compatibility is not supported on this GPU",
    999: "unknown error: the kernel module and device files are the usual cause",
}


def explain(answer: dict[str, Any]) -> str:
    """Return one sentence for an answer that carries an error."""
    error, status = answer.get("error"), answer.get("status")
    message = re.sub(r"\s+", " ", str(answer.get("message") or "")).strip()
    if error in ("timeout", "timeout-unkillable"):
        stuck = "; it is stuck in the driver and ends only with a reboot" if error == "timeout-unkillable" else ""
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
        return f"not run: {interpreter['error']}; give the Python that has CuPy with --python"
    return None
