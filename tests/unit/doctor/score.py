"""How many messages of a set the doctor names right: `python -m tests.unit.doctor.score public_closed`.

With --open it also prints each message that it does not; a closed set is asked for its score alone.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from gpusetup.doctor.findings import diagnose_text

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "doctor"
WORDINGS: dict[str, list[Any]] = json.loads((FIXTURES / "rules" / "wordings.json").read_text(encoding="utf-8"))
"""Tables of messages in which a rule is seen alone."""


class Score(NamedTuple):
    """Counts of a set: a message without a cause is right when nothing but harmless notices is said."""

    messages: int
    right: int
    wrong: int
    missed: tuple[tuple[str, str, str], ...]


def entries(name: str) -> list[dict[str, Any]]:
    """Return the labelled messages of a set."""
    found: list[dict[str, Any]] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))["entries"]
    return found


def named(text: str) -> str | None:
    """Return the first cause that is no mere notice."""
    return next((found.cause for found in diagnose_text(text) if found.kind != "notice"), None)


def score(name: str) -> Score:
    """Ask the doctor about every message of a set."""
    right = wrong = 0
    missed = []
    messages = entries(name)
    for entry in messages:
        labels = {entry["cause"], *entry.get("also", ())}
        said = named(entry["text"])
        if said in labels or (said is None and any(found.cause in labels for found in diagnose_text(entry["text"]))):
            right += 1
            continue
        wrong += said is not None
        missed.append((str(entry["cause"]), str(said), entry["text"]))
    return Score(len(messages), right, wrong, tuple(missed))


if __name__ == "__main__":
    found = score(sys.argv[1])
    print(f"{sys.argv[1]}: {found.right} of {found.messages} right, {found.wrong} named wrong")
    if "--open" in sys.argv:
        for wanted, said, text in found.missed:
            print(f"\n[{wanted}] said {said}\n{text}")
