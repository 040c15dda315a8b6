"""The commands that get more about a text without a known cause, by the program that a line of trouble names."""

import re
from functools import cache, lru_cache

import msgspec

from gpusetup.doctor.catalogue import expressions, read_table
from gpusetup.doctor.other_trouble import TROUBLE, judged
from gpusetup.doctor.patterns import FEW
from gpusetup.doctor.scan import AMD, MODULE, NVIDIA
from gpusetup.model.diagnosis import Finding, NextStep, Program

PIPE = " 2>&1 | gpusetup doctor -"
_GRAVE, _MILD = expressions("grave", "mild")


@cache
def programs() -> tuple[tuple[Program, re.Pattern[str]], ...]:
    """Return every program with its compiled expression; of several that a text names, the first one counts."""
    table = msgspec.json.decode(read_table("next_steps.json"), type=dict[str, Program])
    return tuple((program, re.compile(program.regex, re.MULTILINE)) for program in table.values())


def next_steps(text: str) -> tuple[NextStep, ...]:
    """Return the steps for the program in the lines of trouble, or in the whole text if it is short; else nothing."""
    lines = trouble(text)
    return (_steps(lines, text) or _steps(text if text.count("\n") < FEW else "", text)) if lines else ()


@lru_cache(maxsize=1)
def trouble(text: str) -> str:
    """Return the lines which say that something failed, and are not of a lower level; none if it is another maker's."""
    if others(text):
        return ""
    lines = (line for line, kind in judged(text) if kind is None and not _MILD.search(line))
    return "\n".join(line for line in lines if TROUBLE.search(line.encode().lower()) or _GRAVE.search(line))


def others(text: str) -> bool:
    """Return whether a text is about AMD's stack or another maker's module."""
    return bool(AMD.search(text) or (MODULE.search(text) and not NVIDIA.search(text)))


def after_symptoms(found: tuple[Finding, ...]) -> tuple[NextStep, ...]:
    """Return the steps for findings that are only consequences, without those that a finding has."""
    if any(finding.kind == "root" for finding in found):
        return ()
    lines = "\n".join(line for one in found if one.kind == "symptom" for line in one.evidence)
    return tuple(step for step in _steps(lines, lines) if step.command.removesuffix(PIPE) not in str(found))


def _steps(lines: str, text: str) -> tuple[NextStep, ...]:
    """Return the steps of the first program that the lines name, with the names (a unit, a version) from the text."""
    named = next((program for program, regex in programs() if regex.search(lines)), None)
    return tuple(_filled(step, named, text) for step in named.steps) if named is not None else ()


def _filled(step: NextStep, program: Program, text: str) -> NextStep:
    command = step.command
    for place, expression in program.names.items():
        if found := re.search(expression, text):
            command = command.replace(place, found[1])
    return msgspec.structs.replace(step, program=program.name, command=command + PIPE)
