"""Precision and recall of the doctor on a frozen set of messages.

    .venv/bin/python bench/doctor_recall.py [--set FILE] [--misses]

A message counts as recognised when its cause, or one that its label allows `also`, is among the roots (or symptoms,
when there is no root) that the doctor names; as wrong when the doctor names others and none of these. Messages without
a cause count as wrong when any cause but a notice is named. --misses prints what went wrong, for a set that is made for
tuning: on the held-out set it would spoil the measure.

heldout.json was frozen before the patterns, but its lines were collected by the person who then wrote them: what it
shows is an upper bound. fresh.json was collected from other threads after the catalogue was committed, and labelled
before the doctor saw it; its first score is the honest one.
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

HELD_OUT = ROOT / "tests" / "fixtures" / "doctor" / "heldout.json"


def measure(entries: list[dict[str, Any]]) -> tuple[dict[str, int], list[str]]:
    """Count, and describe what went wrong."""
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
            counts["false_alarm"] += bool(named)
            outcome = "false alarm" if named else ""
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


def main() -> None:
    """Print the measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=HELD_OUT)
    parser.add_argument("--misses", action="store_true")
    arguments = parser.parse_args()
    counts, misses = measure(json.loads(arguments.set.read_text(encoding="utf-8"))["entries"])
    messages, harmless = counts["messages"], counts["harmless"]
    wrong = counts["wrong"] + counts["false_alarm"]
    print(f"messages with a cause: {messages}; without: {harmless}")
    print(f"recall: {counts['named'] / messages:.1%} named ({counts['named']}), {counts['first'] / messages:.1%} first")
    print(f"precision: {counts['named'] / counts['told']:.1%} of the answers name the cause")
    print(f"wrong: {wrong / (messages + harmless):.1%} ({counts['wrong']} wrong, {counts['false_alarm']} false alarms)")
    print(f"nothing recognised: {counts['nothing']}")
    if arguments.misses:
        print("\n".join(misses))


if __name__ == "__main__":
    main()
