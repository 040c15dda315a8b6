"""What AWX asks people before a job: our own variables, with the types and choices that gpusetup reads them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from gpusetup.model.request import COMPONENTS
from gpusetup.model.settings import Settings
from gpusetup.plan.settings import KNOWN, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ASKED = (
    "driver", "cuda", "torch", "tensorflow", "jax", "vllm", "components", "source", "reboot", "module", "containers",
    "monitoring",
)  # fmt: skip
"""The variables that a job asks for; every other one is the inventory's."""

_ELSE = "no answer: as the inventory says"

Option = tuple[str, str, Any, "Sequence[str] | None"]
"""Of the command line: its variable, what it means, its type, its choices."""


def survey(options: Iterable[Option], asked: Iterable[str] = ASKED) -> dict[str, Any]:
    """Return the survey; no question has to be answered, and no answer means what the inventory says."""
    questions = [_wish(name) for name in asked]
    questions += [_question(variable, text, kind, choices) for variable, text, kind, choices in options]
    return {"name": "", "description": "", "spec": questions}


def _wish(name: str) -> dict[str, Any]:
    variable = f"{PREFIX}{name.replace('-', '_')}"
    if name in COMPONENTS:
        return _question(variable, f"a version of {name}, a range (==2.6.*), latest or none; {_ELSE}")
    if name not in KNOWN:
        raise KeyError(name)
    hint = get_type_hints(Settings).get(name)
    choices = [word for part in (hint, *get_args(hint)) if get_origin(part) is Literal for word in get_args(part)]
    if choices:
        return _question(variable, _ELSE, choices=choices)
    several = name == "components" or get_origin(hint) is tuple
    return _question(variable, f"several between commas; {_ELSE}" if several else _ELSE)


def _question(variable: str, text: str, kind: Any = None, choices: Sequence[str] | None = None) -> dict[str, Any]:
    question: dict[str, Any] = {
        "question_name": variable,
        "question_description": text,
        "variable": variable,
        "required": False,
        "type": "multiplechoice" if choices else {int: "integer", float: "float"}.get(kind, "text"),
        "default": "",
    }
    if choices:
        return {**question, "choices": list(choices)}
    # AWX wants bounds with these types: of the number, or of the length of a text.
    return {**question, "min": 0, "max": 100000 if question["type"] != "text" else 1024}
