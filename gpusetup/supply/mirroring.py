"""A mirror of the matrix's part of one of NVIDIA's repositories, in NVIDIA's folder layout.

apt, dnf or zypper verifies the index with NVIDIA's key, each file is compared with the index, and the site's own key
signs the selection. While NVIDIA publishes, index and files disagree: gpusetup retries and never mirrors a part.
"""

import fnmatch
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from gpusetup.components.base import Offers
from gpusetup.components.driver.sources import context_of, directory_of, family_for, repository_of
from gpusetup.components.judge import versions
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import described_host
from gpusetup.supply.fetching import Pool
from gpusetup.supply.kinds import Kind, kind_for
from gpusetup.supply.root import Entry, Extras
from gpusetup.supply.signing import Signer

_TRIES = 3
_PAUSE = 30.0


class Selection(NamedTuple):
    """The packages of a repository to mirror."""

    place: str
    entries: tuple[Entry, ...]
    kind: Kind
    extras: Extras

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(entry.file.size for entry in self.entries)


def look(request: Request, settings: Settings, matrix: Matrix, newest: int) -> Selection:
    """Read a repository's signed index and select packages from it."""
    facts = described_host(request)
    repository = repository_of(matrix.repos, facts, settings)
    family = family_for(matrix.repos, facts.os, settings.source, directory_of(matrix.repos, facts))
    if repository is None or family is None:
        raise BadInputError("GS-777", f"NVIDIA has no repository for {request.os} on {facts.arch}", path="--os")
    context = context_of(matrix.repos, facts, settings, Offers(None))
    kind = kind_for(facts.packages.manager)
    with tempfile.TemporaryDirectory(prefix="gpusetup-mirror-") as folder:
        root = kind.root(Path(folder), request.os or "", request.arch or "x86_64", alone=True)
        root.add(family.sources(context).sources)
        _patiently(root.refresh)
        entries, extras = root.index(repository.url), root.extras()
    chosen = select(entries, family.patterns(context), newest)
    if not chosen:
        raise UnreachableError(
            "GS-780", f"the repository has nothing that the matrix knows ({counted(len(entries), 'package')})",
            context=repository.url, hint="nothing was changed; is it the right address?",
        )  # fmt: skip
    return Selection(f"compute/cuda/repos/{repository.folder}/{repository.cpu}", chosen, kind, extras)


def select(entries: Iterable[Entry], patterns: Iterable[str], newest: int) -> tuple[Entry, ...]:
    """Return the `newest` upstream versions per line of each matching package, with dependencies in the repository."""
    by_name: dict[str, list[Entry]] = {}
    offered: dict[str, list[tuple[Entry, str]]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
        for name, version in {(entry.name, entry.version), *entry.provides}:
            offered.setdefault(name, []).append((entry, version))
    names = [name for name in by_name if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    waiting = [entry for name in sorted(names) for entry in _newest(by_name[name], newest)]
    chosen: dict[tuple[str, str, str], Entry] = {}
    while waiting:
        entry = waiting.pop()
        key = (entry.name, entry.version, entry.arch)
        if key in chosen:
            continue
        chosen[key] = entry
        for need in entry.needs:
            there = offered.get(need.name, [])
            exact = [one for one, version in there if need.sign == "=" and _is(version, need.version)]
            waiting += exact or (_newest([one for one, _version in there], 1) if need.sign != "=" else [])
    return tuple(chosen[key] for key in sorted(chosen))


def _is(version: str, wanted: str) -> bool:
    """Return whether a version is the wanted one; an rpm dependency may leave out the release."""
    return version == wanted or ("-" not in wanted and version.rpartition("-")[0] == wanted)


def _newest(entries: list[Entry], count: int) -> list[Entry]:
    """Return the entries of the newest `count` upstream versions of each line (a driver's branch)."""
    lines: dict[str, set[str]] = {}
    for entry in entries:
        upstream = versions.upstream(entry.version) or entry.version
        lines.setdefault(upstream.partition(".")[0], set()).add(upstream)
    kept = {one for found in lines.values() for one in sorted(found, key=_number, reverse=True)[:count]}
    return [entry for entry in entries if (versions.upstream(entry.version) or entry.version) in kept]


def _number(version: str) -> list[int]:
    return [int(piece) for piece in re.findall(r"\d+", version)]


def require_limit(out: Path, selections: Iterable[Selection], room: int | None) -> None:
    """Raise if all selections together are larger than `room` bytes."""
    size = sum({entry.file.sha256: entry.file.size for each in selections for entry in each.entries}.values())
    if room is not None and size > room:
        raise BadInputError(
            "GS-778", f"the selection has {size >> 20} MiB, more than --room allows", path="--room", context=str(out)
        )


def keep(out: Path, selection: Selection, signer: Signer, tell: Callable[[int, int], None]) -> tuple[int, int]:
    """Fetch new files and publish the selection; return how many files were added and removed."""
    place = out / selection.place
    repository = selection.kind.repository
    before = repository.read(place)
    out.mkdir(parents=True, exist_ok=True)
    known = ((place / entry.file.name, entry.file.sha256, entry.file.size) for entry in before)
    pool = Pool(out / ".pool", known)
    files = [entry.file for entry in selection.entries]
    came = len(pool.lacking(files))
    _patiently(lambda: pool.fetch(files, tell))
    repository.prove(pool.new(files), selection.extras)
    there = {entry.file.sha256 for entry in before}
    wanted = {item.sha256 for item in files}
    if came or wanted != there or not (place / signer.key_file).is_file():
        repository.publish(place, selection.entries, pool, signer, selection.extras)
    shutil.rmtree(out / ".pool")
    return came, len(there - wanted)


def _patiently(what: Callable[[], object]) -> None:
    """Retry after failures: for minutes after a release NVIDIA's index and files disagree."""
    for attempt in range(_TRIES):
        try:
            what()
        except UnreachableError:  # noqa: PERF203 - a try is a download
            if attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE * (attempt + 1))
        else:
            return
