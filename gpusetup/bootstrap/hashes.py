"""Ask the package index what a requirements file needs in all, with the SHA-256 of each wheel, for another Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.bootstrap.pip import last_words, pip
from gpusetup.bootstrap.wheels import target_environment, target_tags
from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.model.lock import PipHashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.lock import PipRequirements

__all__ = ["complete", "hashes_of"]

_DEADLINE = 1800.0
_ROUNDS = 8


def hashes_of(wanted: PipRequirements, *, python: str, arch: str) -> PipHashes:
    """Return the complete lines for both sets."""
    system = _complete(wanted.system, python, arch)
    wheels = system if wanted.wheels == wanted.system else _complete(wanted.wheels, python, arch)
    return PipHashes(python=python, arch=arch, system=system, wheels=wheels)


def _complete(lines: tuple[str, ...], python: str, arch: str) -> tuple[str, ...]:
    """Ask until nothing is missing: pip judges markers by the Python that runs it, not by the one it is asked for."""
    options = [line for line in lines if line.startswith("-")]
    pins = [line for line in lines if not line.startswith("-")]
    environment = target_environment(python, arch)
    missing: list[str] = []
    for _ in range(_ROUNDS if pins else 0):
        report = _report([*options, *pins, *missing], python, arch)
        found, lacking = complete(pins, report, environment)
        if not lacking:
            return (*options, *found)
        missing += lacking
    if not pins:
        return ()
    raise UnreachableError("GS-771", f"what {', '.join(pins)} needs cannot be resolved", note=", ".join(missing))


def complete(
    pins: Iterable[str], report: list[dict[str, Any]], environment: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return the lines that are reached from the pins, with hashes, and the requirements that the report lacks."""
    known = {canonicalize_name(item["metadata"]["name"]): item for item in report}
    waiting = [Requirement(pin) for pin in pins]
    seen: set[tuple[str, str]] = set()
    lines: dict[str, str] = {}
    lacking: list[str] = []
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        item = known.get(name)
        if item is None:
            lacking.append(f"{wanted.name}{wanted.specifier}")
            continue
        lines[name] = _line(item)
        for extra in {"", *wanted.extras} - {chosen for other, chosen in seen if other == name}:
            seen.add((name, extra))
            for text in item["metadata"].get("requires_dist") or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({**environment, "extra": extra}):
                    waiting.append(needed)
    return [lines[name] for name in sorted(lines)], lacking


def _line(item: dict[str, Any]) -> str:
    name, version = item["metadata"]["name"], item["metadata"]["version"]
    digest = (item["download_info"].get("archive_info") or {}).get("hashes", {}).get("sha256")
    if not digest:
        raise BadInputError(
            "GS-772", f"the index gives no SHA-256 for {name} {version}",
            hint="use an index that does, such as PyPI or a mirror of it; or make the lock without --hashes",
        )  # fmt: skip
    return f"{name}=={version} --hash=sha256:{digest}"


def _report(lines: list[str], python: str, arch: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        wanted, answer = Path(folder) / "requirements.txt", Path(folder) / "report.json"
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = pip(
            "install", "--dry-run", "--ignore-installed", "--report", str(answer),
            "--target", str(Path(folder) / "nowhere"), *target_tags(python, arch), "-r", str(wanted),
            deadline=_DEADLINE,
        )  # fmt: skip
        if not done.ok:
            raise UnreachableError(
                "GS-770",
                "the package index does not list the dependencies of the Python packages",
                context=last_words(done),
                hint="this step needs a Python package index; set a mirror as for pip: PIP_INDEX_URL",
            )
        found: list[dict[str, Any]] = msgspec.json.decode(answer.read_bytes())["install"]
    return found
