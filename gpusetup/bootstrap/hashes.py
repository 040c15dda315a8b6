"""Ask the package index what a requirements file needs in all, with the SHA-256 of each wheel, for another machine.

A resolver that installs answers, chosen as hosts choose their installer: uv where it is there and pip has no index of
its own, else pip. Our pins are its requirements, and what limits what comes with them is one too.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.bootstrap.web import authorities
from gpusetup.bootstrap.wheels import last_words, pip, target_environment, target_tags
from gpusetup.content import host_code
from gpusetup.drive.runner import run
from gpusetup.errors import BadInputError, NoStackError, UnreachableError
from gpusetup.model.lock import PipHashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.drive.runner import Finished
    from gpusetup.model.lock import PipRequirements

_DEADLINE = 1800.0
_ROUNDS = 8
_UV_GLIBC = (17, 28, *range(31, 41))
"""Which glibc 2.x uv knows as platforms."""
_NO_ANSWER = re.compile(
    r"Failed to fetch|error sending request|Could not connect|Request failed after|dns error"
    r"|after connection broken|Max retries exceeded|Could not fetch URL \S+ (?!404 |410 )|Temporary failure in name"
)
"""In the words of uv and pip: nobody answered, or broke off. pip goes on then: that a list of files did not come is in
its log alone, and what it says is that nothing matches."""
_NO_FIT = re.compile(r"No solution found|ResolutionImpossible|No matching distribution found|conflicting dependencies")
_YANKED = re.compile(r"^warning: `?([^`\n]*?)`? is yanked(?: \(reason: (.*)\))?", re.MULTILINE)


class Target(NamedTuple):
    """The machine that the wheels are for."""

    python: str
    arch: str
    glibc: str = "2.28"

    def __str__(self) -> str:
        """Say it in an error."""
        return f"Python {self.python} on {self.arch} with glibc {self.glibc}"


class Full(NamedTuple):
    """What a resolver found: lines with hashes, the same as a PEP 751 document, and what it warned of."""

    lines: tuple[str, ...]
    pylock: str
    warnings: tuple[str, ...] = ()


def hashes_of(wanted: PipRequirements, target: Target) -> tuple[PipHashes, Full]:
    """Return the complete lines for both sets, and all about the one that needs no system packages."""
    wheels = _full(wanted.wheels, target)
    system = wheels if wanted.wheels == wanted.system else _full(wanted.system, target)
    hashes = PipHashes(python=target.python, arch=target.arch, system=system.lines, wheels=wheels.lines)
    return hashes, wheels


def _full(lines: tuple[str, ...], target: Target) -> Full:
    if all(line.startswith("-") for line in lines):
        return Full((), "")
    beside = str(Path(sys.executable).with_name("uv"))
    places = [beside, *filter(None, [shutil.which("uv")])]
    installer = host_code("gpu_host.installer")
    chosen = installer.choose("best", sys.executable, dict(os.environ), places)
    return _by_uv(chosen.uv, lines, target) if chosen.uv else _by_pip(lines, target)


# --- uv -------------------------------------------------------------------------------------------------------------


def _by_uv(uv: str, lines: tuple[str, ...], target: Target) -> Full:
    minor = int(target.glibc.partition(".")[2])
    platform = f"{target.arch}-manylinux_2_{max((known for known in _UV_GLIBC if known <= minor), default=17)}"
    more = ["--python-version", target.python, "--python-platform", platform, "--only-binary", ":all:", "--no-header"]
    env = dict(os.environ)
    trusted = authorities()
    if isinstance(trusted, str):
        env.setdefault("SSL_CERT_FILE", trusted)
    with tempfile.TemporaryDirectory() as folder:
        wanted, lock = Path(folder) / "requirements.txt", Path(folder) / "pylock.toml"
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        compiling = host_code("gpu_host.installer").compiling
        done = run(compiling(uv, sys.executable, str(wanted), str(lock), *more), env=env, deadline=_DEADLINE)
        if not done.ok:
            raise _refusal(done, lines, target)
        text = lock.read_text(encoding="utf-8")
    options = [line for line in lines if line.startswith("-")]
    warnings = [_yanked(name, reason) for name, reason in _YANKED.findall(done.err)]
    return Full((*options, *_lines(text, target)), text, tuple(warnings))


def _lines(pylock: str, target: Target) -> list[str]:
    """Return the lines of a requirements file for what uv locked: of each package the wheels that fit the target."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    environment = target_environment(target.python, target.arch)
    lines = []
    for item in tomllib.loads(pylock)["packages"]:
        if "marker" in item and not Marker(item["marker"]).evaluate(environment):
            continue
        digests = [wheel["hashes"].get("sha256") for wheel in item.get("wheels", ())]
        lines.append(_line(item["name"], str(item.get("version", "")), digests))
    return lines


