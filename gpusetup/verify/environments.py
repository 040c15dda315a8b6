"""Verify the named Python environments of a host, each with its own Python.

The host's document keeps the observations of each environment below `environments`; results have the id `CHECK@NAME`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gpusetup.model.settings import Environment
from gpusetup.model.verdict import Result, Verdict
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.probe import Ask, Observed
from gpusetup.verify.registry import blamed, judge

_OF_THE_HOST = frozenset({"container", "cuda", "cudnn", "driver", "gpu", "nvcc"})
"""Families of checks that do not depend on an environment's Python, or that the host's own run has judged."""
_LEAST = 10.0
"""With fewer seconds left of the budget, no further environment is observed."""


def _named(document: dict[str, Any]) -> tuple[Environment, ...]:
    lock = Machine(document).recorded_lock()
    return (lock.wanted.environments or ()) if lock.wanted is not None else ()


def asks(ask: Ask, document: dict[str, Any]) -> dict[str, Ask]:
    """Return the request for each environment of a host: level smoke, so that nothing is measured twice.

    Empty if the caller named a Python, if GPUs are in use or missing, and if the budget is used up.
    """
    if ask.level == "quick" or ask.python is not None or document.get("left_alone") or not document.get("gpus"):
        return {}
    left = ask.budget - float(document.get("seconds") or 0)
    if ask.budget and left < _LEAST:
        return {}
    same = msgspec.structs.replace(ask, level="smoke", budget=left if ask.budget else 0.0)
    return {item.name: msgspec.structs.replace(same, python=f"{item.path}/bin/python") for item in _named(document)}


def look_into(ask: Ask, document: dict[str, Any], look: Callable[[Ask], Observed]) -> None:
    """Observe the environments of a host one after the other, and keep the answers in the host's document."""
    for name, asked in asks(ask, document).items():
        kept(document, name, look(asked))


def kept(document: dict[str, Any], name: str, seen: Observed) -> None:
    """Keep an environment's observations in the host's document, or why there are none."""
    there = document.setdefault("environments", {})
    away = seen.postponed or seen.unreachable
    missed = {"problem": seen.problem, "blame": "" if away else "gpusetup" if seen.own_fault else "stack"}
    there[name] = missed if seen.document is None else seen.document


def results_of(machine: Machine, of_host: tuple[Result, ...]) -> tuple[Result, ...]:
    """Return the results of all environments of a host."""
    named = {item.name: item for item in _named(machine.document)}
    results: list[Result] = []
    for name, document in (machine.document.get("environments") or {}).items():
        if problem := document.get("problem"):
            blame = document.get("blame", "")
            identity, text = f"python.environment@{name}", f"environment {name}: {problem}"
            verdict: Verdict = "fail" if blame else "skip"
            result = Result(id=identity, level="smoke", verdict=verdict, text=text, blame=blame)
            results.append(blamed(identity, result, asked=None))
            continue
        lock = machine.recorded_lock()
        wanted = msgspec.structs.replace(lock, stack=named[name].stack) if name in named else lock
        found = judge(Machine(document, Wanted(wanted, gpus=machine.wanted.gpus)))
        results += in_environment(of_host, found, name)
    return tuple(results)


def in_environment(of_host: Iterable[Result], found: Iterable[Result], name: str) -> tuple[Result, ...]:
    """Return an environment's results under its name, without those that the host's own run has judged."""
    seen = {result.id for result in of_host if result.level == "quick"}
    return tuple(
        msgspec.structs.replace(result, id=f"{result.id}@{name}", text=f"environment {name}: {result.text}")
        for result in found
        if result.id not in seen and result.id.partition(".")[0] not in _OF_THE_HOST
    )
