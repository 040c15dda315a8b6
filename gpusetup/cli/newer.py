"""Releases newer than the matrix (`--newer`): ask their publishers, and mark the answer as unconfirmed."""

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import DecodeError, json
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from gpusetup.cli.grammar import tables
from gpusetup.cli.output import say
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.model.stack import Resolution
from gpusetup.resolve import api
from gpusetup.resolve.domains import parsed

_DRIVERS = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
_DISTRIBUTIONS: dict[str, list[str]] = tables()["on_pypi"]
"""The names on PyPI of components that have other names there."""
_JSON = "application/vnd.pypi.simple.v1+json"
_LIMIT, _PATIENCE, _TIMEOUT, _AT_ONCE = 64 << 20, 5.0, 20.0, 8


class Release(NamedTuple):
    """A release as its publisher lists it."""

    version: Version
    date: str
    where: str

    def __str__(self) -> str:
        return f"{self.version}" + (f" of {self.date}" if self.date else "") + f" ({self.where})"


def published(component: str) -> list[Release]:
    """Return the releases that a component's publisher lists, oldest first; raise Unfetched if it does not answer."""
    if component == "driver":
        return sorted(_drivers())
    names = _DISTRIBUTIONS.get(component, (component,))
    return sorted(release for name in names for release in _on_index(name))


def published_of(components: Iterable[str]) -> dict[str, list[Release] | str]:
    """Return each component's releases, or why its publisher did not answer."""
    from concurrent.futures import ThreadPoolExecutor

    from gpusetup.bootstrap.web import Unfetched

    def one(component: str) -> list[Release] | str:
        try:
            return published(component)
        except Unfetched as error:
            return str(error)

    components = list(components)
    say(f"asking the publishers of {len(components)} components")
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        return dict(zip(components, workers.map(one, components), strict=True))


def _read(url: str, accept: str) -> Any:
    from gpusetup.bootstrap import web
    from gpusetup.bootstrap.web import Unfetched

    try:
        return json.decode(web.fetch(url, limit=_LIMIT, patience=_PATIENCE, timeout=_TIMEOUT, accept=accept))
    except (DecodeError, UnicodeError, RecursionError) as error:
        raise Unfetched(f"{url}: it does not answer in JSON") from error


def _drivers() -> list[Release]:
    from gpusetup.bootstrap.web import Unfetched

    listed = _read(_DRIVERS, "application/json")
    try:
        return [
            Release(parsed(one["release_version"]), one.get("release_date", ""), _DRIVERS)
            for branch in listed.values()
            for one in branch["driver_info"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unfetched(f"{_DRIVERS} is not NVIDIA's list of drivers: {error!r}") from error


def _on_index(name: str) -> list[Release]:
    """Return a distribution's final releases that are not yanked, each with the day of its first file."""
    from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

    unread = (AttributeError, KeyError, TypeError, InvalidSdistFilename, InvalidVersion, InvalidWheelFilename)
    url = f"{os.environ.get('PIP_INDEX_URL', 'https://pypi.org/simple').rstrip('/')}/{name}/"
    listed = _read(url, _JSON)
    days: dict[Version, str] = {}
    for file in listed.get("files", ()) if isinstance(listed, dict) else ():
        try:
            of = parse_wheel_filename if file["filename"].endswith(".whl") else parse_sdist_filename
            version = of(file["filename"])[1]
        except unread:
            continue  # a format that no installer supports any more
        if not (version.is_prerelease or file.get("yanked")):
            day = str(file.get("upload-time") or "")[:10]
            days[version] = min(day, days.get(version, day))
    return [Release(version, day, f"{name} on the package index") for version, day in days.items()]


def resolve(request: Request, matrix: Matrix, *, newer: bool) -> Resolution:
    """Resolve; with `newer`, treat a release that only its publisher lists as the nearest one in the matrix.

    Without it, the conflict suggests `--newer` if the matrix ends before the requested release.
    """
    try:
        return api.resolve(request, matrix)
    except NoStackError as error:
        beyond = api.beyond(request, matrix)
        if not beyond:
            raise
        if not newer:
            raise _with_suggestion(error, "ask its publisher: the same command with --newer") from error
        wishes, told = list(request.requirements), list[str]()
        for wish, last in beyond:
            taken, text = _taken_for(wish, last, matrix)
            if taken is None:
                raise _with_suggestion(error, text) from error
            wishes[wishes.index(wish)] = taken
            told.append(text)
    found = api.resolve(replace(request, requirements=tuple(wishes)), matrix)
    return replace(found, warnings=(*told, *found.warnings))


def _taken_for(wish: Requirement, last: str, matrix: Matrix) -> tuple[Requirement | None, str]:
    from gpusetup.bootstrap.web import Unfetched

    say(f"asking the publisher of {wish.component}")
    try:
        known = published(wish.component)
    except Unfetched as error:
        return None, f"try --newer again later: the publisher of {wish.component} could not be asked ({error})"
    wanted = SpecifierSet(wish.specifier)
    found = [release for release in known if release.version in wanted]
    if not found:
        newest = f"; its newest release is {known[-1]}" if known else ""
        return None, f"wait for it: the publisher does not list {wish} either{newest}"
    return Requirement(component=wish.component, specifier=f"=={last}"), (
        f"unconfirmed: {wish.component} {found[-1]} is newer than the matrix of {matrix.date}; "
        f"this answer is that for {wish.component} {last}, its nearest known release"
    )


def _with_suggestion(error: NoStackError, text: str) -> NoStackError:
    suggestions = (*error.to_document().get("suggestions", ()), text)
    document = error.to_document() | {"suggestions": suggestions}
    return type(error)(
        error.reference, error.message, document=document, note=error.note, hint="; or ".join(suggestions)
    )
