"""The registry of checks: functions below `checks/<level>/`, and tables of checks that differ in one part.

A check judges observations and never runs anything. It names what it needs; where that is missing, the check is skipped
with the reason: a check that did not run is never a pass.

A failure fails the host if it concerns the machine, or software that the host's record or the caller asks for. One of
other software, for lack of memory beside a running job, or of a check that raises is a warning: it never takes a node
out of service.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec

from gpusetup.model.verdict import Blame, Curves, Finding, Grid, Item, Level, Result, Verdict, levels_up_to, worst
from gpusetup.verify.answers import interpreter_problem
from gpusetup.verify.machine import Machine

Concluded = TypeVar("Concluded", Finding, Result)
Told = TypeVar("Told")
_TO_DO = "To do:"
"""Every docstring that is a page contains this, and no other docstring does."""
LEVELS: tuple[Level, ...] = ("quick", "smoke", "full", "stress")


@dataclass(frozen=True)
class Check:
    """A registered check."""

    id: str
    level: Level
    title: str
    needs: tuple[str, ...]
    took: str
    """Where its seconds are, for `Machine.took`."""
    judge: Callable[[Machine], Finding]
    page: str
    """The docstring: what the check reads, how it judges, what to do."""
    applies: Callable[[Machine], bool] = lambda _machine: True
    """Whether a report on this machine lists the check."""
    asked: Callable[[Machine], bool] | None = None
    """Whether somebody asked for the software that it checks: if nobody did, a failure is a warning."""

    def run(self, machine: Machine) -> Result:
        """Return the check's result; a skip or failure where something that it needs is missing."""
        lacking = _missing(self.needs, machine)
        finding = self.blamed(lacking if lacking is not None else self.judge(machine), machine)
        found = msgspec.structs.asdict(finding)
        seconds = round(machine.took(self.took), 3) if lacking is None else 0.0
        return Result(id=self.id, level=self.level, seconds=seconds, **found)

    def blamed(self, finding: Concluded, machine: Machine) -> Concluded:
        """Return a finding or result with `blame` set."""
        return blamed(self.id, finding, asked=self.asked(machine) if self.asked is not None else None)


_FOUND: dict[str, Check] = {}


def check(
    identity: str,
    title: str,
    *,
    needs: tuple[str, ...] = (),
    took: str = "",
    applies: Callable[[Machine], bool] = lambda _machine: True,
    asked: Callable[[Machine], bool] | None = None,
) -> Callable[[Callable[[Machine], Finding]], Callable[[Machine], Finding]]:
    """Register the decorated function: the folder of its file is the level, its docstring the page."""

    def register(judge: Callable[[Machine], Finding]) -> Callable[[Machine], Finding]:
        level, page = _place(judge)
        _FOUND[identity] = Check(identity, level, title, needs, took, judge, page, applies, asked)
        return judge

    return register


def in_stack(name: str) -> Callable[[Machine], bool]:
    """Return a function that returns whether the machine's stack has the component."""
    return lambda machine: machine.wanted.asks_for(name)


def in_packages(group: str) -> Callable[[Machine], bool]:
    """Return a function that returns whether the host's record has system packages of the group."""
    return lambda machine: machine.wanted.packages(group)


class Row(NamedTuple):
    """One check of a table: the first line of its page, and the part of the measurement that it judges."""

    id: str
    title: str
    says: str
    part: str


def table(
    judge: Callable[[Machine, str], Finding],
    rows: tuple[Row, ...],
    *,
    needs: tuple[str, ...],
    took: str = "",
    applies: Callable[[Machine, str], bool] = lambda _machine, _part: True,
    asked: Callable[[Machine, str], bool] | None = None,
) -> None:
    """Register checks that differ only in the part that they judge; they share their page but for its first line."""
    level, page = _place(judge)
    shared = page.partition("\n")[2]
    for row in rows:
        concerns = _of_part(applies, row.part)
        wanted = _of_part(asked, row.part) if asked is not None else None
        text, look = f"{row.says}\n{shared}", _of_part(judge, row.part)
        _FOUND[row.id] = Check(row.id, level, row.title, needs, took.format(row.part), look, text, concerns, wanted)


def _of_part(function: Callable[[Machine, str], Told], part: str) -> Callable[[Machine], Told]:
    return lambda machine: function(machine, part)


