"""The page's answers to messages against the doctor's: python -m tests.site.messages [--more N].

Asked are all messages of tests/fixtures/doctor, bare numbers, every text of the catalogue by itself, and, at random,
such messages after each other, with what logs put before a line, and cut.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.other_trouble import outside, routine
from gpusetup.doctor.references import mentioned, reference_in
from tests.lab.browser import browser
from tools.explorer.messages import likeness, messages

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "tools/explorer/web/doctor.js"
_AT_ONCE = 100
TOLD = {"lines": 0, "by the page": 0}
"""What numbers mean: how many lines the program tells, and how many of them the page."""
_STAMPS = (
    "[  903.609564] ", "Dec  2 11:49:53 node kernel: ", "2025-07-01T05:06:30.004+00:00 ", "(worker pid=12) ", "> ",
)  # fmt: skip
_BARE = (
    "802", "Xid 79", "xid 999", "SXid 12028", "sxid 99999", "11040", "CUDA error: 222", "cuda>=12.8", "error 3", "sm_90",
    "GS-324", "[GS-101]", "gs 999", "it said GS-324 and stopped", "Hello", "", "   ",
)  # fmt: skip


def samples() -> list[str]:
    """Every message that was collected."""
    found = []
    for path in sorted((ROOT / "tests/fixtures/doctor").glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found += [entry["text"] for entry in document.get("entries", document.get("samples"))]
    return list(dict.fromkeys(found))


def asked(more: int, seed: int) -> list[str]:
    """What is asked."""
    known, chance = samples(), random.Random(seed)
    finds = [find for _, pattern in catalogue().patterns() for find in pattern.find]

    def made() -> Iterator[str]:
        for _ in range(more):
            lines = "\n".join(chance.sample(known, chance.randint(1, 3))).split("\n")
            begin = chance.randrange(len(lines)) if chance.random() < 0.3 else 0
            stamp = chance.choice(("", "", *_STAMPS))
            yield "\n".join(f"{stamp}{line}" for line in lines[begin:])

    return [*known, *_BARE, *dict.fromkeys(finds), *made()]


def expected(text: str) -> Any:
    """What the program answers."""
    if reference := reference_in(text):
        return ["reference", reference]
    if found := diagnose_text(text):
        return ["findings", [[finding.cause, finding.line or 1, list(finding.details)] for finding in found]]
    if reference := mentioned(text.encode()):
        return ["reference", reference]
    shown = outside(text)
    return ["outside", [one.id for one in shown]] if shown and not routine(shown) else ["", ""]


_ASK = """texts.map((text) => {
  const { findings, reference, outside } = doctor.answer(text);
  if (findings) return ["findings", findings.map(({ cause, line, groups }) => [cause, line, doctor.told(cause, groups)])];
  return reference ? ["reference", reference] : outside ? ["outside", outside.map(({ id }) => id)] : ["", ""];
})"""


def differences(texts: Sequence[str]) -> list[str]:
    """Ask both; return what differs."""
    found = []
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        page = chromium.open("about:blank")
        page.tells(
            f"{ENGINE.read_text(encoding='utf-8')}; window.doctor = Doctor({json.dumps(messages())}, {json.dumps(likeness())}); 1"
        )
        for start in range(0, len(texts), _AT_ONCE):
            some = list(texts[start : start + _AT_ONCE])
            said = page.tells(f"(() => {{ const texts = {json.dumps(some)}; return {_ASK} }})()")
            for text, theirs in zip(some, said, strict=True):
                ours = expected(text)
                if theirs[0] == ours[0] == "findings":
                    _leave_out(theirs[1], ours[1])
                if theirs != ours:
                    found.append(f"{text!r}: the page says {theirs}, the doctor {ours}")
    return found


def _leave_out(theirs: list[Any], ours: list[Any]) -> None:
    """Leave out what only the program tells: of products, packages and libraries that the page does not know."""
    for finding, right in zip(theirs, ours, strict=False):
        TOLD["lines"] += len(right[2])
        TOLD["by the page"] += len(finding[2])
        right[2] = [line for line in right[2] if line in finding[2]]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.site.messages", description=__doc__)
    parser.add_argument("--more", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    texts = asked(arguments.more, arguments.seed)
    found = differences(texts)
    print(f"{len(texts)} messages, {len(found)} answered otherwise")
    print(f"of {TOLD['lines']} lines about numbers the page tells {TOLD['by the page']}")
    for text in found[:20]:
        print(f"  {text[:600]}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
