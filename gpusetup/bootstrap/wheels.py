"""Collects the wheels of gpusetup and its dependencies for new machines, also for other Pythons."""

import base64
import csv
import hashlib
import io
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from gpusetup import content
from gpusetup.bootstrap.web import authorities
from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, HostFailedError, UnreachableError

_TRIES, _PAUSE = 3, 5.0
_BROKE_OFF = re.compile(
    r"IncompleteRead|Connection broken|Connection aborted|Connection reset|ConnectionResetError|ProtocolError"
    r"|Read timed out|ReadTimeout|ChunkedEncodingError|incomplete-download|after connection broken by"
    r"|\b(?:408|425|429|5\d\d) (?:Client|Server) Error"
)
"""pip's messages for broken downloads: it retries refused connections, but not answers that end half-way."""


def pip(*arguments: str, deadline: float, pause: float = _PAUSE, **environment: str) -> Finished:
    """Run this Python's pip; retry broken downloads within the deadline."""
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    trusted = authorities()
    if isinstance(trusted, str):
        env.setdefault("PIP_CERT", trusted)
    argv = [sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]]
    end = time.monotonic() + deadline
    for attempt in range(1, _TRIES + 1):
        done = run(argv, env=env, deadline=max(end - time.monotonic(), 1.0))
        if done.ok or done.timed_out or attempt == _TRIES or not _BROKE_OFF.search(done.err):
            break
        time.sleep(pause * attempt)
    return done


def last_words(done: Finished) -> str:
    """Return the last lines of pip's errors, without warnings."""
    lines = [line for line in done.err.splitlines() if line.strip()]
    return "\n  ".join([line for line in lines if not line.startswith("WARNING")][-6:])


_DEADLINE = 1200.0
_GLIBC = "2.28"
_OLDEST_GLIBC = 4
_OLD_NAMES = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
"""Old names of platforms → minor version of glibc 2."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_IN_A_WHEEL = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD", "uv_cache.json"}


def own_wheel(folder: Path) -> Path:
    """Write gpusetup's own wheel to a folder: built from a source checkout, else repacked from the installation."""
    source = content.content_path().resolve()
    if (source / "pyproject.toml").is_file() and (source / "gpusetup").is_dir():
        return _built(source, folder)
    return _repacked(folder)


def closure(own: Path, folder: Path, *, python: str, arch: str) -> list[Path]:
    """Download gpusetup's dependencies for another Python; return that set with gpusetup's own wheel.

    pip evaluates markers for the Python that runs it, so the wheels' metadata shows what is still missing.
    """
    scratch = folder / f".{python}-{arch}"
    scratch.mkdir()
    try:
        wanted: list[str] = [str(own)]
        for _ in range(6):
            _pip("download", *target_tags(python, arch), "--dest", str(scratch), *wanted)
            wheels = {_name(path): path for path in sorted(scratch.glob("*.whl"))}
            wheels[_name(own)] = own
            needed = _reachable(wheels, own, target_environment(python, arch))
            missing = sorted(requirement for name, requirement in needed.items() if name not in wheels)
            if not missing:
                kept = []
                for name in sorted(needed):
                    target = folder / wheels[name].name
                    if wheels[name] != own:
                        wheels[name].replace(target)
                    kept.append(target)
                return kept
            wanted = [str(own), *missing]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    raise HostFailedError("GS-712", f"the wheels for Python {python} on {arch} cannot be resolved", note=str(missing))


def download_pip(folder: Path) -> Path:
    """Download a wheel of pip that runs on all supported Pythons."""
    scratch = folder / ".pip"
    scratch.mkdir()
    try:
        _pip("download", "--no-deps", "--only-binary=:all:", "--dest", str(scratch), "pip>=24,<27")
        found = next(scratch.glob("pip-*.whl"))
        return found.replace(folder / found.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def target_tags(python: str, arch: str, glibc: str = _GLIBC) -> list[str]:
    """Return pip's options for another Python and glibc; all minor versions are listed, as pip implies none."""
    short = "cp" + python.replace(".", "")
    tags = [tag for abi in (short, "abi3", "none") for tag in ("--abi", abi)]
    minors = range(int(glibc.partition(".")[2]), _OLDEST_GLIBC, -1)
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in minors] + [f"manylinux2014_{arch}"]
    places = [tag for platform in platforms for tag in ("--platform", platform)]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *tags, *places]


