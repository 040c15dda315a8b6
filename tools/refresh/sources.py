"""The sources of newer rows; one that fails or has wrong data does not stop the others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from gpusetup.matrix.load import NAMES, struct_of
from tools.refresh import archives, drivers, repositories, torch_patches, wheels
from tools.refresh.asking import Contradiction, Fault, Place, Web
from tools.refresh.gathering import Gathering
from tools.refresh.index import Index, configured_index
from tools.refresh.lints import LINTS

PLACES = {
    "drivers": drivers.RELEASES_JSON,
    "cuda": archives.CUDA_ARCHIVES,
    "pairing": archives.PAIRING,
    "cudnn": archives.CUDNN_ARCHIVES,
    "repositories": repositories.REPOSITORIES,
    "lanes": torch_patches.LANES,
    "index": "",
}
"""Where each source's documents are; the index is pip's."""


class _Asked(NamedTuple):
    """The arguments of every source."""

    places: Mapping[str, Place]
    package_index: Callable[[], Index]


SOURCES: dict[str, tuple[str, Callable[[Gathering, _Asked], None]]] = {
    "drivers": ("NVIDIA's list of drivers", lambda found, asked: drivers.look(found, asked.places)),
    "cuda": ("NVIDIA's archives of CUDA", lambda found, asked: archives.cuda(found, asked.places)),
    "cudnn": ("NVIDIA's archives of cuDNN", lambda found, asked: archives.cudnn(found, asked.places)),
    "repositories": ("NVIDIA's package repositories", lambda found, asked: repositories.look(found, asked.places)),
    "wheels": ("wheels of cuDNN and CuPy", lambda found, asked: _wheels(found, asked.package_index())),
    "torch": (
        "patches of torch",
        lambda found, asked: torch_patches.look(found, asked.package_index(), asked.places["lanes"]),
    ),
    "packages": ("packages above the frameworks", lambda found, asked: wheels.packages(found, asked.package_index())),
}
"""All sources, in order: later ones use rows of earlier ones."""


def gather(
    documents: Mapping[str, dict[str, Any]],
    today: dt.date,
    *,
    only: Collection[str],
    elsewhere: Mapping[str, str],
    tell: Callable[[str], None],
    pause: float = 2.0,
) -> tuple[Gathering, list[tuple[str, Fault]]]:
    """Add newer rows from sources; return the failed sources with the reason.

    `elsewhere`: places to use instead of the publishers' own.
    """
    found, failed = Gathering(documents, today), list[tuple[str, Fault]]()
    web = Web(pause=pause)
    asked = _Asked(
        {name: Place(elsewhere.get(name, address), web) for name, address in PLACES.items()},
        lambda: Index(elsewhere.get("index") or configured_index(), pause=pause),
    )
    before = _problems(found.documents)
    for name in (name for name in SOURCES if name in only):
        what, look = SOURCES[name]
        tell(what)
        kept = dict(found.documents)
        try:
            look(found, asked)
            wrong = _problems(found.documents) - before
            if wrong:
                raise Contradiction(f"what {what} says cannot be: {'; '.join(sorted(wrong)[:3])}")
        except Fault as fault:
            found.documents = kept
            failed.append((name, fault))
    return found, failed


def _wheels(found: Gathering, index: Index) -> None:
    wheels.cudnn(found, index)
    wheels.cupy(found, index)


def _problems(documents: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the errors in documents: by their types, else by the lints."""
    wrong = {problem for name, document in documents.items() for problem in _mistyped(name, document)}
    if wrong:
        return wrong
    plain = {name: documents[name] for name in NAMES}
    return {problem for lint in LINTS.values() for problem in lint(plain)}


def _mistyped(name: str, document: dict[str, Any]) -> list[str]:
    try:
        msgspec.convert(document, struct_of(name))
    except msgspec.ValidationError as error:
        return [f"{name}: {error}"]
    return []
