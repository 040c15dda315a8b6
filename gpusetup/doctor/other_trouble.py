"""Explain a text without a known cause: trouble that is not the GPU installation's."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from gpusetup.doctor.catalogue import expressions, read_table
from gpusetup.doctor.patterns import FAR, FEW, needed_words, plain
from gpusetup.model.diagnosis import Outside, OutsideFile

TROUBLE = re.compile(expressions("trouble")[0].pattern.encode())
GPU, FRAME, CODE = expressions("gpu", "frame", "code")
_GPU_WORDS = needed_words(GPU.pattern.lower())

ROUTINE = {"no-errors", "healthy-boot"}
_LONGEST = 400
_NEAR = 4
"""How many lines before and after a line decide whether it is about the GPU."""


class Shown(NamedTuple):
    """A kind of trouble and the first line that shows it."""

    id: str
    title: str
    advice: str
    line: str
    commands: tuple[str, ...] = ()


@cache
def kinds() -> tuple[tuple[Outside, re.Pattern[str]], ...]:
    """Return every kind of trouble with its compiled expression, in the order to try them."""
    table = msgspec.json.decode(read_table("outside.json"), type=OutsideFile)
    return tuple((kind, re.compile(kind.regex)) for kind in table.kinds)


def names_gpu(text: str) -> bool:
    """Return whether a text has a word of NVIDIA's stack."""
    lower = text.lower()
    return any(all(word in lower for word in words) for words in _GPU_WORDS) and GPU.search(text) is not None


def outside(text: str) -> tuple[Shown, ...]:
    """Return the kinds of other trouble in a text; empty unless every line of trouble is of such a kind.

    Without any trouble: the programs whose output the text is.
    """
    shown: dict[str, Shown] = {}
    outputs = {
        kind.id: Shown(kind.id, kind.title, kind.advice, found[0].strip()[:_LONGEST])
        for kind, _ in kinds()
        if kind.frame and (found := re.search(kind.frame, text))
    }
    for line, kind in judged(text):
        said = plain(line).strip()
        if kind is not None:
            shown.setdefault(kind.id, Shown(kind.id, kind.title, kind.advice, said[:_LONGEST]))
        elif TROUBLE.search(said.encode().lower()):
            return ()
    others = (one for one in shown.values() if one.id not in ROUTINE | outputs.keys())
    return tuple(others) or tuple(outputs.values()) or tuple(shown.values())


def judged(text: str) -> Iterator[tuple[str, Outside | None]]:
    """Yield the lines of trouble, each with its kind if that is known; of a short text without any, all lines."""
    lines = list(_messages(text))
    said = [plain(line).strip() for line in lines]
    troubled = [number for number, line in enumerate(said) if TROUBLE.search(line.encode().lower())]
    gpu = cache(names_gpu)
    possible = [known for known in kinds() if re.search(known[0].frame, text)]
    for number in troubled or range(len(lines) if len(lines) <= FEW else 0):
        near = said[max(0, number - _NEAR) : number + _NEAR + 1]
        yield lines[number], _kind(said[number], possible, gpu=any(map(gpu, near)))


def _messages(text: str) -> Iterator[str]:
    """Yield the lines, without a traceback's frames and lines of code."""
    frame = False
    for line in text.splitlines():
        after_frame, frame = frame, FRAME.match(line) is not None
        if not frame and not (after_frame and CODE.match(line)):
            yield line[:FAR]


def routine(shown: tuple[Shown, ...]) -> bool:
    """Return whether everything that looks like trouble is routine on healthy machines."""
    return bool(shown) and all(one.id in ROUTINE for one in shown)


def _kind(line: str, possible: list[tuple[Outside, re.Pattern[str]]], *, gpu: bool) -> Outside | None:
    return next((kind for kind, regex in possible if (kind.always or not gpu) and regex.search(line)), None)