# --- pip ------------------------------------------------------------------------------------------------------------


def _by_pip(lines: tuple[str, ...], target: Target) -> Full:
    """Ask until nothing is missing: pip judges markers by the Python that runs it, not by the one it is asked for."""
    options = [line for line in lines if line.startswith("-")]
    pins = [line for line in lines if not line.startswith("-")]
    environment = target_environment(target.python, target.arch)
    missing: list[str] = []
    for _ in range(_ROUNDS):
        report = _report([*options, *pins, *missing], target)
        found, lacking = complete(pins, report, environment)
        if not lacking:
            names = {canonicalize_name(line.partition("==")[0]) for line in found}
            items = [item for item in report if canonicalize_name(item["metadata"]["name"]) in names]
            warnings = [
                _yanked(f"{item['metadata']['name']}=={item['metadata']['version']}", "")
                for item in items
                if item.get("is_yanked")
            ]
            return Full((*options, *found), host_code("gpu_host.installer").document(items), tuple(warnings))
        missing += lacking
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
        digest = (item["download_info"].get("archive_info") or {}).get("hashes", {}).get("sha256")
        lines[name] = _line(item["metadata"]["name"], item["metadata"]["version"], [digest])
        for extra in {"", *wanted.extras} - {chosen for other, chosen in seen if other == name}:
            seen.add((name, extra))
            for text in item["metadata"].get("requires_dist") or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({**environment, "extra": extra}):
                    waiting.append(needed)
    return [lines[name] for name in sorted(lines)], lacking


def _report(lines: list[str], target: Target) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        wanted, answer, log = (Path(folder) / name for name in ("requirements.txt", "report.json", "pip.log"))
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = pip(
            "install", "--dry-run", "--ignore-installed", "--report", str(answer), "--log", str(log),
            "--target", str(Path(folder) / "nowhere"), *target_tags(*target), "-r", str(wanted),
            deadline=_DEADLINE,
        )  # fmt: skip
        if not done.ok:
            raise _refusal(done, lines, target, log.read_text("utf-8", "replace") if log.exists() else "")
        found: list[dict[str, Any]] = msgspec.json.decode(answer.read_bytes())["install"]
    return found


# --- both -----------------------------------------------------------------------------------------------------------


def _line(name: str, version: str, digests: list[str | None]) -> str:
    if not version or not digests or not all(digests):
        raise BadInputError("GS-772", f"the index gives no SHA-256 for {name} {version}")
    return f"{name}=={version} " + " ".join(f"--hash=sha256:{digest}" for digest in digests)


def _yanked(what: str, reason: str) -> str:
    return f"{what} was withdrawn by its publisher" + (f": {reason.strip(chr(34))}" if reason else "")


def _refusal(done: Finished, lines: Iterable[str], target: Target, log: str = "") -> NoStackError | UnreachableError:
    """Tell a resolver's no from an index that did not answer."""
    if _NO_FIT.search(done.err) and not _NO_ANSWER.search(done.err + log):
        return NoStackError(
            "GS-773",
            f"the package index has no set of wheels for {target} that has {', '.join(lines)}",
            context=last_words(done),
        )
    silent = next((line for line in log.splitlines() if _NO_ANSWER.search(line)), "")
    return UnreachableError(
        "GS-770",
        "the package index does not list the dependencies of the Python packages",
        context=silent.partition(" ")[2].strip() or last_words(done),
    )
