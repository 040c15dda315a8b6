"""Causes whose known messages have similar words: offered, never named as certain, where no rule knows a message."""

import re
from functools import cache
from heapq import nlargest

import msgspec

from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.next_steps import others, trouble
from gpusetup.doctor.patterns import FEW

_LEAST, CLEAR = 60, 80
PLACE = re.compile(r"https?://\S+|0x[0-9a-fA-F]+|/[\w./+-]*/")
BETWEEN = re.compile(r"(?<=[a-z])(?=[A-Z])|[_.-]")
WORD = re.compile(r"[a-z][a-z0-9+]*|\b\d{1,3}\b")


def words(text: str) -> set[str]:
    """Return the words and small numbers of a message, of names with several words each; no addresses and folders."""
    return set(WORD.findall(BETWEEN.sub(" ", PLACE.sub(" ", text)).lower()))


@cache
def weights() -> dict[str, dict[str, int]]:
    """Return how much each word speaks for a cause (tens of natural logarithms); "" is how frequent the cause is."""
    return msgspec.json.decode(read_table("similar.json"), type=dict[str, dict[str, int]])


def _scores(text: str) -> dict[str, int]:
    said = {"", *words(text)}
    return {cause: sum(known[word] for word in said & known.keys()) for cause, known in weights().items()}


def similar(text: str) -> tuple[str, ...]:
    """Return the likeliest causes, the likeliest first, by all lines or those of trouble; none by few known words."""
    scores = _scores(text if text.count("\n") < FEW and not others(text) else trouble(text))
    return tuple(cause for cause in nlargest(3, scores, scores.__getitem__) if scores[cause] >= _LEAST)


def plausible(text: str, cause: str) -> bool:
    """Return whether the words of a text, if clear, speak at least half as much for a cause as for the likeliest."""
    scores = _scores(text)
    likeliest = max(scores.values())
    return likeliest < CLEAR or 2 * scores[cause] >= likeliest
