"""Resolves requirements to the complete set of wheels for another machine, each with its SHA-256.

The resolver is chosen as hosts choose their installer: uv if installed and pip has no index configured, else pip.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name, canonicalize_version

from gpusetup.bootstrap.web import Unfetched, authorities, fetch
from gpusetup.bootstrap.wheels import last_words, pip, target_environment, target_tags, wheel_tags
from gpusetup.content import host_code
from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, NoStackError, UnreachableError
from gpusetup.model import toml
from gpusetup.model.lock import PipHashes, PipRequirements
from gpusetup.resolve.variants import Machine, ordered, supported

_DEADLINE = 1800.0
_ROUNDS = 8
_UV_GLIBC = (17, 28, *range(31, 41))
"""The minor versions of glibc 2 for which uv has a platform name."""
_NO_ANSWER = re.compile(
    r"Failed to fetch|error sending request|Could not connect|Request failed after|dns error"
    r"|after connection broken|Max retries exceeded|Could not fetch URL \S+ (?!404 |410 )|Temporary failure in name"
)
"""Messages of uv and pip for an index that did not answer. pip logs a missing file list and then reports that nothing
matches."""
_NO_FIT = re.compile(r"No solution found|ResolutionImpossible|No matching distribution found|conflicting dependencies")
_YANKED = re.compile(r"^warning: `?([^`\n]*?)`? is yanked(?: \(reason: (.*)\))?", re.MULTILINE)


class Target(NamedTuple):
    """The machine that the wheels are for."""

    python: str
    arch: str
    glibc: str = "2.28"

    def __str__(self) -> str:
        """Return the target for an error message."""
        return f"Python {self.python} on {self.arch} with glibc {self.glibc}"

    @property
    def tags(self) -> list[Tag]:
        """Return the wheel tags that the target accepts, the best first."""
        return wheel_tags(self.python, self.arch, int(self.glibc.partition(".")[2]))


class Full(NamedTuple):
    """A resolver's answer: lines with hashes, the same as a PEP 751 document, and warnings."""

    lines: tuple[str, ...]
    pylock: str
    warnings: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    """The chosen wheel variants, one sentence each."""


def hashes_of(wanted: PipRequirements, target: Target, machine: Machine | None = None) -> tuple[PipHashes, Full]:
    """Return the hashes for both sets of a lock, and the full answer for the set that needs no system packages.

    With `machine`, uv also chooses among wheel variants if the index has them.
    """
    wheels = _full(wanted.wheels, target, machine)
    system = wheels if wanted.wheels == wanted.system else _full(wanted.system, target, machine)
    hashes = PipHashes(python=target.python, arch=target.arch, system=system.lines, wheels=wheels.lines)
    return hashes, wheels


def _full(lines: tuple[str, ...], target: Target, machine: Machine | None) -> Full:
    if all(line.startswith("-") for line in lines):
        return Full((), "")
    beside = str(Path(sys.executable).with_name("uv"))
    places = [beside, *filter(None, [shutil.which("uv")])]
    installer = host_code("gpu_host.installer")
    chosen = installer.choose("best", sys.executable, dict(os.environ), places)
    return _by_uv(chosen.uv, lines, target, machine) if chosen.uv else _by_pip(lines, target)


# --- uv -------------------------------------------------------------------------------------------------------------


def _by_uv(uv: str, lines: tuple[str, ...], target: Target, machine: Machine | None) -> Full:
    variants: list[_Variant] = []
    warnings = []
    done, text = _compiled(uv, lines, target, machine=machine)
    if machine and not done.ok:
        if _IS_VARIANT.search(done.err):
            done, text, variants = _with_variants(uv, lines, target, machine)
        elif not _NO_ANSWER.search(done.err):
            why = "" if _OLD.search(done.err) else " ".join(last_words(done).split())
            warnings += [f"wheel variants are left out: {why}"] if why else []
            done, text = _compiled(uv, lines, target)
    if not done.ok:
        raise _refusal(done, lines, target)
    options = [line for line in lines if line.startswith("-")]
    warnings += [_yanked(name, reason) for name, reason in _YANKED.findall(done.err)]
    warnings += [item.warning for item in variants if item.warning]
    chosen = tuple(item.sentence for item in variants if item.label)
    return Full((*options, *_lines(text, target)), text, tuple(warnings), chosen)


