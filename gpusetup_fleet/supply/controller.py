"""Controller bundles: gpusetup and its dependencies for new machines, as wheels for their Pythons."""

import base64
import csv
import hashlib
import io
import shutil
import sys
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from gpusetup import __version__
from gpusetup.bootstrap.bundle import MANIFEST, alone_on, digest_of, numbered, read_manifest, replaced, write_manifest
from gpusetup.bootstrap.wheels import last_words, pip, target_environment, target_tags
from gpusetup.content import content_path
from gpusetup.errors import BadInputError, HostFailedError, UnreachableError
from gpusetup.model.bundle import BundledFile, Manifest

_DEADLINE = 1200.0
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NOT_IN_A_WHEEL = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD", "uv_cache.json"}


def make_controller_bundle(out: Path, *, pythons: tuple[str, ...], archs: tuple[str, ...]) -> Manifest:
    """Make the folder, completely or not at all; an existing one is replaced only if it is a bundle."""
    out = out.resolve()
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        why = "contains other files" if out.is_dir() else "is not a folder"
        raise BadInputError("GS-713", f"{out} {why}", path=str(out))
    try:
        with alone_on(out, "makes the bundle"), replaced(out) as new:
            wheels = new / "wheels"
            wheels.mkdir()
            pip, sets = controller_wheels(wheels, pythons=pythons, archs=archs)
            files = {
                str(path.relative_to(new)): BundledFile(sha256=digest_of(path), size=path.stat().st_size)
                for path in sorted(wheels.iterdir())
            }
            before = read_manifest(out / MANIFEST)[0] if (out / MANIFEST).is_file() else None
            manifest = numbered(Manifest(gpusetup=__version__, pip=pip, sets=sets, files=files), before)
            write_manifest(new / MANIFEST, manifest)
    except OSError as error:
        raise BadInputError("GS-713", f"cannot make {out}: {error.strerror}", path=str(out)) from error
    return manifest


def controller_wheels(
    wheels: Path, *, pythons: tuple[str, ...], archs: tuple[str, ...]
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Write gpusetup and its dependencies to a bundle's folder `wheels`; return pip's wheel and the sets of wheels."""
    own = own_wheels(wheels)
    installer = download_pip(wheels)
    sets = {
        f"{python}-{arch}": tuple(f"wheels/{path.name}" for path in closure(own, wheels, python=python, arch=arch))
        for arch in archs
        for python in pythons
    }
    return f"wheels/{installer.name}", sets


def own_wheels(folder: Path) -> list[Path]:
    """Write the wheels of gpusetup and gpusetup-fleet, built from the checkout, else repacked from the installation."""
    source = content_path().resolve()
    if (source / "pyproject.toml").is_file() and (source / "gpusetup").is_dir():
        return [_built(place, folder) for place in (source, source / "gpusetup_fleet")]
    return [_repacked(name, folder) for name in ("gpusetup", "gpusetup-fleet")]


def closure(own: list[Path], folder: Path, *, python: str, arch: str) -> list[Path]:
    """Download gpusetup's dependencies for another Python; return that set with gpusetup's own wheels.

    pip evaluates markers for the Python that runs it, so the wheels' metadata shows what is still missing.
    """
    scratch = folder / f".{python}-{arch}"
    scratch.mkdir()
    try:
        wanted = [*map(str, own)]
        for _ in range(6):
            _pip("download", *target_tags(python, arch), "--dest", str(scratch), *wanted)
            wheels = {_name(path): path for path in sorted(scratch.glob("*.whl"))}
            wheels |= {_name(path): path for path in own}
            needed = _reachable(wheels, own, target_environment(python, arch))
            missing = sorted(requirement for name, requirement in needed.items() if name not in wheels)
            if not missing:
                kept = []
                for name in sorted(needed):
                    target = folder / wheels[name].name
                    if wheels[name] not in own:
                        wheels[name].replace(target)
                    kept.append(target)
                return kept
            wanted = [*map(str, own), *missing]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    raise HostFailedError("GS-712", f"the wheels for Python {python} on {arch} cannot be resolved", note=str(missing))


def download_pip(folder: Path) -> Path:
    """Download a wheel of pip that runs on all supported Pythons."""
    with TemporaryDirectory(dir=folder) as scratch:
        _pip("download", "--no-deps", "--only-binary=:all:", "--dest", scratch, "pip>=24,<27")
        found = next(Path(scratch).glob("pip-*.whl"))
        return found.replace(folder / found.name)


def _reachable(wheels: dict[str, Path], own: list[Path], environment: dict[str, str]) -> dict[str, str]:
    """Return name → requirement of all dependencies of our own wheels, for the target's markers."""
    needed = {_name(path): _name(path) for path in own}
    waiting = [*needed]
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


def _name(wheel: Path) -> str:
    return str(parse_wheel_filename(wheel.name)[0])


def _built(source: Path, folder: Path) -> Path:
    with TemporaryDirectory(dir=folder) as scratch:
        _pip("wheel", "--no-deps", "--wheel-dir", scratch, str(source))
        built = next(Path(scratch).glob("*.whl"))
        return built.replace(folder / built.name)


def _repacked(name: str, folder: Path) -> Path:
    distribution = metadata.distribution(name)
    target = folder / f"{name.replace('-', '_')}-{distribution.version}-py3-none-any.whl"
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
            hint=f"{sys.executable} -m ensurepip; on Debian and Ubuntu: apt install python3-pip python3-venv",
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
