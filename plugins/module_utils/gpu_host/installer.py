"""The installer of a requirements file: pip, or uv if root has one; the wheels of a bundle with their signed digests;
and the lock that is left in the environment.

The lock is PEP 751's `pylock.toml`: everything that was installed, with its SHA-256.
"""

import json
import os
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional
from urllib.parse import quote

from ..gpu_probe.environment import changeable
from . import download, files, openpgp, process
from .failure import HostFailure

LOCK = "pylock.toml"
_REQUIREMENTS = "requirements.txt"
_REPORT = "report.json"
_UV = ("/usr/local/bin/uv", "/usr/bin/uv", "/opt/uv/bin/uv", "/root/.local/bin/uv")
_UV_LOCKS, _UV_PAGES = (0, 7), (0, 13)
_PIP_REPORTS = (22, 2)
_FOLDER, _MANIFEST, _KEY = "python", "manifest.json", "bundle.pub"
_CTK = "cuda-toolkit[cublas,cudart,cufft,curand,cusolver,cusparse,nvrtc]=="
_OF_PIP_ALONE = re.compile(
    r"^(?:global|install|:env:)\.(?:index-url|extra-index-url|find-links|no-index|trusted-host)="
)


class Installer(NamedTuple):
    """The path of uv, empty for pip; `locks`: whether it reports what it installed."""

    uv: str
    locks: bool


def choose(wish: str, python: str, env: Dict[str, str], places: Iterable[str] = (), *, page: bool = False) -> Installer:
    """Return the installer: uv only if nobody else can change it, pip has no index of its own, and it can read a page
    of links.
    """
    if wish == "pip":
        return Installer("", False)
    found = next((path for path in (*places, *_UV) if os.access(path, os.X_OK)), "")
    root = os.geteuid() == 0
    usable = found and not (root and changeable(found)) and not _configured(python, env)
    if usable and _version([found, "--version"], env) >= (_UV_PAGES if page else _UV_LOCKS):
        return Installer(found, True)
    return Installer("", _version([python, "-m", "pip", "--version"], env) >= _PIP_REPORTS)


def _configured(python: str, env: Dict[str, str]) -> bool:
    """Return whether pip is configured with an index that uv would not know."""
    code, text, _error = process.output([python, "-m", "pip", "config", "list"], env, 60)
    return bool(code) or any(_OF_PIP_ALONE.match(line) for line in text.splitlines())


def _version(argv: List[str], env: Dict[str, str]) -> Any:
    code, text, _error = process.output(argv, env, 60)
    found = re.search(r"(\d+)\.(\d+)", text) if not code else None
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def page_of(request: Dict[str, Any], folder: str, env: Dict[str, str]) -> str:
    """Return a page of links to a bundle's wheels with the digests of its signed manifest, so that pip and uv refuse a
    replaced wheel. Without signers return the plain `find_links`.
    """
    links: str = request["find_links"]
    prints = request.get("signers") or []
    if not prints:
        return links
    root = links.rstrip("/")[: -len("/" + _FOLDER)]
    raw = {name: _part(root, name, request["network"]) for name in (_MANIFEST, _MANIFEST + ".asc", _KEY)}
    at = {name: os.path.join(folder, name) for name in raw}
    try:
        if set(openpgp.fingerprints(raw[_KEY])) - set(prints):
            raise _swapped(root, "its key is not one of " + ", ".join(prints))
        raw[_KEY] = openpgp.binary(raw[_KEY])
    except openpgp.BadKey as error:
        raise _swapped(root, f"its key cannot be read: {error}") from error
    for name, content in raw.items():
        files.write_atomically(at[name], content, 0o600)
    good, said = openpgp.proven(at[_KEY], at[_MANIFEST + ".asc"], at[_MANIFEST], env)
    if not good:
        raise _swapped(root, said)
    wheels = [
        (name, digest["sha256"])
        for name, digest in json.loads(raw[_MANIFEST])["files"].items()
        if os.path.dirname(name) == _FOLDER and name.endswith(".whl")
    ]
    start = root if "://" in root else "file://" + quote(root)
    rows = [
        f'<a href="{start}/{quote(name)}#sha256={digest}">{name[len(_FOLDER) + 1 :]}</a>' for name, digest in wheels
    ]
    page = os.path.join(folder, "wheels.html")
    files.write_atomically(page, "\n".join(["<!DOCTYPE html>", *rows]), 0o600)
    return page


