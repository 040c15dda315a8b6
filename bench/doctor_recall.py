"""Precision and recall of the doctor on a frozen set of messages.

    .venv/bin/python bench/doctor_recall.py [--set FILE] [--misses]

A message counts as recognised when its cause, or one that its label allows `also`, is among the roots (or symptoms,
when there is no root) that the doctor names; as wrong when the doctor names others and none of these. Messages without
a cause count as wrong when any cause but a notice is named that their label does not allow. --misses prints what went
wrong, for a set that is made for tuning: on a held set it would spoil the measure.

Without --set it measures the halves of the four newest sets, labelled before the doctor saw them: with the open halves
the patterns were mended, of the held ones only the score is looked at; later_held.json is one more that is held.
tests/fixtures/doctor/SCORES.md tells what each set is worth, and which held halves were used for mending since.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.doctor.findings import diagnose_text  # noqa: E402

FIXTURES = ROOT / "tests" / "fixtures" / "doctor"
SETS = ("python", "machine", "cluster", "builds")
HALVES = (
    *(FIXTURES / f"{name}_{half}.json" for name in SETS for half in ("open", "held")),
    FIXTURES / "later_held.json",
)


def measure(entries: list[dict[str, Any]]) -> tuple[dict[str, int], list[str]]:
    """Return the counts, and descriptions of the wrong answers."""
    counts = dict.fromkeys(("messages", "first", "named", "wrong", "nothing", "harmless", "false_alarm", "told"), 0)
    misses = []
    for entry in entries:
        right = {entry["cause"], *entry.get("also", ())}
        named = [
            finding.cause
            for finding in diagnose_text(entry["text"])
            if finding.kind != "notice" or finding.cause in right
        ]
        counts["told"] += bool(named)
        if entry["cause"] is None:
            counts["harmless"] += 1
            alarm = bool(named) and right.isdisjoint(named)
            counts["false_alarm"] += alarm
            outcome = "false alarm" if alarm else ""
        else:
            first, hit = named[:1] != [] and named[0] in right, not right.isdisjoint(named)
            counts["messages"] += 1
            counts["first"] += first
            counts["named"] += hit
            counts["wrong"] += bool(named) and not hit
            counts["nothing"] += not named
            outcome = "" if first else "other first" if hit else "wrong" if named else "nothing"
        if outcome:
            misses.append(f"{outcome}: {entry['cause']} ({entry['thread']}): named {named}\n    {entry['text']}")
    return counts, misses


def told(counts: dict[str, int]) -> None:
    """Print the scores of one set."""
    messages, harmless = counts["messages"], counts["harmless"]
    wrong = counts["wrong"] + counts["false_alarm"]
    right = counts["named"] + harmless - counts["false_alarm"]
    print(f"messages with a cause: {messages}; without: {harmless}")
    print(f"recall: {counts['named'] / messages:.1%} named ({counts['named']}), {counts['first'] / messages:.1%} first")
    print(f"precision: {1 - wrong / counts['told']:.1%} of the answers name the cause")
    print(f"right: {right / (messages + harmless):.1%}")
    print(f"wrong: {wrong / (messages + harmless):.1%} ({counts['wrong']} wrong, {counts['false_alarm']} false alarms)")
    print(f"nothing recognised: {counts['nothing']}")


def main() -> None:
    """Print the scores of all sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path)
    parser.add_argument("--misses", action="store_true")
    arguments = parser.parse_args()
    if arguments.misses and arguments.set is None:
        parser.error("--misses needs --set: those of the held half stay unseen")
    for name in HALVES if arguments.set is None else (arguments.set,):
        counts, misses = measure(json.loads(name.read_text(encoding="utf-8"))["entries"])
        print(name.name)
        told(counts)
        if arguments.misses:
            print("\n".join(misses))


if __name__ == "__main__":
    main()
