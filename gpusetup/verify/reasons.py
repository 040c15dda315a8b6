"""Texts for what went wrong on a GPU: CUDA statuses, crashes, deadlines, missing interpreters."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.model.verdict import Item

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine


@cache
def meanings() -> dict[str, Any]:
    """Return the tables of CUDA statuses, kernel log lines, import errors and exporters' metric names."""
    found: dict[str, Any] = msgspec.json.decode((Path(__file__).parent / "data/meanings.json").read_bytes())
    return found


def explain(answer: dict[str, Any]) -> str:
    """Return one sentence about the error of an answer."""
    error, status = answer.get("error"), answer.get("status")
    message = re.sub(r"\s+", " ", str(answer.get("message") or "")).strip()
    if error in ("timeout", "timeout-unkillable"):
        stuck = "; it is stuck in the driver and ends only with a reboot" if error == "timeout-unkillable" else ""
        return f"no answer within {answer.get('deadline', 0):g} s; killed{stuck}"
    if error == "crashed":
        tail = str(answer.get("stderr") or "").strip().splitlines()[-1:]
        return f"the process crashed: {message}" + (f" ({tail[0][:120]})" if tail else "")
    if known := meanings()["statuses"].get(str(status)):
        name = message.split(":")[0] if message.startswith("cudaError") else ""
        return f"{known} (CUDA error {status}{', ' + name if name else ''})"
    if error == "import":
        return f"CuPy cannot be imported: {message[:200]}"
    if error == "out-of-memory":
        return "out of GPU memory"
    return message[:240] or str(error)


def failed_item(subject: str, answer: dict[str, Any], *, busy: bool) -> Item:
    """Return the item of an answer with an error; lack of memory while a job runs is the job's fault."""
    if busy and answer.get("error") == "out-of-memory":
        return Item(subject, "fail", "out of GPU memory while another job runs", blame="job")
    return Item(subject, "fail", explain(answer), blame="stack" if answer.get("error") in ("import", "compile") else "")


def interpreter_problem(machine: Machine) -> str | None:
    """Return why no Python could start a worker; None if one could."""
    interpreter = machine.sections.get("interpreter")
    if isinstance(interpreter, dict) and interpreter.get("error"):
        return f"not run: {interpreter['error']}; give the Python that has CuPy with --python"
    return None
