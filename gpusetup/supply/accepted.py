"""Whether a bundle may replace the last one: it must not be older, nor lack the known key's signature.

What was accepted for a folder is recorded on this machine: an attacker who replaces the folder replaces its signature.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpusetup.bootstrap.bundle import KEY, MANIFEST, SIGNATURE, read_manifest
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import data_home
from gpusetup.supply.signing import prove_signature

if TYPE_CHECKING:
    from gpusetup.model.bundle import Manifest


class Asked(NamedTuple):
    """What the command line allows or requires."""

    signed_by: str = ""
    older: bool = False
    unsigned: bool = False


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The last bundle that was accepted for a folder."""

    serial: int = 0
    made: str = ""
    signers: tuple[str, ...] = ()
    """Fingerprints of keys; one of them signed it."""


def before_in(folder: Path) -> Before:
    """Return what was accepted for a folder: this machine's record, or the bundle in the folder if that is newer."""
    try:
        kept = msgspec.json.decode(_record(folder).read_bytes(), type=Before)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        kept = Before()
    if not (folder / MANIFEST).is_file():
        return kept
    there = read_manifest(folder / MANIFEST)[0]
    signers = kept.signers or (_named(there) if (folder / SIGNATURE).is_file() else ())
    newest = there if there.serial > kept.serial else kept
    return Before(serial=newest.serial, made=newest.made, signers=signers)


def keep(folder: Path, manifest: Manifest, signer: str) -> None:
    """Record what was accepted for a folder."""
    path = _record(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    signers = (signer,) if signer else ()
    write_whole(path, msgspec.json.encode(Before(serial=manifest.serial, made=manifest.made, signers=signers)))


def examine_order(coming: Manifest, signed: bool, before: Before, asked: Asked, where: Path) -> None:
    """Raise if a bundle is older than the last one, or unsigned where that one was signed."""
    if coming.serial < before.serial and not asked.older:
        raise BadInputError(
            "GS-795",
            f"the bundle of {coming.made or 'an unknown day'} is older than the one before it",
            path=str(where),
            note=f"it has the serial {coming.serial}, the one of {before.made} that was here has {before.serial}",
        )
    if not signed and (asked.signed_by or (before.signers and not asked.unsigned)):
        whose = asked.signed_by or before.signers[0]
        raise BadInputError(
            "GS-793", f"the bundle is not signed by {whose}", path=str(where), note="its signature file is missing",
            hint="get it again from whom you trust" + ("" if asked.signed_by else "; --unsigned takes it all the same"),
        )  # fmt: skip


def prove(folder: Path, manifest_at: Path, manifest: Manifest, before: Before, asked: Asked) -> str:
    """Return the key that signed the manifest; raise unless it is a known one. With none known, the bundle names it."""
    signature = folder / SIGNATURE
    if not signature.is_file():
        return ""
    known = (asked.signed_by,) if asked.signed_by else before.signers
    trusted = known or _named(manifest)
    if not trusted or not (known or shutil.which("gpg")):
        return ""
    for fingerprint in trusted[:-1]:
        try:
            prove_signature(manifest_at, signature, folder.glob(KEY), fingerprint)
        except BadInputError:
            continue
        return fingerprint
    prove_signature(manifest_at, signature, folder.glob(KEY), trusted[-1])
    return trusted[-1].replace(" ", "").upper()


def _named(manifest: Manifest) -> tuple[str, ...]:
    return tuple(dict.fromkeys(system.fingerprint for system in manifest.systems.values()))


def _record(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    return Path(data_home(os.environ)) / "bundles" / f"{name}.json"
