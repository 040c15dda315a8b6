"""How much each word speaks for a cause, from the labelled messages of the tests and the causes' own texts.

`python -m tools.similar` writes gpusetup/doctor/data/similar.json; a test compares it. Run it after a change to the
labelled messages or to the title or explanation of a cause.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path

from gpusetup.doctor.catalogue import DATA, catalogue
from gpusetup.doctor.similar import words

MESSAGES = Path(__file__).resolve().parents[1] / "tests/fixtures/doctor"
PLACE = DATA / "similar.json"
UNSEEN = "strangers_*_held.json"
"""Messages that measure the doctor: nothing is learned from them."""
FEWEST, LEAST, SMOOTH, PRIOR = 2, 15, 1.0, 3.0


def examples() -> list[tuple[set[str], str]]:
    """Return the words of every labelled message and of every cause's texts, with the cause."""
    causes = catalogue().causes
    found = [(words(one.title), cause) for cause, one in causes.items()]
    found += [(words(f"{one.title} {one.explanation}"), cause) for cause, one in causes.items()]
    for path in sorted({*MESSAGES.glob("*.json")} - {*MESSAGES.glob(UNSEEN)}):
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content.get("entries", ()) if isinstance(content, dict) else ()
        found += [(words(one["text"]), one["cause"]) for one in entries if one.get("cause") in causes]
    of_rules = json.loads((MESSAGES / "rules/wordings.json").read_text(encoding="utf-8"))
    for cause, wordings, parts in of_rules["of a class"]:
        found += [(words(wording.format(part)), cause) for wording in wordings for part in parts]
    return found


def table() -> str:
    """Return the content of similar.json: cause → word → weight, the words that speak for a cause only."""
    known = examples()
    frequent = Counter(word for said, _cause in known for word in said)
    times = Counter(cause for _said, cause in known)
    together: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for said, cause in known:
        together[cause].update(word for word in said if frequent[word] >= FEWEST)
    rows = []
    for cause, found in sorted(together.items()):
        weights = {"": round(PRIOR * math.log(times[cause]))}
        for word, count in sorted(found.items()):
            share = frequent[word] / len(known)
            weight = round(10 * math.log((count + SMOOTH * share) / (times[cause] + SMOOTH) / share))
            weights |= {word: weight} if weight >= LEAST else {}
        rows.append(f"{json.dumps(cause)}:{json.dumps(weights, separators=(',', ':'))}")
    return "{" + ",\n".join(rows) + "}\n"


if __name__ == "__main__":
    PLACE.write_text(table(), encoding="utf-8")
