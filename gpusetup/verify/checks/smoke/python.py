"""The Python environment, and each package above the frameworks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpusetup.content import host_code
from gpusetup.model.verdict import Finding, Item, levels_up_to
from gpusetup.verify.answers import asks_for_python, explain, failed_item, interpreter_problem, meanings
from gpusetup.verify.checks.smoke.cuda import too_few
from gpusetup.verify.registry import Row, check, checks, from_items, table

if TYPE_CHECKING:
    from ansible_collections.gpusetup.stack.roles.gpu_verify.files.gpu_measure import package_table

    from gpusetup.verify.machine import Machine
else:
    package_table = host_code("gpu_measure.package_table")


@check("python.environment", "Python with CuPy is ready", needs=("gpu",), asked=asks_for_python)
def python_environment(machine: Machine) -> Finding:
    """The Python that apply made (or the one that was named) is there and imports CuPy.

    By its absolute path: what a login shell's PATH finds is not what a service or an SSH command finds. When the stack
    has no CuPy, this is skipped; a Python that the stack or the caller asks for and that is missing is a fail. Where
    nobody asked for one, this warns and names the checks that could not run.

    To do: `gpusetup apply`, or name the interpreter with `--python /path/to/python`.
    """
    interpreter = machine.sections.get("interpreter")
    wanted = machine.wanted.has("cupy")
    if not isinstance(interpreter, dict):
        return Finding("skip", "not checked: no GPU was found (see gpu.count)")
    answers = [worker.get("hello", {}) for worker in machine.workers.values()]
    failed = [answer for answer in answers if "error" in answer]
    problem = interpreter_problem(machine)
    if (problem or failed) and wanted is False:
        return Finding("skip", "CuPy is not part of this host's stack")
    if problem and asks_for_python(machine):
        return Finding("fail", problem)
    if problem:
        return Finding("warn", f"{problem}; not run: {', '.join(_waiting(machine))} and the frameworks")
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


def _waiting(machine: Machine) -> list[str]:
    need = {"python", "pairs"} if len(machine.gpus) > 1 else {"python"}
    return [one.id for one in checks() if one.level in levels_up_to(machine.level) and need & set(one.needs)]


SMOKES = package_table.SMOKES


def answer_of(machine: Machine, package: str) -> dict[str, Any] | None:
    """Return the answer of the package's smoke test; None if it was not tried."""
    found = (machine.sections.get("packages") or {}).get(package)
    return found if isinstance(found, dict) else None


def applies(machine: Machine, package: str) -> bool:
    """Return whether a report lists the package: it is installed or part of the stack."""
    return answer_of(machine, package) is not None or asked(machine, package)


def asked(machine: Machine, package: str) -> bool:
    """Return whether the stack has the package, under any of its names."""
    return machine.wanted.asks_for(package, *(name for name, other in package_table.SAME.items() if other == package))


def _absent(machine: Machine, package: str, title: str) -> Finding | None:
    answer = answer_of(machine, package)
    if answer is None:
        interpreter = machine.sections.get("interpreter")
        if not isinstance(interpreter, dict) or interpreter.get("error"):
            return Finding("skip", "not run (see python.environment)")
        return Finding(
            "fail", f"the lock has {title}, and it is not installed in this Python; `gpusetup apply` installs it"
        )
    if answer.get("skipped"):
        return Finding("skip", f"not run: {answer['skipped']}")
    if answer.get("error") == "import":
        return Finding("fail", f"{title} cannot be imported: {_short(answer.get('message'))}{_way_out(answer)}")
    if answer.get("error"):
        return Finding("fail", f"{title}: {explain(answer)}")
    if not answer.get("devices"):
        return Finding("fail", f"{title} finds no GPU: {_short(answer.get('why_not'))} (see cuda.context)")
    version, wanted = str(answer.get("version")), machine.wanted.version(package)
    if wanted and version.partition("+")[0] != wanted.partition("+")[0]:
        return Finding(
            "fail", f"{title} is {version}, the lock says {wanted}; `gpusetup apply` installs it", version, wanted
        )
    return None


def _gpu(gpu: dict[str, Any], machine: Machine) -> Item:
    subject = f"GPU {gpu.get('index')}"
    for operation in gpu.get("operations") or []:
        name, error, limit = operation.get("name"), operation.get("error"), operation.get("limit")
        place = str(operation.get("ran_on"))
        if not re.match(r"cuda|gpu", place, re.IGNORECASE):
            text = f"{name} ran on {place}, not on the GPU, without an error"
            return Item(subject, "fail", text)
        if error is None or limit is None or not error <= limit:
            text = f"{name} gives no number"
            if error is not None:
                text = f"{name} is off by {error}, {limit:g} would be rounding error"
            return Item(subject, "fail", text, error, limit=limit)
    if gpu.get("error"):
        return _failed(subject, gpu, machine)
    if not gpu.get("operations"):
        return Item(subject, "fail", "nothing was computed")
    notes = [operation["note"] for operation in gpu["operations"] if operation.get("note")]
    return Item(subject, "pass", "; ".join(notes))


def _failed(subject: str, gpu: dict[str, Any], machine: Machine) -> Item:
    text = str(gpu["error"])
    if "out of memory" in text.lower():
        return failed_item(subject, {"error": "out-of-memory"}, busy=machine.beside_job(gpu.get("index")))
    if gpu.get("kind") == "unknown-release":
        text = f"not tried: this check does not know this release ({_short(text)})"
        return Item(subject, "warn", text)
    return Item(subject, "fail", _short(text) + _way_out({"message": text}))


def _short(text: object) -> str:
    """Return the first line that is not empty, cut after 260 characters: enough for a long path in an error."""
    lines = [line.strip() for line in str(text or "no reason is given").splitlines() if line.strip()]
    return (lines or [""])[0][:260]


def _way_out(answer: dict[str, Any]) -> str:
    message = str(answer.get("message") or "")
    for pattern, advice in map(dict.values, meanings()["import_advice"]):
        found = re.search(pattern, message)
        if found:
            return f"; {advice.format(*found.groups())}"
    return ""


def packages(machine: Machine, package: str) -> Finding:
    """A package above the frameworks.

    Each is tried in a process of its own, in the environment that holds it, on every GPU: a small operation whose right
    result is computed another way. What is not installed and not part of the lock is not listed. A result that was not
    computed on a GPU is a failure, however right. What nobody asked for, and came along with something else, only
    warns.

    To do: the text names what the package said and, where that is known, what mends it. By hand:
    `/opt/gpusetup/bin/python package_smoke.py NAME` in the folder of the files that measure.
    """
    smoke = next(smoke for smoke in SMOKES if smoke.package == package)
    finding = _absent(machine, package, smoke.title)
    if finding is None:
        answer = answer_of(machine, package) or {}
        items = [_gpu(gpu, machine) for gpu in answer.get("gpus") or []]
        names = ", ".join(operation["name"] for operation in (answer.get("gpus") or [{}])[0].get("operations", []))
        notes = "; ".join(sorted({item.text for item in items if item.verdict == "pass" and item.text}))
        few = None if smoke.engine and machine.busy else too_few(smoke.title, items, machine)
        finding = few or from_items(
            items, f"{answer.get('version')}: {names} correct on every GPU" + (f"; {notes}" if notes else "")
        )
    return finding


table(
    packages,
    tuple(
        Row(
            f"package.{smoke.package}",
            f"{smoke.title} computes on every GPU",
            f"{smoke.title}: {smoke.does}.",
            smoke.package,
        )
        for smoke in SMOKES
    ),
    needs=("gpu",),
    took="packages/{}",
    applies=applies,
    asked=asked,
)