def _place(judge: Callable[..., Finding]) -> tuple[Level, str]:
    """Return the level (the folder of the judge's file) and the page: the docstring of the judge or of its file."""
    module = judge.__module__
    level = next((level for level in LEVELS if level == module.split(".")[-2]), None)
    if level is None:
        raise ValueError(f"{module} is not below checks/<level>/")
    own = inspect.cleandoc(judge.__doc__ or "")
    return level, own if _TO_DO in own else (sys.modules[module].__doc__ or "").strip()


@cache
def checks() -> tuple[Check, ...]:
    """Return all checks, ordered by level and name."""
    for level in LEVELS:
        package = importlib.import_module(f"gpusetup.verify.checks.{level}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return tuple(sorted(_FOUND.values(), key=lambda found: (LEVELS.index(found.level), found.id)))


def find(identity: str) -> Check:
    """Return the check with this id."""
    return next(found for found in checks() if found.id == identity)


def from_items(
    items: list[Item],
    well: str,
    *,
    unit: str = "",
    nothing: str = "nothing to check",
    figures: tuple[Grid | Curves, ...] = (),
) -> Finding:
    """Return the gravest verdict of the items, with the texts of the items that have it.

    `well` is the text of a pass, `nothing` the text of the skip without items.
    """
    if not items:
        return Finding("skip", nothing, figures=figures)
    verdict = worst([item.verdict for item in items])
    grave = [item for item in items if item.verdict == verdict]
    missed = [item for item in items if item.verdict == "skip"]
    text = "; ".join([well, *([_join(missed)] if missed else [])]) if verdict == "pass" else _join(grave)
    leading = grave[0]
    numbers = [
        item for item in grave if isinstance(item.measured, (int, float)) and isinstance(item.limit, (int, float))
    ]
    if numbers:
        # The part nearest to its limit or, where parts are beyond it, furthest beyond.
        leading = (min if verdict == "pass" else max)(numbers, key=_from_limit)
    unit = "" if isinstance(leading.measured, str) else unit
    return Finding(verdict, text, leading.measured, leading.expected, leading.limit, unit, tuple(items), figures)


def _from_limit(item: Item) -> float:
    limit = float(item.limit or 0)
    return abs(float(item.measured or 0) - limit) / (limit or 1.0)


def _join(items: list[Item]) -> str:
    said: dict[str, list[str]] = {}
    for item in items:
        said.setdefault(item.text, []).append(item.subject)
    parts = []
    for text, subjects in said.items():
        names = ", ".join(subjects[:4]) + (f" and {len(subjects) - 4} more" if len(subjects) > 4 else "")
        parts.append(f"{names}: {text}")
    return "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")


def _gpu(machine: Machine) -> Finding | None:
    if machine.simulated:
        return Finding("skip", "the GPU is simulated")
    if machine.facts.get("error"):
        return Finding("fail", f"not checked: the host probe failed: {machine.facts['error']}", blame="host")
    if not machine.has_gpu:
        return Finding("skip", "no NVIDIA GPU on PCI")
    return None


def _expected(machine: Machine) -> Finding | None:
    """Return None also for a machine without a GPU where something says that it should have one."""
    lacking = _gpu(machine)
    missing_one = lacking is not None and lacking.verdict == "skip" and not machine.simulated
    return None if missing_one and machine.gpu_expected else lacking


def _smi(machine: Machine) -> Finding | None:
    if machine.gpus:
        return None
    return Finding("skip", "not checked: nvidia-smi gave no list of GPUs (see driver.responds)")


def _python(machine: Machine) -> Finding | None:
    if machine.workers:
        return None
    return Finding("skip", f"not run: {interpreter_problem(machine) or 'no GPU was found (see gpu.count)'}")


def _context(machine: Machine) -> Finding | None:
    if any("error" not in worker.get("open", {"error": ""}) for worker in machine.workers.values()):
        return None
    return Finding("skip", "not run: no GPU could be opened (see cuda.context)")