def _compiled(
    uv: str, lines: Iterable[str], target: Target, *more: str, form: str = "pylock.toml", machine: Machine | None = None
) -> tuple[Finished, str]:
    """Resolve with uv, with wheel variants for `machine`; return the finished process and the file that it wrote."""
    minor = int(target.glibc.partition(".")[2])
    platform = f"{target.arch}-manylinux_2_{max((known for known in _UV_GLIBC if known <= minor), default=17)}"
    options = ["--python-version", target.python, "--python-platform", platform, "--only-binary", ":all:"]
    env = dict(os.environ)
    if machine is not None:
        options += ["--preview-features", "wheel-variants"]
        forced = {"CUDA_DRIVER_VERSION": machine.cuda, "SM_ARCH": machine.cc}
        env |= {f"NV_VARIANT_PROVIDER_FORCE_{name}": value for name, value in forced.items()}
    trusted = authorities()
    if isinstance(trusted, str):
        env.setdefault("SSL_CERT_FILE", trusted)
    with tempfile.TemporaryDirectory() as folder:
        wanted, lock = Path(folder) / "requirements.in", Path(folder) / form
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        argv = host_code("gpu_host.installer").compiling(
            uv, sys.executable, str(wanted), str(lock), *options, "--no-header", *more
        )
        argv[argv.index("--format") + 1] = form
        done = run(argv, env=env, deadline=_DEADLINE)
        return done, lock.read_text(encoding="utf-8") if done.ok else ""


def _lines(pylock: str, target: Target) -> list[str]:
    """Return uv's locked packages as requirement lines, without packages whose marker excludes the target."""
    environment = target_environment(target.python, target.arch)
    lines = []
    for item in toml(pylock)["packages"]:
        if "marker" in item and not Marker(item["marker"]).evaluate(environment):
            continue
        digests = [wheel["hashes"].get("sha256") for wheel in item.get("wheels", ())]
        lines.append(_line(item["name"], str(item.get("version", "")), digests))
    return lines


# --- wheel variants ---------------------------------------------------------------------------------------------------

_IS_VARIANT = re.compile(r"resolved to a wheel variant")
"""The message of uv 0.13.9, which resolves variants but cannot write them to a PEP 751 document."""
_OLD = re.compile(r"unexpected argument '--preview-features'")
_PIN = re.compile(r"^([^\s=]+)==(\S+)\n +# from (\S+)", re.MULTILINE)
_SELECTED = r"Selecting: {}==\S+ \[[^]]*\] \((\S+)\)"
_FILE = re.compile(
    r"([^-]+)-([^-]+)(?:-\d[^-]*)?-(?:(?P<tags>[^-\d][^-]*-[^-]+-[^-]+?)(?:-(?P<label>[0-9a-z_.]+))?\.whl|variants\.json)"
)
_PAGE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_LARGEST, _PATIENCE = 64 << 20, 60.0


class _Metadata(msgspec.Struct):
    """The required fields of a variants.json."""

    priorities: dict[str, list[str]] = msgspec.field(name="default-priorities")
    variants: dict[str, dict[str, dict[str, list[str]]]]
    schema: str = msgspec.field(name="$schema")


class _Variant(NamedTuple):
    """A package with variants: its table in the PEP 751 document, the chosen label and a warning."""

    name: str
    table: str
    label: str
    warning: str

    @property
    def sentence(self) -> str:
        """Return a sentence about the choice."""
        return f"{self.name}: the variant {self.label}"


def _with_variants(
    uv: str, lines: tuple[str, ...], target: Target, machine: Machine
) -> tuple[Finished, str, list[_Variant]]:
    """Resolve with variants: uv chooses the releases for the machine, the matrix their variants."""
    more = ("--no-annotate", "--emit-index-annotation", "--verbose")
    done, text = _compiled(uv, lines, target, *more, form="requirements.txt", machine=machine)
    if not done.ok:
        raise _refusal(done, lines, target)
    plain, variants = [line for line in lines if line.startswith("-")], []
    for pin in _PIN.findall(text):
        seen = _FILE.fullmatch((re.findall(_SELECTED.format(re.escape(pin[0])), done.err) or [""])[-1])
        found = _variant(pin, target, machine, uvs=(seen["label"] or "") if seen else None)
        if found is None:
            plain.append("==".join(pin[:2]))
        else:
            variants.append(found)
    text = 'lock-version = "1.0"\ncreated-by = "gpusetup"\n'
    if not all(line.startswith("-") for line in plain):
        done, text = _compiled(uv, plain, target, "--no-deps")
        if not done.ok:
            raise _refusal(done, plain, target)
    return done, text + "".join(item.table for item in variants), variants


