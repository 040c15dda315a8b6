"""A folder that a new machine can be served from: wheels, and a manifest with the digest of every file."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import msgspec

from gpusetup import __version__
from gpusetup.bootstrap.wheels import closure, download_pip, own_wheel
from gpusetup.errors import BadInputError
from gpusetup.model.bundle import SCHEMA, BundledFile, Manifest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "BESIDE",
    "MANIFEST",
    "PYTHONS",
    "check_bundle",
    "digest_of",
    "make_controller_bundle",
    "read_manifest",
    "sets_for",
]

MANIFEST = "manifest.json"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
BESIDE = ("3.12", "3.11")
"""What the first stage installs beside a distribution's own Python, where dnf or zypper has it; apt has one Python."""


def make_controller_bundle(out: Path, *, pythons: tuple[str, ...], archs: tuple[str, ...]) -> Manifest:
    """Make the folder, whole or not at all; one that exists is replaced only when it is a bundle."""
    out = out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise BadInputError(
            "GS-713", f"{out} contains other files", path=str(out), hint="give an empty folder with --out"
        )
    new, old = out.with_name(f".{out.name}.new"), out.with_name(f".{out.name}.old")
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    wheels = new / "wheels"
    wheels.mkdir(parents=True)
    try:
        own = own_wheel(wheels)
        pip = download_pip(wheels)
        sets = {
            f"{python}-{arch}": tuple(f"wheels/{path.name}" for path in closure(own, wheels, python=python, arch=arch))
            for arch in archs
            for python in pythons
        }
        files = {
            str(path.relative_to(new)): BundledFile(sha256=digest_of(path), size=path.stat().st_size)
            for path in sorted(wheels.iterdir())
        }
        manifest = Manifest(gpusetup=__version__, pip=f"wheels/{pip.name}", sets=sets, files=files)
        text = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1) + b"\n"
        (new / MANIFEST).write_bytes(text)
        if out.exists():
            out.rename(old)
        new.rename(out)
    finally:
        for folder in (new, old):
            shutil.rmtree(folder, ignore_errors=True)
    return manifest


def sets_for(python: str, family: str, arch: str) -> tuple[str, ...]:
    """Return the sets of wheels of which a new machine can use one, the best first."""
    others = () if family in {"debian", "ubuntu"} else BESIDE
    return tuple(f"{one}-{arch}" for one in dict.fromkeys((python, *others)) if one in PYTHONS)


def read_manifest(path: Path) -> tuple[Manifest, str]:
    """Return a manifest and its digest."""
    try:
        raw = path.read_bytes()
        document = msgspec.json.decode(raw)
        if isinstance(document, dict) and document.get("schema") != SCHEMA:
            raise BadInputError(
                "GS-714",
                f"{path} is not a bundle manifest: its schema is {document.get('schema')!r}, not {SCHEMA!r}",
                path=str(path),
                hint="make a bundle: gpusetup bundle --controller-only --out DIR",
            )
        return msgspec.convert(document, Manifest), hashlib.sha256(raw).hexdigest()
    except OSError as error:
        raise BadInputError("GS-715", f"cannot read the manifest: {error.strerror}", path=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInputError("GS-716", f"the manifest cannot be used: {error}", path=str(path)) from error


def check_bundle(folder: Path) -> Manifest:
    """Compare every file with the manifest; the first that differs is an error."""
    manifest, _ = read_manifest(folder / MANIFEST)
    for name, wanted in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BadInputError("GS-717", f"{name} is missing from the bundle", path=str(path), hint="make it again")
        if digest_of(path) != wanted.sha256:
            raise BadInputError("GS-718", f"{name} does not match the manifest", path=str(path), hint="make it again")
    return manifest


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
