"""What the scan of a log finds fast is what a plain one finds: every text in every line, nothing remembered."""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusetup.doctor.catalogue import catalogue, meaning
from gpusetup.doctor.patterns import FEW, Expression, needed_words, one_line
from gpusetup.doctor.scan import ESCAPES, STAMP, Literals, foreign, scan_chunks

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "doctor"
SAMPLES = [entry["text"] for entry in json.loads((FIXTURES / "samples.json").read_text(encoding="utf-8"))["samples"]]
COMPILED = [(cause, pattern, re.compile(pattern.regex)) for cause, pattern in catalogue().patterns()]
FINDS = [find for _, pattern, _ in COMPILED for find in pattern.find]
STAMPS = (
    "", "", "[  903.6{0:05}] ", "2026-11-20T03:04:05.{0:03}+00:00 ",
    "Nov 20 03:04:{0:02} node7 kernel: [{0}.5] NVRM: ",
)  # fmt: skip


def plain_scan(text):
    """Return cause → (first line, lines in which it was found)."""
    lines = ESCAPES.sub(b"", text.encode("utf-8", "replace")).decode("utf-8", "replace").split("\n")
    bare = [STAMP.sub("", line, count=1) for line in lines]
    found = {}
    for index, line in enumerate(lines):
        told, present = set(), {find for find in FINDS if find in line}
        for cause, pattern, expression in COMPILED if present else ():
            if not present.isdisjoint(pattern.find):
                before, after = "\n".join(bare[max(0, index - 4) : index]), "\n".join(bare[index + 1 : index + 5])
                scope = "\n".join((before[-1200:], bare[index], after[:1200]))
                if Expression(pattern).own_line:
                    scope = bare[index]
                match = expression.search(scope) or expression.search(one_line(scope))
                if match is None:
                    continue
                meant = meaning(cause, {name: value for name, value in match.groupdict().items() if value})
                if meant and not foreign(catalogue()[meant].area, line):
                    told.add(meant)
        for cause in told - {""}:
            first, times = found.get(cause, (index + 1, 0))
            found[cause] = (first, times + 1)
    return found


@st.composite
def logs(draw):
    """Messages, messages that just miss, and noise, many times and with other numbers and times."""
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(("sample", "sample", "other numbers", "find", "cut", "noise")))
        text = draw(st.sampled_from(SAMPLES if kind in {"sample", "other numbers", "cut"} else FINDS))
        if kind == "other numbers":
            text = re.sub(r"\d", lambda _: str(draw(st.integers(0, 9))), text, count=6)
        elif kind == "cut":
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from(("\n", "", "\x1b[0m", " é "))) + text[at:]
        elif kind == "noise":
            text = draw(st.text(max_size=30))
        stamp = draw(st.sampled_from(STAMPS))
        for number in range(draw(st.sampled_from((1, 1, 2, 7)))):
            lines += [stamp.format(number) + line for line in text.split("\n")]
    return "\n" * FEW + "\n".join(line[:2000] for line in lines)  # so many that broken lines stay broken


@settings(max_examples=80, deadline=None)
@given(log=logs(), cuts=st.lists(st.integers(1, 4000), max_size=6))
def test_the_scan_finds_what_a_plain_one_finds(log, cuts):
    raw, pieces = log.encode("utf-8", "replace"), []
    for cut in cuts:
        pieces.append(raw[:cut])
        raw = raw[cut:]
    found = {match.cause: (match.line, match.times) for match in scan_chunks([*pieces, raw])}
    assert found == plain_scan(log)


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text("ab:", min_size=1, max_size=24), min_size=1, max_size=12, unique=True),
    parts=st.lists(st.tuples(st.integers(0, 11), st.text("ab:", max_size=9)), max_size=12),
    fill=st.integers(0, 3) | st.integers(16_340, 16_400),
)
def test_every_occurrence_of_a_text_is_found_wherever_it_stands(texts, parts, fill):
    wanted = [text.encode() for text in texts]
    log = b"." * fill + b"".join(wanted[number % len(wanted)] + between.encode() for number, between in parts)
    found = [(at, number) for number, text in enumerate(wanted) for at in range(len(log)) if log.startswith(text, at)]
    assert Literals(wanted).hits(log) == sorted(found)


@pytest.mark.parametrize(
    ("expression", "needs"),
    [
        (r"No such device", (("No", "such", "device"),)),
        (r"(?:could not insert|modprobe)[^\n]{0,60}nvidia[\w-]*\W{1,3} ?No such", (("nvidia", "No", "such"),)),
        (r"nvml\.h: error|libcuda\.so", (("nvml.h:", "error"), ("libcuda.so",))),
        (r"colou?r of x{0,2}[(]ab{2}", (("colo", "of", "ab"),)),
        (r"device (?P<what>\d+) \(gone\)", (("device", "(gone)"),)), (r"^Xid$", (("Xid",),)),
        (r"(?i)error", ()), (r"error|\d+", ()), (r"(?:one|two)", ()),
    ],
)  # fmt: skip
def test_the_words_that_every_match_contains(expression, needs):
    assert needed_words(expression) == needs


@pytest.mark.parametrize("text", SAMPLES)
def test_no_expression_is_passed_over_where_it_matches(text):
    for _, pattern, expression in COMPILED:
        if expression.search(text) or expression.search(one_line(text)):
            assert Expression(pattern).possible(text), pattern.regex


def test_a_pattern_that_was_right_a_thousand_times_is_still_read():
    """The text of a find alone says little: what surrounds it has to fit every time."""
    words = ("".join(letters) for letters in itertools.product("abcdefghij", repeat=4))
    right = "".join(f"{word}: RuntimeError: CUDA error: out of memory\n" for word in itertools.islice(words, 1500))
    apart = "step\n" * 10
    near = "".join(f"scheduler {word}: failed to allocate a name\n" for word in ("a", "b", "c"))
    found = {match.cause: match.times for match in scan_chunks([(right + apart + near + apart).encode()])}
    assert found == {"out-of-memory": 1500}
