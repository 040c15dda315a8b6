"""The lookups that answer a question in words: which components, GPUs, driver and distribution it names."""

import re
from contextlib import suppress
from shlex import quote

from gpusetup.doctor.catalogue import expressions
from gpusetup.doctor.other_trouble import Shown, outside
from gpusetup.errors import BadInputError
from gpusetup.matrix.gpus import products_named
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import find_system
from gpusetup.model.request import COMPONENTS, SAID_AS, Request, Requirement
from gpusetup.resolve.naming import typed
from gpusetup.resolve.requests import parse_requirements

_KINDS = {"question-driver", "question-gpu", "question-install", "question-versions"}
_BEGINS, _DRIVER, _BETWEEN, _INSTALLED = expressions(
    "question-begins", "question-driver", "question-between", "question-installed"
)
_LONGEST = 200
_MOST_WORDS = 4
"""How many words a name has: NVIDIA RTX 4000 Ada."""


def asks_for_versions(text: str) -> bool:
    """Return whether a text asks for versions, also in words of an error: is my driver too old for CUDA 13."""
    return _BEGINS.match(text) is not None and any(
        re.search(r"[\d$]", command) for one in with_lookups(text) for command in one.commands
    )


def with_lookups(text: str) -> tuple[Shown, ...]:
    """Return the kinds of other trouble in a text; a question has the commands that answer it."""
    shown = outside(text)
    if len(shown) != 1 or shown[0].id not in _KINDS or not (commands := lookups(text)):
        return shown
    advice = shown[0].advice if shown[0].id == "question-install" else "To look it up:"
    return (shown[0]._replace(advice=advice, commands=commands),)


def lookups(text: str) -> tuple[str, ...]:
    """Return the commands that answer a question; empty if it names nothing that they know."""
    if len(text) > _LONGEST:
        return ()
    driver = next(iter(_DRIVER.findall(text)), None)
    words = re.findall(r"[\w.+=<>!~*-]*[\w*]", _BETWEEN.sub("", _DRIVER.sub("", text)))
    found: dict[str, list[str]] = {"component": [], "gpu": [], "system": [], "": []}
    while words:
        parts = [" ".join(words[:size]) for size in range(min(_MOST_WORDS, len(words)), 0, -1)]
        part, kind = next(((part, kind) for part in parts if (kind := _named(part))), (parts[-1], ""))
        found[kind].append(part)
        words = words[part.count(" ") + 1 :]
    wishes, gpus = tuple[Requirement, ...](), tuple(dict.fromkeys(found["gpu"]))
    with suppress(BadInputError):  # two builds of one component
        wishes = parse_requirements(found["component"])
    system = next((find_system(matrix(), name).id for name in found["system"]), None)
    if gpus and not (wishes or system or driver):
        return tuple(f"gpusetup matrix gpu {quote(gpu)}" for gpu in gpus)
    said = typed(Request(requirements=wishes, gpus=gpus, os=system, driver=driver))
    if driver is None and _INSTALLED.search(text):
        said, driver = f"{said} --driver $(cat /sys/module/nvidia/version)", "the installed one"
    table = "driver " if driver is None and len(wishes) > 1 and Requirement(component="driver") in wishes else ""
    return (f"gpusetup resolve {said}", f"gpusetup matrix {table}{said}") if said else ()


def _named(part: str) -> str:
    """Return whether some words name a component, a GPU or a system; empty if they name none."""
    known, first = matrix(), re.findall(r"^(?:cu(?=1\d)|r(?=\d{3}$)|[a-z-]*[a-z])?", part.lower())[0]
    families = {*known.os.said_as, *(system.id.rstrip("0123456789.") for system in known.os.systems)}
    with suppress(BadInputError):
        if first in ("cu", "r") or {first, part.lower().split()[0]} & {*SAID_AS, *COMPONENTS}:
            return "component" if parse_requirements([part]) else ""
        if first in families and re.search(r"\d", part):
            return "system" if find_system(known, part) else ""
    gpus = known.gpus.gpus
    tells = re.search(r"(?i)[a-z]+ ?\d|^\d{4}\b", part) or any(part.lower() == gpu.arch.lower() for gpu in gpus)
    return "gpu" if tells and products_named(gpus, part) else ""
