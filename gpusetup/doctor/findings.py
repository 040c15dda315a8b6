"""Turn matches in a text into findings: root causes first, their consequences hidden, numbers decoded."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.doctor.advice import bare_numbers, details
from gpusetup.doctor.builds import filled
from gpusetup.doctor.catalogue import PAGES, catalogue, read_table
from gpusetup.doctor.library_packages import fixes_for
from gpusetup.doctor.scan import Match, scan, scan_chunks
from gpusetup.doctor.similar import plausible
from gpusetup.model.diagnosis import Finding
from gpusetup.recovery.table import GPU, gravest, of_cause, of_driver, of_xid, settled, table
from gpusetup.recovery.table import Reset as Since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.doctor.look import Look
    from gpusetup.model.diagnosis import Cause, Recovery, Reset

_ACTION = re.compile(r"(?i)recovery action[^\n]*?\bto (?:0x)?([0-9a-f]) ?\(")


def recovery_of(cause: Cause, groups: dict[str, str], evidence: Iterable[str]) -> Recovery | None:
    """Return the recovery for a cause: by the driver's logged action, the Xids seen or of the cause, or our table."""
    lines = tuple(evidence)
    for line in lines:
        if action := _ACTION.search(line):
            words = [row.words[0] for row in table().driver if row.number == int(action[1], 16)]
            return of_driver(words[0] if words else action[1], gpus_in(lines))
    seen = [int(number) for number in groups.get("xid", "").split(", ") if number.isdigit()]
    found = [of_xid(number, gpus_in(lines)) for number in seen or cause.xids]
    return gravest(found) or of_cause(cause.id, gpus_in(lines))


def gpus_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the PCI addresses in lines."""
    return tuple(dict.fromkeys(address.lower() for line in lines for address in GPU.findall(line)))


def asked(look: Look) -> Iterator[Recovery]:
    """Yield the recovery that the driver requests, for each GPU with a request."""
    for address, wanted in look.symptoms.recovery.items():
        if wanted.action is not None:
            told = of_driver(wanted.action, [address])
            if told.need != "nothing":
                yield told


def of_machine(look: Look, cause: Finding | None, notices: Iterable[Finding]) -> Recovery | None:
    """Return the gravest recovery that a machine needs, with its GPUs' full addresses."""
    found = [finding.recovery for finding in (cause, *notices) if finding is not None and finding.recovery is not None]
    told = gravest([*found, *asked(look)])
    if told is None or told.need == "nothing":
        return None
    known = [gpu.address for gpu in look.facts.gpus]
    named = tuple(dict.fromkeys(next((full for full in known if full.startswith(gpu)), gpu) for gpu in told.gpus))
    if look.guest is not None:  # its driver and its reboots are somebody else's
        return msgspec.structs.replace(told, gpus=named, steps=(), commands=())
    return msgspec.structs.replace(told, gpus=named)


def current(log: str, resets: dict[str, Reset]) -> str:
    """Drop the lines of a kernel log about a GPU that was reset after them."""
    if not resets:
        return log
    when = {gpu: Since(reset.uptime, reset.time) for gpu, reset in resets.items()}
    return "".join(line for line in log.splitlines(keepends=True) if not settled(line, when))


_WEIGHT = {"root": 0, "symptom": 1, "notice": 2}
_SHORT = 200
"""A text of at most this length may be just an error number, or typed from memory."""


def finding_of(
    cause: Cause, evidence: Iterable[str] = (), groups: dict[str, str] | None = None, manager: str | None = None
) -> Finding:
    """Return the finding for a cause, with its numbers decoded; `manager` None means this machine's package manager."""
    shown = tuple(evidence)
    return Finding(
        cause=cause.id,
        title=cause.title,
        kind=cause.kind,
        explanation=filled(cause.explanation),
        evidence=shown,
        details=details(cause.id, groups or {}),
        checks=cause.checks,
        fixes=fixes_for(cause.id, groups or {}, cause.fixes, manager),
        recovery=recovery_of(cause, groups or {}, shown),
        page=f"{PAGES}/{cause.id}.md",
    )


def _finding(match: Match) -> Finding:
    finding = finding_of(catalogue()[match.cause], match.evidence, match.groups)
    return msgspec.structs.replace(finding, line=match.line, count=match.times)


def findings(matches: Iterable[Match]) -> tuple[Finding, ...]:
    """Return findings, root causes first, without those that another one explains.

    A cause explains the causes that it names, and every symptom whose lines are all its own.
    """
    found = {match.cause: match for match in matches if match.cause in catalogue()}
    hidden = {name for cause in found for name in catalogue()[cause].hides}
    roots = [match for match in found.values() if catalogue()[match.cause].kind == "root"]
    for one in found.values():
        if catalogue()[one.cause].kind == "symptom" and any(
            one.times <= root.times and set(one.evidence) <= set(root.evidence) for root in roots
        ):
            hidden.add(one.cause)
    left = [match for match in found.values() if match.cause not in hidden] or list(found.values())
    left.sort(key=lambda match: (_WEIGHT[catalogue()[match.cause].kind], match.line))
    return tuple(_finding(match) for match in left)


@cache
def _printed() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return an expression for the longer texts of the catalogue in any case, and how programs print each."""
    texts = {find.lower(): find for _, pattern in catalogue().patterns() for find in pattern.find if len(find) > 13}
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))), re.IGNORECASE), texts


MEMORY: dict[str, Any] = json.loads(read_table("typed.json"))
"""What people type: spellings, words for things and complaints, and rules of both.

It is for a text without a mark of `printed`, or of `program` where a mark of `person` shows a person's own words.
"""


def _typed(text: str) -> list[Match]:
    """Return the first cause with a rule whose words are all in the text, in any order, and none with a "!"."""
    if re.search(MEMORY["program" if re.search(MEMORY["person"], text) else "printed"], text):
        return []
    said = text.lower()
    for spelling, meant in MEMORY["spellings"].items():
        said = re.sub(spelling, meant, said)
    has = cache(lambda word: re.search(rf"(?<!\w)(?:{MEMORY['words'][word]})(?!\w)", said) is not None)
    for cause, *rules in MEMORY["rules"]:
        for rule in rules:
            if all(any(map(has, part.strip("!").split("|"))) is (part[0] != "!") for part in rule.split()):
                return [Match(cause, 1, (text,), {}, 1)] if cause else []
    return []


def diagnose_text(text: str) -> tuple[Finding, ...]:
    """Return the findings in a typed or pasted message, which may be just an error number or without its capitals."""
    matches = (text.islower() and ":" not in text and _typed(text.strip())) or scan(text)
    if not matches and text.islower() and len(text) <= _SHORT:
        known, texts = _printed()
        matches = scan(known.sub(lambda found: texts.get(found[0].lower(), found[0]), text))
    matches = matches or [one for one in _typed(text.strip()) if text.islower() or plausible(text, one.cause)]
    if not matches and len(text) <= _SHORT:
        matches = [Match(cause, 1, (text.strip(),), groups, 1) for cause, groups in bare_numbers(text)]
    return findings(matches)


def diagnose_chunks(chunks: Iterator[bytes]) -> tuple[Finding, ...]:
    """Return the findings in a log."""
    return findings(scan_chunks(chunks))
