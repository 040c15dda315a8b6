"""A bundle for whole hosts: fetch what was chosen for them, publish it, and write the manifest.

A folder serves several releases; each run adds one. Files that exist by their digest are not fetched again; the same
command resumes an interrupted run; manifest.json is written last and names every file.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from gpusetup import __version__
from gpusetup.bootstrap.bundle import (
    KEY,
    MANIFEST,
    SIGNATURE,
    alone_on,
    digest_of,
    numbered,
    read_manifest,
    replaced,
    write_manifest,
)
from gpusetup.components.judge import versions
from gpusetup.errors import BadInputError
from gpusetup.model.bundle import BundledFile, BundledSystem, Manifest
from gpusetup_fleet.supply.choosing import Supply, lay_links
from gpusetup_fleet.supply.controller import controller_wheels
from gpusetup_fleet.supply.cyclonedx import bill_of
from gpusetup_fleet.supply.fetching import Pool, laid
from gpusetup_fleet.supply.root import Entry
from gpusetup_fleet.supply.rpm_repository import known_by, sign_unsigned
from gpusetup_fleet.supply.signing import Signer, fingerprints_of

_BILL = "sbom.json"
_LINKS = "python"
_ANY_PYTHON = "3.12"
"""For a release whose Python is unknown: the Python of most controllers."""
_UNCHANGED = {".deb", ".rpm", ".whl"}
"""Suffixes of files whose content never changes under the same name."""


def add_system(out: Path, supply: Supply, signer: Signer, tell: Callable[[int, int], None]) -> Manifest:
    """Fetch, publish and write the manifest; other releases in the folder stay as they are.

    The new folder is made next to the old one and swapped in one step: hosts see the old or the new bundle.
    """
    out.mkdir(parents=True, exist_ok=True)
    _examine(out)
    with alone_on(out, "makes the bundle"):
        (out / ".pool").mkdir(exist_ok=True)
        before = read_manifest(out / MANIFEST)[0] if (out / MANIFEST).is_file() else None
        files = before.files.items() if before is not None else ()
        pool = Pool(out / ".pool", ((out / name, file.sha256, file.size) for name, file in files))
        there = before.systems.values() if before is not None else ()
        signed = {
            theirs: ours for system in there for theirs, ours in system.sign_unsigned.items() if ours in pool.known
        }
        supply = supply._replace(packages=known_by(supply.packages, pool, signed))
        pool.fetch(supply.files(), tell)
        repository = supply.kind.repository
        repository.prove(pool.new(entry.file for entry in supply.packages if not entry.listed), supply.extras)
        packages, new_signed = sign_unsigned(supply.packages, pool, signer)
        supply = supply._replace(packages=packages)
        signed |= new_signed
        elsewhere = dict(before.systems) if before is not None else {}
        former = elsewhere.pop(supply.name, None)
        kept = {system.repository for system in elsewhere.values()}
        with replaced(out) as new:
            _carry(
                out, new, without={supply.repository} | ({former.repository} - kept if former is not None else set())
            )
            published, extras = supply.packages, supply.extras
            if supply.repository in kept:
                published = (*published, *_of_others(out, supply, elsewhere.values()))
                extras = extras.joined(repository.extras_in(out / supply.repository, signer))
            repository.publish(new / supply.repository, published, pool, signer, extras)
            lay_links(new / _LINKS, supply.wheels, pool)
            lock, *others = _write_locks(new, supply)
            system = BundledSystem(
                gpus=supply.asked.request.gpus,
                lock=lock,
                locks=tuple(others),
                repository=supply.repository,
                fingerprint=signer.fingerprint,
                vendors=fingerprints_of(supply.extras.keys, signer.fingerprint),
                packages=supply.versions(),
                sign_unsigned={
                    theirs: ours
                    for theirs, ours in signed.items()
                    if ours in {entry.file.sha256 for entry in supply.packages}
                },
                python=supply.python,
                wheels=tuple(f"{_LINKS}/{item.name}" for item in supply.wheels),
                environments={
                    name: tuple(f"{_LINKS}/{wheel}" for wheel in names) for name, names in supply.environments.items()
                },
            )
            systems = {**elsewhere, supply.name: system}
            pip, sets = _with_controller(new, pool, before, supply)
            _prune(new, systems, pool)
            digests = {name: file.sha256 for name, file in files}
            digests |= {f"{supply.repository}/{entry.file.name}": entry.file.sha256 for entry in published}
            digests |= {f"{_LINKS}/{item.name}": item.sha256 for item in supply.wheels}
            own = {f"wheels/{path.name}": path for path in (new / "wheels").glob("*.whl")}
            digests |= {name: digest_of(path) for name, path in own.items()}
            (new / KEY).write_bytes(signer.public())
            (new / _BILL).write_bytes(bill_of(new, systems, digests, own))
            whole = Manifest(gpusetup=__version__, pip=pip, sets=sets, systems=systems, files=_files(new, digests))
            manifest = numbered(whole, before)
            write_manifest(new / MANIFEST, manifest)
            signer.detached(new / MANIFEST, new / SIGNATURE)
        return manifest


def _write_locks(new: Path, supply: Supply) -> list[str]:
    """Write the lock of each kind of hosts; delete those of an earlier bundle of this system."""
    folder = new / "systems"
    folder.mkdir(exist_ok=True)
    for old in folder.glob(f"{supply.name}.*lock.json"):
        old.unlink()
    names = []
    for number, lock in enumerate(supply.locks, 1):
        names.append(f"systems/{supply.name}.{'' if number == 1 else f'{number}.'}lock.json")
        (new / names[-1]).write_bytes(msgspec.json.format(msgspec.json.encode(lock), indent=1) + b"\n")
    return names


def _of_others(out: Path, supply: Supply, others: Iterable[BundledSystem]) -> Iterator[Entry]:
    """Yield the packages of other releases in the same repository: Rocky and Red Hat share one."""
    wanted = {item for system in others if system.repository == supply.repository for item in system.packages.items()}
    ours = {entry.file.sha256 for entry in supply.packages}
    for entry in supply.kind.repository.read(out / supply.repository):
        names = (entry.name, versions.one_of_several(entry.name, entry.version))
        if entry.file.sha256 not in ours and any((name, entry.version) in wanted for name in names):
            yield entry


def _carry(out: Path, new: Path, *, without: Iterable[str]) -> None:
    """Copy the old bundle except `without`; packages and wheels are linked, texts copied because they change."""
    for path in out.rglob("*"):
        name = path.relative_to(out)
        if not path.is_file() or name.parts[0].startswith(".") or any(map(name.is_relative_to, without)):
            continue
        if path.suffix in _UNCHANGED:
            laid(path, new / name)
        else:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new / name)


def _examine(out: Path) -> None:
    if any(out.iterdir()) and not ((out / MANIFEST).is_file() or (out / ".pool").is_dir()):
        raise BadInputError("GS-713", f"{out} contains other files", path=str(out))
    if os.path.ismount(out):
        raise BadInputError(
            "GS-713", f"{out} is a mount point, where a new bundle cannot replace an old one in one step",
            path=str(out), hint=f"give a folder on it: --out {out}/site",
        )  # fmt: skip


def _with_controller(
    out: Path, pool: Pool, before: Manifest | None, supply: Supply
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Add gpusetup's own wheels for the Python of this release, unless this version's are there already."""
    python, arch = supply.controller or _ANY_PYTHON, supply.asked.request.arch or "x86_64"
    sets = dict(before.sets) if before is not None and before.gpusetup == __version__ else {}
    if f"{python}-{arch}" in sets and before is not None:
        return before.pip, sets
    scratch = pool.folder / "wheels"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    pip, made = controller_wheels(scratch, pythons=(python,), archs=(arch,))
    (out / "wheels").mkdir(exist_ok=True)
    for path in scratch.iterdir():
        path.replace(out / "wheels" / path.name)
    return pip, {**sets, **made}


def _prune(out: Path, systems: dict[str, BundledSystem], pool: Pool) -> None:
    """Delete the wheels that no release needs any more."""
    wanted = {name.rpartition("/")[2] for system in systems.values() for name in system.wheels}
    for path in (out / _LINKS).glob("*.whl"):
        if path.name not in wanted:
            path.unlink()
    lay_links(out / _LINKS, (), pool)


def _files(out: Path, digests: dict[str, str]) -> dict[str, BundledFile]:
    """Return every file with its digest; packages and wheels were compared with theirs when they were fetched."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_file() and not name.startswith(".") and name not in (MANIFEST, SIGNATURE):
            fixed = path.suffix in _UNCHANGED and name in digests
            found[name] = BundledFile(sha256=digests[name] if fixed else digest_of(path), size=path.stat().st_size)
    return found