def _variant(pin: tuple[str, str, str], target: Target, machine: Machine, *, uvs: str | None) -> _Variant | None:
    """Return the best variant of a release for the machine; None if the index has no variants of it.

    If uv chose another variant that fits (`uvs`), that one is used: the lock has its dependencies.
    """
    name, version, index = pin
    wheels: dict[str, list[tuple[str, str]]] = {}
    source, tags = None, {*target.tags}
    for file, url, digest in _listed(f"{index.rstrip('/')}/{name}/"):
        parts = _FILE.fullmatch(file)
        if parts is None or canonicalize_version(parts[2]) != canonicalize_version(version):
            continue
        if parts["tags"] is None:
            source = (url, digest)
        elif tags & parse_tag(parts["tags"]):
            wheels.setdefault(parts["label"] or "", []).append((url, digest))
    if source is None:
        return None
    label, inlined, warning = "", "", ""
    try:
        document = _read_metadata(*source)
        fits = [*ordered(document, wheels.keys() - {""}, supported(machine)), ""]
        label = uvs if uvs is not None and uvs in fits else fits[0]
        if uvs not in (None, fits[0]):
            warning = (
                f"{name}: uv chose {uvs or 'no variant'}, the matrix {fits[0] or 'none'}: {label or 'none'} is locked"
            )
        document["variants"] = {label: document["variants"].get(label, {})}
        inlined = "\n[packages.variants-json]\n" + "".join(
            f"{json.dumps(key)} = {_toml(document[key])}\n" for key in document
        )
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError) as error:
        label, warning = "", f"wheel variants are left out: {source[0]} cannot be used: {error}"
    kept = [*(wheels.get(label, []) if label else []), *wheels.get("", [])]
    if not kept:
        raise NoStackError(
            "GS-773", f"no wheel and no variant of {name} {version} fits {target} with the GPU and driver"
        )
    files = ", ".join(
        f"{{ url = {json.dumps(url)}, hashes = {{ {f'sha256 = {json.dumps(digest)} ' if digest else ''}}} }}"
        for url, digest in kept
    )
    head = f"\n[[packages]]\nname = {json.dumps(name)}\nversion = {json.dumps(version)}\nindex = {json.dumps(index)}\n"
    table = re.sub(r"//[^/@\s\"]*@", "//", f"{head}wheels = [{files}]\n")  # logins do not go into the lock
    return _Variant(name, table + (inlined if label else ""), label, warning)


def _listed(page: str) -> list[tuple[str, str, str]]:
    """Return name, URL and SHA-256 of each file on a package's index page; [] for an index that is not http(s)."""
    if not page.startswith(("http://", "https://")):
        return []
    raw = _fetched(page, _PAGE)
    if raw.lstrip().startswith(b"{"):
        files = msgspec.json.decode(raw)["files"]
        return [(item["filename"], urljoin(page, item["url"]), item["hashes"].get("sha256", "")) for item in files]
    found = re.findall(r'<a\s[^>]*?href="([^"]+)"', raw.decode("utf-8", "replace"))
    links = [urldefrag(urljoin(page, unescape(link))) for link in found]
    return [(unquote(url.rpartition("/")[2]), url, mark.partition("sha256=")[2]) for url, mark in links]


def _read_metadata(url: str, digest: str) -> dict[str, Any]:
    raw = _fetched(url, "*/*")
    if digest and hashlib.sha256(raw).hexdigest() != digest:
        raise ValueError("it is not the file that the index lists")
    document: dict[str, Any] = msgspec.json.decode(raw)
    msgspec.convert(document, _Metadata)
    return document


def _fetched(url: str, accept: str) -> bytes:
    try:
        return fetch(url, limit=_LARGEST, patience=_PATIENCE, accept=accept)
    except Unfetched as error:
        raise UnreachableError("GS-770", f"the package index does not give {url}", context=str(error)) from error


def _toml(value: Any) -> str:
    """Return JSON as one line of TOML; uv has already refused values that TOML lacks, such as null."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())} }}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


# --- pip ------------------------------------------------------------------------------------------------------------


def _by_pip(lines: tuple[str, ...], target: Target) -> Full:
    """Resolve with pip, again until complete: pip evaluates markers for its own Python instead of the target's."""
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
    raise UnreachableError("GS-771", f"cannot resolve the dependencies of {', '.join(pins)}", note=", ".join(missing))


def complete(
    pins: Iterable[str], report: list[dict[str, Any]], environment: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return hashed lines for all packages that the pins need, and the requirements that the report lacks."""
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
    """Return the error of a failed resolver: no set fits, or the index did not answer."""
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
