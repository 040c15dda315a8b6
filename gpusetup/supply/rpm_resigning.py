"""Packages that nobody signed, from a repository whose signed list has their digests: the bundle's key signs them.

NVIDIA's container toolkit for dnf and zypper is such. Hosts of a bundle check each package, and go on doing so.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from gpusetup.bootstrap.bundle import digest_of
from gpusetup.errors import PreflightError
from gpusetup.supply.entry import Beside
from gpusetup.supply.rpm_repository import prove, tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpusetup.supply.entry import Entry
    from gpusetup.supply.fetching import Pool
    from gpusetup.supply.signing import Signer

__all__ = ["known_by", "signed_anew"]


def known_by(entries: Iterable[Entry], pool: Pool, signed: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries, those that an earlier bundle signed as they are there: they are not fetched again."""
    return tuple(
        _as_signed(entry, path, signed[entry.file.sha256])
        if entry.listed and (path := pool.path(signed.get(entry.file.sha256, ""))).is_file()
        else entry
        for entry in entries
    )


def signed_anew(entries: Iterable[Entry], pool: Pool, signer: Signer) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Sign what only a list vouches for; return the entries as they are then, and upstream's digests with ours.

    The pool has compared each file with the digest in the signed list. What is in a package stays as it is.
    """
    found, digests = [], {}
    for entry in entries:
        if not entry.listed:
            found.append(entry)
            continue
        part = pool.folder / ".part" / f"{entry.file.sha256}.rpm"
        shutil.copyfile(pool.path(entry.file.sha256), part)
        _sign(part, signer)
        prove([part], Beside(keys=(signer.public(),)))
        ours = digest_of(part)
        pool.path(ours).parent.mkdir(exist_ok=True)
        part.replace(pool.path(ours))
        digests[entry.file.sha256] = ours
        found.append(_as_signed(entry, pool.path(ours), ours))
    return tuple(found), digests


def _as_signed(entry: Entry, path: Path, sha256: str) -> Entry:
    return entry._replace(file=entry.file._replace(sha256=sha256, size=path.stat().st_size), listed=False)


def _sign(path: Path, signer: Signer) -> None:
    gpg = shutil.which("gpg")
    if shutil.which("rpmsign") is None or gpg is None:
        raise PreflightError(
            "GS-781", "a package without its vendor's signature is signed by rpmsign, which is not on this machine",
            hint="apt-get install rpm gnupg; elsewhere: dnf install rpm-sign",
        )  # fmt: skip
    home = signer.home or os.environ.get("GNUPGHOME", "")
    macros = {"_gpg_name": signer.fingerprint, "__gpg": gpg, "_gpg_digest_algo": "sha256"}
    macros |= {"_gpg_path": home} if home else {}
    words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    tool("rpmsign", *words, "--addsign", str(path))
