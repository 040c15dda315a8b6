"""Print findings and diagnoses, 80 columns wide; commands stay on one line so they can be copied."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpusetup.doctor.catalogue import catalogue, read_table
from gpusetup.doctor.other_trouble import Shown
from gpusetup.model import visible
from gpusetup.model.diagnosis import Diagnosis, Finding, NextStep, Recovered, Recovery, Reference

_WIDTH = 80
_MARK = {"fine": "ok", "cause": "CAUSE", "unknown": "?", "notice": "note"}

_TEXTS = ("\n".join([*text, ""]) for text in json.loads(read_table("unknown.json")).values())
CLEAN, NOT_RECOGNISED, TELL_US, NO_LINE_KNOWN, NO_TEXT, NO_WORD_OF_IT, A_QUESTION = _TEXTS


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    rest = first if rest is None else rest
    wrap = textwrap.TextWrapper(_WIDTH, first, rest, break_on_hyphens=False, break_long_words=False)
    return [visible(line) for line in wrap.wrap(text)]


def _finding(finding: Finding, *, heading: str) -> Iterator[str]:
    yield from _wrapped(f"{heading}{finding.title} [{finding.cause}]", rest="  ")
    for line in finding.evidence:
        where = f"line {finding.line}: " if finding.line and line == finding.evidence[0] and finding.line > 1 else ""
        shown = line if len(line) <= 300 else line[:300] + " …"
        for part in f"{where}{shown}".splitlines():
            yield from _wrapped(part.strip(), "  | ")
    if finding.count > len(finding.evidence):
        yield f"  | ({finding.count} times)"
    yield ""
    yield from _wrapped(finding.explanation, "  ")
    for detail in finding.details:
        yield from _wrapped(f"- {detail}", "  ", "    ")
    if finding.recovery is not None:
        yield from _wrapped(f"- It needs {needs(finding.recovery)}.", "  ", "    ")
    if finding.fixes:
        yield ""
    for fix in finding.fixes:
        yield from _wrapped(f"fix: {fix.text}", "  ", "       ")
        for command in fix.commands:
            yield f"       $ {command}"
    if finding.checks:
        yield "  to confirm it:"
        for command in finding.checks:
            yield f"       $ {command}"
    yield f"  more: gpusetup doctor --explain {finding.cause}"


def needs(recovery: Recovery) -> str:
    """Return a recovery in one sentence: what is needed, and who says so."""
    return f"{recovery.text} ({'; '.join(recovery.why)})"


def reference_text(reference: str, entry: Reference) -> str:
    """Return the page of a reference for a terminal."""
    lines = [*_wrapped(f"{reference}: {entry.title}", rest="  "), ""]
    if entry.meaning:
        lines += _wrapped(entry.meaning, "  ")
    lines += _wrapped(f"fix: {entry.fix}", "  ", "       ")
    return "\n".join(lines) + "\n"


def outside_text(shown: Iterable[Shown]) -> str:
    """Return the answer for a text about trouble that is not the GPU installation's."""
    lines = ["no fault of the GPU installation in this text."]
    for one in shown:
        lines += ["", *_wrapped(f"{one.title} [{one.id}]", rest="  "), *_wrapped(one.line, "  | ")]
        lines += [*_wrapped(one.advice, "  "), *([commands_text(one.commands)] if one.commands else ())]
    return "\n".join(lines).rstrip() + "\n"


def commands_text(commands: Iterable[str]) -> str:
    """Return commands to copy, each on its line."""
    return "".join(f"       $ {visible(command)}\n" for command in commands)


def similar_text(causes: Sequence[str]) -> str:
    """Return the causes of similar messages; empty without any."""
    if not causes:
        return ""
    lines = ["", "Messages with similar words have these causes, the likeliest first; none is sure:"]
    for one in causes:
        lines += _wrapped(f"{catalogue()[one].title} [{one}]", "  ", "    ")
    return "\n".join([*lines, f"       $ gpusetup doctor --explain {causes[0]}"]) + "\n"


def steps_text(steps: Sequence[NextStep]) -> str:
    """Return the commands that get more about a text whose cause is not known; empty without any."""
    if not steps:
        return ""
    lines = ["", *_wrapped(f"The text names {steps[0].program}. Give the doctor the line that shows the cause:")]
    for step in steps:
        lines += [*_wrapped(step.text, "  "), f"       $ {visible(step.command)}"]
    return "\n".join(lines) + "\n"


