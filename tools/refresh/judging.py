"""Check the effect of newer rows on answers: new breaches of laws, and changed answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tools.refresh.answers import changed_answers
from tools.refresh.laws import Laws
from tools.refresh.questions import question, spelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.matrix.load import Matrix
    from tools.refresh.laws import Answer

QUESTIONS = 200
_TOLD = ("driver", "cuda", "cudnn", "nccl", "torch", "tensorflow", "jax", "cupy")


def changed(before: Matrix, after: Matrix) -> Iterator[str]:
    """Yield the changed answers, of every GPU architecture and of random plausible questions."""
    yield from changed_answers(before, after)
    chance = random.Random(after.date)
    old, new = Laws(before), Laws(after)
    found: dict[str, list[str]] = {}
    for _ in range(QUESTIONS):
        asked = question(chance, before)
        was, now = _parts(old.answer(asked)), _parts(new.answer(asked))
        if was != now:
            found.setdefault(_told(was, now), []).append(spelled(asked))
    for change, questions in found.items():
        yield f"{change}: {len(questions)} of {QUESTIONS} questions, such as: {min(questions, key=len)}"


def _told(was: dict[str, str], now: dict[str, str]) -> str:
    if not was or not now:
        return "no stack any more" if was else "a stack where there was none"
    names = [name for name in _TOLD if was.get(name) != now.get(name)]
    return ", ".join(f"{name} {was.get(name, 'none')} -> {now.get(name, 'none')}" for name in names)


def new_breaches(before: Matrix, after: Matrix) -> list[str]:
    """Return the laws that answers break now but did not before."""
    chance = random.Random(after.date)
    old, new = Laws(before), Laws(after)
    found = []
    for _ in range(QUESTIONS):
        asked = question(chance, before)
        if broken := new.breaches(asked):
            known = {law for law, _text in old.breaches(asked)}
            found += [f"{law}: {text} ({spelled(asked)})" for law, text in broken if law not in known]
    return found


def _parts(answer: Answer | None) -> dict[str, str]:
    if answer is None:
        return {}
    parts = {name: getattr(answer.stack, name) for name in _TOLD}
    return {name: part.version for name, part in parts.items() if part is not None}