def _part(root: str, name: str, network: Dict[str, Any]) -> bytes:
    raw = download.fetch(f"{root}/{name}", network) if "://" in root else files.read_bytes(os.path.join(root, name))
    if raw is None:
        raise _swapped(root, f"it has no {name}")
    return raw


def _swapped(root: str, why: str) -> HostFailure:
    return HostFailure("GS-428", "gpusetup cannot verify the wheels of the bundle", root, why)


def compiling(uv: str, python: str, wanted: str, lock: str, *more: str) -> List[str]:
    """Return the command with which uv resolves a requirements file into a lock."""
    # Like pip: the newest fitting version of all indexes.
    index = ["--index-strategy", "unsafe-best-match", *more]
    return [uv, "pip", "compile", *_with(python), *index, "--format", "pylock.toml", "--output-file", lock, wanted]


def _with(python: str) -> List[str]:
    return ["--python", python, "--no-config", "--no-cache", "--no-progress"]


def steps(chosen: Installer, python: str, folder: str, request: Dict[str, Any]) -> List[List[str]]:
    """Return the commands: uv resolves into the lock, and installs only from it.

    Lines with hashes come from a lock and must not be resolved again: both installers compare each file with its line,
    but uv would otherwise write down what the index offers today.
    """
    wanted, lock = os.path.join(folder, _REQUIREMENTS), os.path.join(folder, LOCK)
    local = ["--no-index", "--find-links", request["find_links"]] if request["find_links"] else []
    hashed = any("--hash=" in line for line in request["requirements"])
    if chosen.uv:
        install = [chosen.uv, "pip", "install", *_with(python)]
        if hashed:
            strict = ["--require-hashes", "--index-strategy", "unsafe-best-match", *local]
            return [[*install, *strict, "--requirements", wanted]]
        return [compiling(chosen.uv, python, wanted, lock, *local), [*install, "--requirements", lock]]
    argv = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    argv += ["--no-cache-dir", "--retries=3", "--timeout=60", *(["--require-hashes"] if hashed else [])]
    if chosen.locks:
        argv += ["--report", os.path.join(folder, _REPORT)]
    return [[*argv, "-r", wanted, *local]]


def text_of(requirements: List[str]) -> str:
    """Return the requirements file.

    The toolkit's pin names the parts that CuPy's extra asks for: without them an older pip first downloads cuBLAS of
    the newest toolkit, and then one toolkit after the other down to the pinned one.
    """
    parts = any("[ctk]==" in line for line in requirements)
    return "".join((re.sub("^cuda-toolkit==", _CTK, line) if parts else line) + "\n" for line in requirements)


def write_lock(chosen: Installer, folder: str) -> None:
    """Write the lock from pip's report of what it installed; uv has written its own."""
    report = files.read_json(os.path.join(folder, _REPORT)) if chosen.locks and not chosen.uv else None
    if report is None:
        return
    files.write_atomically(os.path.join(folder, LOCK), document(report.get("install") or ()), 0o644)
    os.unlink(os.path.join(folder, _REPORT))


def document(report: Iterable[Dict[str, Any]]) -> str:
    """Return PEP 751's text for pip's report."""
    lines = ['lock-version = "1.0"', 'created-by = "gpusetup"']
    for item in sorted(report, key=lambda item: str(item["metadata"]["name"]).lower()):
        about, source = item["metadata"], item["download_info"]
        name = re.sub(r"[-_.]+", "-", about["name"]).lower()
        lines += ["", "[[packages]]", f"name = {json.dumps(name)}", f"version = {json.dumps(about['version'])}"]
        url = re.sub(r"//[^/@\s]*@", "//", source["url"])  # a login is not written down
        digest = ((source.get("archive_info") or {}).get("hashes") or {}).get("sha256") or _digest(url)
        hashes = f", hashes = {{ sha256 = {json.dumps(digest)} }}" if digest else ", hashes = {}"
        if url.partition("#")[0].endswith(".whl"):
            lines.append(f"wheels = [{{ url = {json.dumps(url)}{hashes} }}]")
        else:
            lines.append(f"sdist = {{ url = {json.dumps(url)}{hashes} }}")
    return "\n".join(lines) + "\n"


def _digest(url: str) -> Optional[str]:
    raw = files.read_bytes(url[len("file://") :]) if url.startswith("file://") else None
    return files.digest(raw) if raw is not None else None
