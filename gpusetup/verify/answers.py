"""Judge the answers of the measurements GPU by GPU (the better of two passes counts); what went wrong, in words."""

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpusetup.model.verdict import Blame, Item, Verdict
from gpusetup.verify.expected import Bound
from gpusetup.verify.machine import Machine
from gpusetup.verify.smi import SmiGpu

# NVLS reduces inside the switch and may exceed the links' rate a little; clocks may exceed the listed one.
_CREDIBLE = 1.15


def bounded(
    subject: str,
    passes: Sequence[float],
    bound: Bound | None,
    unit: str,
    *,
    gentle: bool = False,
    may_fail: bool = True,
) -> Item:
    """Return the verdict on a rate: the better pass is compared, so that a fail needs all passes below the floor.

    `gentle`: measured beside a job, so not judged. `may_fail`: False makes a low figure a warning.
    """
    best = max(passes)
    if gentle:
        text = f"{best:.4g} {unit} beside another job: not judged"
        return Item(subject, "warn", text, best, blame="job")
    if bound is None:
        return Item(subject, "skip", f"{best:.4g} {unit}, no reference value; compare with --baseline", best)
    if best > _CREDIBLE * bound.theory:
        text = f"{best:.4g} {unit} exceeds what the hardware can do ({bound.theory:.4g}): the measurement is invalid"
        return Item(subject, "fail", text, best, bound.expected)
    verdict, limit = crossed(best, bound, may_fail=may_fail)
    both = f" in {len(passes)} passes" if len(passes) > 1 else ""
    least = f"{both}, at least {bound.fail:.4g} is expected" if verdict == "fail" else ""
    text = "" if verdict == "pass" else f"{best:.4g} {unit}{least}, {bound.expected:.4g} is usual"
    return Item(subject, verdict, text, best, bound.expected, limit)


def crossed(figure: float, bound: Bound, *, may_fail: bool = True) -> tuple[Verdict, float]:
    """Return the verdict on a rate and the floor that it is below; of a pass the floor of a fail."""
    if figure < bound.fail and may_fail:
        return "fail", bound.fail
    return ("warn", bound.warn) if figure < bound.warn else ("pass", bound.fail)


def sound(machine: Machine, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the key and answer of each GPU whose measurement did not fail."""
    for key, answer in machine.answers(section).items():
        if "error" not in answer:
            yield key, answer


def failed(machine: Machine, section: str) -> list[Item]:
    """Return an item for each GPU whose measurement failed or did not run."""
    items = []
    answers = machine.answers(section)
    for key in machine.workers:
        if key not in answers or "error" in machine.workers[key].get("open", {"error": ""}):
            items.append(Item(label(key), "skip", "not run (see cuda.context)"))
        elif "error" in answers[key]:
            items.append(failed_item(label(key), answers[key], busy=machine.beside_job(key)))
    return items


def left_out(machine: Machine, measured: Container[str]) -> list[Item]:
    """Return an item for each GPU that a measurement of several left out."""
    return [Item(label(key), "skip", "not measured") for key in machine.workers if key not in measured]


def label(key: str) -> str:
    """Return the name of a GPU or a slice in texts."""
    return f"GPU {key}"


def gpu_of(machine: Machine, key: str) -> SmiGpu | None:
    """Return the GPU behind a worker's key."""
    index = int(key.split("/", maxsplit=1)[0])
    return next((gpu for gpu in machine.gpus if gpu.index == index), None)


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
    blame: Blame = "stack" if answer.get("error") in ("import", "compile") else ""
    if "killed by SIGKILL" in str(answer.get("message")):  # by somebody, or by the kernel for lack of memory
        blame = "host"
    return Item(subject, "fail", explain(answer), blame=blame)


def interpreter_problem(machine: Machine) -> str | None:
    """Return why no Python could start a worker; None if one could."""
    interpreter = machine.sections.get("interpreter")
    if not isinstance(interpreter, dict) or not interpreter.get("error"):
        return None
    problem = interpreter["error"] if asks_for_python(machine) else "no Python was named, and gpusetup made none here"
    return f"{problem}; name one that has CuPy with --python /path/to/python"


def asks_for_python(machine: Machine) -> bool:
    """Return whether the stack or the caller asks for a Python with CuPy; True for a record that cannot be read."""
    named = (machine.sections.get("interpreter") or {}).get("named")
    return bool(named or machine.wanted.has("cupy") or machine.recorded_lock().unread)