def wheel_tags(python: str, arch: str, newest: int) -> list[Tag]:
    """Return the wheel tags that a Python accepts with glibc 2.`newest`, the best first."""
    version = [int(part) for part in python.split(".")]
    abi = "cp" + python.replace(".", "")
    platforms = []
    for minor in range(newest, _OLDEST_GLIBC, -1):
        platforms.append(f"manylinux_2_{minor}_{arch}")
        platforms += [f"{name}_{arch}" for name, its in _OLD_NAMES.items() if its == minor]
    platforms.append(f"linux_{arch}")
    return [*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms)]


def _reachable(wheels: dict[str, Path], own: Path, environment: dict[str, str]) -> dict[str, str]:
    """Return name → requirement of all dependencies of the own wheel, for the target's markers."""
    needed = {_name(own): "gpusetup"}
    waiting = [_name(own)]
    while waiting:
        path = wheels.get(waiting.pop())
        for text in _requirements(path) if path else ():
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            applies = requirement.marker is None or Marker(str(requirement.marker)).evaluate(environment)
            if applies and name not in needed:
                needed[name] = f"{requirement.name}{requirement.specifier}"
                waiting.append(name)
    return needed


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace")).get_all("Requires-Dist") or []


def target_environment(python: str, arch: str) -> dict[str, str]:
    """Return the values of environment markers on another machine."""
    environment = {key: str(value) for key, value in default_environment().items()}
    return environment | {
        "python_version": python, "python_full_version": f"{python}.0", "platform_machine": arch, "extra": "",
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip


def _name(wheel: Path) -> str:
    return str(parse_wheel_filename(wheel.name)[0])


def _built(source: Path, folder: Path) -> Path:
    scratch = folder / ".own"
    scratch.mkdir()
    try:
        _pip("wheel", "--no-deps", "--wheel-dir", str(scratch), str(source))
        built = next(scratch.glob("gpusetup-*.whl"))
        return built.replace(folder / built.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _repacked(folder: Path) -> Path:
    distribution = metadata.distribution("gpusetup")
    target = folder / f"gpusetup-{distribution.version}-py3-none-any.whl"
    record, lines = "", []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(_wheel_files(distribution.files or ()), key=str):
            data = Path(str(distribution.locate_file(file))).read_bytes()
            _add(archive, str(file), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append((str(file), f"sha256={digest}", str(len(data))))
            record = record or (f"{file.parts[0]}/RECORD" if file.parts[0].endswith(".dist-info") else "")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*lines, (record, "", "")])
        _add(archive, record, text.getvalue().encode())
    return target


def _wheel_files(files: Iterable[metadata.PackagePath]) -> list[metadata.PackagePath]:
    return [
        file
        for file in files
        if ".." not in file.parts
        and "__pycache__" not in file.parts
        and not (file.parts[0].endswith(".dist-info") and file.name in _NOT_IN_A_WHEEL)
    ]


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def _pip(*arguments: str) -> None:
    done = pip(*arguments, deadline=_DEADLINE, SOURCE_DATE_EPOCH="315532800")
    if done.ok:
        return
    if "No module named pip" in done.err:
        raise BadInputError(
            "GS-710",
            "this Python has no pip, which is needed to fetch the wheels",
            hint=f"{sys.executable} -m ensurepip",
        )
    if "No space left on device" in done.err:
        raise HostFailedError(
            "GS-765",
            f"pip {arguments[0]} found no space left on the disk",
            context=last_words(done).rpartition("No space left on device: ")[2].splitlines()[0],
        )
    raise UnreachableError(
        "GS-711",
        f"pip {arguments[0]} failed" + (" at its deadline" if done.timed_out else ""),
        context=last_words(done),
    )
