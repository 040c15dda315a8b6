"""A mirror of what the matrix knows of one of NVIDIA's apt repositories, in its place in NVIDIA's layout.

apt proves the index by NVIDIA's key; every file is compared with it; the selection is signed by a key of ours. While a
repository is being published, index and files disagree: it is asked again, and never mirrored half.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.plan.imagined import imagined_host
from gpusetup.plan.judge import versions
from gpusetup.plan.offers import Offers
from gpusetup.plan.packages import family_for
from gpusetup.plan.repository import context_of, directory_of, repository_of
from gpusetup.supply import apt_repository
from gpusetup.supply.apt_root import AptRoot
from gpusetup.supply.fetching import Pool, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.request import Request
    from gpusetup.model.settings import Settings
    from gpusetup.supply.signing import Signer

__all__ = ["Entry", "Selection", "entries_of", "keep", "look", "select"]

_TRIES = 3
_PAUSE = 30.0
_NO_ARCHIVE = ("# NVIDIA's repository alone",)
_FIELD = re.compile(r"^([A-Za-z0-9-]+): (.*)$", re.MULTILINE)
_NEEDS = re.compile(r"([a-z0-9][a-z0-9.+-]*)(?::\w+)?\s*(?:\(([<>=]+)\s*([^)]+)\))?")


class Entry(NamedTuple):
    """One package of an index."""

    name: str
    version: str
    needs: str
    file: Wanted
    stanza: str


class Selection(NamedTuple):
    """What of a repository is to be there."""

    place: str
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(entry.file.size for entry in self.entries)


def look(request: Request, settings: Settings, matrix: Matrix, newest: int) -> Selection:
    """Read a repository's signed index, and choose from it."""
    facts = imagined_host(request)
    repository = repository_of(matrix.repos, facts, settings)
    family = family_for(matrix.repos, facts.os, settings.source, directory_of(matrix.repos, facts))
    if facts.packages.manager != "apt" or repository is None or family is None:
        raise BadInputError(
            "GS-777", f"only NVIDIA's apt repositories are mirrored; {request.os} has none", path="--os",
            hint="dnf reposync mirrors the others, with its own --newest-only",
        )  # fmt: skip
    context = context_of(matrix.repos, facts, settings, Offers(None))
    with tempfile.TemporaryDirectory(prefix="gpusetup-mirror-") as folder:
        root = AptRoot(Path(folder), request.os or "", request.arch or "x86_64", _NO_ARCHIVE)
        root.add(family.sources(context).sources, {})
        _patiently(root.refresh)
        texts = [path.read_text(encoding="utf-8") for path in Path(folder, "lists").glob("*_Packages")]
    entries = [entry for text in texts for entry in entries_of(text, repository.url)]
    chosen = select(entries, family.patterns(context), newest)
    if not chosen:
        raise UnreachableError(
            "GS-780", f"the repository has nothing that the matrix knows ({len(entries)} packages)",
            context=repository.url, hint="nothing was changed; is it the right address?",
        )  # fmt: skip
    return Selection(f"compute/cuda/repos/{repository.folder}/{repository.cpu}", chosen)


def entries_of(text: str, url: str) -> list[Entry]:
    """Read a Packages file."""
    found = []
    for stanza in text.strip().split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        if {"Package", "Version", "Filename", "Size", "SHA256"} <= set(fields):
            address = f"{url.rstrip('/')}/{fields['Filename'].removeprefix('./').lstrip('/')}"
            name = f"{fields['Package']}_{fields['Version']}_{fields.get('Architecture', 'all')}.deb"
            needs = ", ".join(filter(None, (fields.get("Pre-Depends"), fields.get("Depends"))))
            file = Wanted(address, name, int(fields["Size"]), fields["SHA256"])
            found.append(Entry(fields["Package"], fields["Version"], needs, file, stanza))
    return found


def select(entries: Iterable[Entry], patterns: Iterable[str], newest: int) -> tuple[Entry, ...]:
    """Return the newest upstream versions of each line of what matches, and what those need of the same repository."""
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    names = [name for name in by_name if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    waiting = [entry for name in sorted(names) for entry in _newest(by_name[name], newest)]
    chosen: dict[tuple[str, str], Entry] = {}
    while waiting:
        entry = waiting.pop()
        if (entry.name, entry.version) in chosen:
            continue
        chosen[entry.name, entry.version] = entry
        for group in entry.needs.split(","):
            for name, sign, version in _NEEDS.findall(group):
                there = by_name.get(name, [])
                exact = [one for one in there if sign == "=" and one.version == version.strip()]
                waiting += exact or (_newest(there, 1) if sign != "=" else [])
    return tuple(chosen[key] for key in sorted(chosen))


def _newest(entries: list[Entry], count: int) -> list[Entry]:
    """Return the entries of the newest upstream versions, as many of each line: of each branch of a driver."""
    lines: dict[str, set[str]] = {}
    for entry in entries:
        upstream = versions.upstream(entry.version) or entry.version
        lines.setdefault(upstream.partition(".")[0], set()).add(upstream)
    kept = {one for found in lines.values() for one in sorted(found, key=_number, reverse=True)[:count]}
    return [entry for entry in entries if (versions.upstream(entry.version) or entry.version) in kept]


def _number(version: str) -> list[int]:
    return [int(piece) for piece in re.findall(r"\d+", version)]


def keep(
    out: Path, selection: Selection, signer: Signer, room: int | None, tell: Callable[[int, int], None]
) -> tuple[int, int]:
    """Fetch what is new and put the selection in its place; return how many files came and how many went."""
    if room is not None and selection.size > room:
        raise BadInputError(
            "GS-778", f"the selection has {selection.size >> 20} MiB, more than --room allows", path="--room",
            context=str(out), hint="fewer --releases, or more room",
        )  # fmt: skip
    place = out / selection.place
    before = entries_of((place / "Packages").read_text(encoding="utf-8"), "") if (place / "Packages").is_file() else []
    known = {entry.file.sha256: place / apt_repository.file_name(entry.file) for entry in before}
    out.mkdir(parents=True, exist_ok=True)
    pool = Pool(out / ".pool", known)
    files = [entry.file for entry in selection.entries]
    came = len(pool.lacking(files))
    _patiently(lambda: pool.fetch(files, tell))
    there = {entry.file.sha256 for entry in before}
    wanted = {item.sha256 for item in files}
    if came or wanted != there or not (place / f"{signer.fingerprint[-8:].lower()}.pub").is_file():
        stanzas = {entry.file.sha256: entry.stanza for entry in selection.entries}
        apt_repository.publish(place, files, stanzas, pool, signer)
    shutil.rmtree(out / ".pool")
    return came, len(there - wanted)


def _patiently(what: Callable[[], object]) -> None:
    """Ask again what fails: for minutes after a release NVIDIA's index and its files do not agree."""
    for attempt in range(_TRIES):
        try:
            what()
        except UnreachableError:  # noqa: PERF203 - a try is a download
            if attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE * (attempt + 1))
        else:
            return