def _pairs(machine: Machine) -> Finding | None:
    if len(machine.gpus) < 2:
        return Finding("skip", "only one GPU: no pair to test")
    if "peer" not in machine.sections and "nccl" not in machine.sections:
        whole = [gpu for gpu in machine.gpus if not machine.mig(gpu)]
        if len(whole) < 2:
            return Finding("unsupported", "MIG instances have no peers")
        return Finding("skip", "not run: fewer than two GPUs could be opened (see cuda.context)")
    return None


NEEDS: dict[str, tuple[str, Callable[[Machine], Finding | None]]] = {
    "expected": ("an NVIDIA GPU, present or expected", _expected),
    "gpu": ("an NVIDIA GPU in the machine", _gpu),
    "smi": ("an answer from nvidia-smi", _smi),
    "python": ("the Python environment with CuPy", _python),
    "context": ("a GPU that could be opened", _context),
    "pairs": ("two GPUs or more", _pairs),
}


def _missing(needs: tuple[str, ...], machine: Machine) -> Finding | None:
    for need in needs:
        finding = NEEDS[need][1](machine)
        if finding is not None:
            return finding
    return None


def judge(machine: Machine) -> tuple[Result, ...]:
    """Return one result per check of the machine's level; a check that cannot read its observations fails alone."""
    levels = levels_up_to(machine.level)
    results = (_result(check, machine) for check in checks() if check.level in levels)
    return tuple(result for result in results if result is not None)


def _result(check: Check, machine: Machine) -> Result | None:
    try:
        return check.run(machine) if check.applies(machine) else None
    except Exception as error:  # noqa: BLE001 - documents come from outside; the next check must run
        text = f"could not be evaluated: {type(error).__name__}: {error}"
        raised = Result(id=check.id, level=check.level, verdict="fail", text=text, blame="gpusetup")
        return check.blamed(raised, machine)


_FAMILIES: dict[str, Blame] = {
    "cuda": "driver", "device": "driver", "driver": "driver", "fabric": "driver", "nouveau": "driver",
    "gds": "host", "launch": "host", "nccl": "host", "p2p": "host", "pcie": "host", "rdma": "host", "vgpu": "host",
    "container": "stack", "desktop": "stack", "monitoring": "stack", "python": "stack",
}  # fmt: skip
"""Whose fault a failure is unless it says another, by the family of its check; `gpu` for all other families."""


_WHY = {
    "environment": "not installed by gpusetup: a warning for its owner",
    "job": "a running job is the cause: a warning",
    "gpusetup": "a fault of gpusetup, not of the machine: please report it",
}


def reblamed(results: tuple[Result, ...], before: tuple[Result, ...], machine: Machine) -> tuple[Result, ...]:
    """Return the results, with a new `blame` where a baseline or `--strict` changed the verdict."""
    known = {check.id: check for check in checks()}
    return tuple(
        new if new is old else known[new.id].blamed(msgspec.structs.replace(new, blame=""), machine)
        for new, old in zip(results, before, strict=True)
    )


def blamed(identity: str, finding: Concluded, *, asked: bool | None) -> Concluded:
    """Return the finding with `blame` set; a failure that is not the host's fault becomes a warning with the reason.

    `asked`: whether somebody asked for the software that the check tests; None for checks of the machine.
    """
    if finding.verdict not in ("fail", "warn"):
        return finding
    usual = finding.blame or _FAMILIES.get(identity.partition(".")[0], "gpu")
    if asked is not None and not finding.blame:
        usual = "stack" if asked else "environment"
    items = tuple(_judged(item, usual) for item in finding.items)
    causes = [item for item, before in zip(items, finding.items, strict=True) if before.verdict == finding.verdict]
    grave = [item for item in causes if item.verdict == finding.verdict] or causes
    blame: Blame = grave[0].blame if grave else usual
    verdict = _lenient(finding.verdict, blame)
    text = f"{finding.text} ({_WHY[blame]})" if verdict != finding.verdict else finding.text
    return msgspec.structs.replace(finding, verdict=verdict, blame=blame, items=items, text=text)


def _judged(item: Item, usual: Blame) -> Item:
    if item.verdict not in ("fail", "warn"):
        return item
    blame = item.blame or usual
    return msgspec.structs.replace(item, verdict=_lenient(item.verdict, blame), blame=blame)


def _lenient(verdict: Verdict, blame: Blame) -> Verdict:
    return "warn" if verdict == "fail" and blame in _WHY else verdict