def one_line(finding: Finding) -> str:
    """Return a finding on one line, with the recovery that gpusetup can do itself."""
    evidence = f": {visible(finding.evidence[0])}" if finding.evidence else ""
    needed = finding.recovery if finding.recovery is not None and finding.recovery.steps else None
    return f"{finding.title} [{finding.cause}]{evidence}" + (f" (needs {needed.text})" if needed else "")


def messages(findings: Iterable[Finding], *, limit: int = 5) -> str:
    """Return the findings in a text: the first ones in full, the others on one line each."""
    found = list(findings)
    if not found:
        return NOT_RECOGNISED
    words = {"root": "cause: ", "symptom": "symptom: ", "notice": "harmless: "}
    lines: list[str] = []
    for finding in found[:limit]:
        lines += [*_finding(finding, heading=words[finding.kind]), ""]
    if len(found) > limit:
        lines.append("also found:")
        for finding in found[limit:]:
            lines += _wrapped(one_line(finding), "  ", "    ")
    return "\n".join(lines).rstrip() + "\n"


def diagnoses(hosts: Mapping[str, Diagnosis], failures: Mapping[str, str]) -> str:
    """Return every host's diagnosis; of several hosts, healthy ones take one line each."""
    lines: list[str] = []
    for name, diagnosis in hosts.items():
        if diagnosis.healthy and len(hosts) > 1:
            lines.append(f"{name}: healthy, {len(diagnosis.ruled)} questions")
            continue
        lines += [*_diagnosis(name, diagnosis), ""]
    lines += [f"{name}: no answer: {why}" for name, why in failures.items()]
    return "\n".join(lines).rstrip() + "\n"


def recoveries(hosts: Mapping[str, Diagnosis], found: Mapping[str, Recovered]) -> str:
    """Return what each host needs, and what was or would be done about it."""
    lines: list[str] = []
    for name, told in found.items():
        if told.state == "nothing-to-do":
            if len(found) == 1 or not hosts[name].healthy:
                lines.append(f"{name}: nothing to recover" + ("" if hosts[name].healthy else ": see the fixes above"))
            continue
        if told.recovery is not None:
            gpus = f" of {', '.join(told.recovery.gpus)}" if told.recovery.gpus else ""
            lines += _wrapped(f"{name}{gpus}: needs {needs(told.recovery)}", rest="  ")
        lines += _wrapped(f"{_STATES[told.state]}{_what(told)}", "  ", "    ")
        lines += _wrapped(f"fix: {told.hint}", "  ", "       ") if told.hint else []
        if told.state == "by-hand" and told.recovery is not None:
            lines += [f"       $ {command}" for command in told.recovery.commands]
    return "\n".join(lines) + "\n"


_STATES = {
    "by-hand": "nothing of it is gpusetup's to do", "planned": "would be done", "refused": "refused",
    "unreachable": "cannot be reached", "failed": "failed", "pending-reboot": "pending", "done": "done",
    "not-gone": "done, and it did not help", "nothing-to-do": "",
}  # fmt: skip


def _what(told: Recovered) -> str:
    steps = told.did or (told.recovery.steps if told.recovery is not None and told.state == "planned" else ())
    parts = [", ".join(steps), told.message + (f" [{told.reference}]" if told.reference else "")]
    shown = "; ".join(part for part in parts if part)
    return f": {shown}" if shown else ""


def _diagnosis(name: str, diagnosis: Diagnosis) -> Iterator[str]:
    verdict = "healthy" if diagnosis.healthy else "sick"
    yield f"{name}: {verdict}" + (" (its GPUs and kernel are simulated)" if diagnosis.simulated else "")
    for ruled in diagnosis.ruled:
        label = f"  {_MARK[ruled.answer]:<6}{ruled.step:<22}"
        yield from _wrapped(ruled.text, label, " " * len(label))
    if diagnosis.cause is not None:
        yield ""
        yield from _finding(diagnosis.cause, heading="cause: ")
    if diagnosis.recovery is not None and diagnosis.recovery.steps:
        yield ""
        yield from _wrapped(f"recovery: {needs(diagnosis.recovery)}", rest="  ")
        yield "       $ gpusetup doctor --apply"
    for finding in diagnosis.notices:
        yield ""
        yield from _wrapped(f"note: {one_line(finding)}", rest="  ")
        yield f"  more: gpusetup doctor --explain {finding.cause}"
    if diagnosis.root_would_add:
        yield ""
        yield "as root it could also read:"
        for text in diagnosis.root_would_add:
            yield from _wrapped(text, "  ", "    ")
