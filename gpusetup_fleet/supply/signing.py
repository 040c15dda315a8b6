"""The key that signs a bundle's repositories; whether a bundle is signed by the known key, and not older than the last.

The signing key is the site's own, or one that gpusetup makes once and keeps. What was accepted for a folder is recorded
on this machine: an attacker who replaces the folder replaces its signature.
"""

import datetime as dt
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpusetup.bootstrap.bundle import KEY, MANIFEST, SIGNATURE, read_manifest
from gpusetup.content import host_code
from gpusetup.drive.rundir import write_whole
from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import data_home
from gpusetup.model import kept_in
from gpusetup.model.bundle import Manifest

_DEADLINE = 120.0
_NAME = "gpusetup bundle"
_ENDS = 6
"""Index of the expiry date in a line of gpg --with-colons."""


class Signer(NamedTuple):
    """A secret key in a keyring."""

    fingerprint: str
    home: str
    """Empty: the caller's own keyring."""

    @property
    def key_file(self) -> str:
        """File name of its public key in a repository, in NVIDIA's form."""
        return f"{self.fingerprint[-8:].lower()}.pub"

    def public(self) -> bytes:
        """Return the public key, armored."""
        return _gpg(self.home, "--armor", "--export", self.fingerprint).out.encode()

    def clear(self, path: Path, target: Path) -> None:
        """Write a signed copy of a file."""
        self._sign("--clearsign", path, target)

    def detached(self, path: Path, target: Path) -> None:
        """Write the signature of a file."""
        self._sign("--detach-sign", path, target)

    def _sign(self, how: str, path: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        words = ("--local-user", self.fingerprint, "--digest-algo", "SHA256", "--armor", "--output", str(target), how)
        _gpg(self.home, *words, str(path))


def fingerprints_of(keys: Iterable[bytes], but: str = "") -> tuple[str, ...]:
    """Return the fingerprints of these keys, each once."""
    known = host_code("gpu_host.openpgp")
    return tuple(dict.fromkeys(text for key in keys for text in known.fingerprints(key) if text != but))


def prove_signature(path: Path, signature: Path, keys: Iterable[Path], fingerprint: str) -> None:
    """Raise if the key with this fingerprint did not sign a file; `keys` may come from an untrusted place."""
    wanted = fingerprint.replace(" ", "").upper()
    key = None
    with suppress(ValueError, OSError):  # what is no key has no fingerprint
        key = next((key for key in keys if wanted in fingerprints_of([key.read_bytes()])), None)
    why = "" if signature.is_file() else "its signature file is missing"
    if key is None:
        why = why or "the folder has no key with this fingerprint"
    if key is not None and not why:
        with tempfile.TemporaryDirectory() as home:
            _gpg(home, "--import", str(key))
            said = _asked_gpg(home, "--status-fd", "1", "--verify", str(signature), str(path))
        good = re.search(r"^\[GNUPG:\] VALIDSIG (?:.* )?([0-9A-F]{40})$", said.out, re.MULTILINE)
        if said.code or good is None or good[1] != wanted:
            why = "its signature is another one's, or it was changed since"
    if why:
        raise BadInputError("GS-793", f"{path.name} is not signed by {fingerprint}", path=str(path), note=why)


def signer(key: str, keep: Path) -> Signer:
    """Return the secret key of this name or fingerprint; with an empty name gpusetup's own, in the folder `keep`."""
    if key:
        return _usable(_gpg("", "--with-colons", "--list-secret-keys", key, wrong=key).out, "")
    keep.mkdir(parents=True, exist_ok=True)
    keep.chmod(0o700)
    home = str(keep)
    listed = _gpg(home, "--with-colons", "--list-secret-keys").out
    if "sec:" not in listed:
        _gpg(home, "--passphrase", "", "--quick-generate-key", _NAME, "rsa3072", "sign", "never")
        listed = _gpg(home, "--with-colons", "--list-secret-keys").out
    return _usable(listed, home)


def _usable(listed: str, home: str) -> Signer:
    """Return the first key of gpg's list; raise if it has expired or was revoked, as hosts would not accept it."""
    found = re.search(r"^fpr:+([0-9A-F]{40}):", listed, re.MULTILINE)
    fingerprint = found[1] if found else ""
    told = next((line.split(":") for line in listed.splitlines() if line.startswith("sec:")), [])
    if len(told) > _ENDS and told[1] in ("e", "r"):
        what = "expired" if told[1] == "e" else "was revoked"
        day = dt.datetime.fromtimestamp(int(told[_ENDS]), tz=dt.timezone.utc).date() if told[_ENDS].isdigit() else ""
        place = f"--homedir {home} " if home else ""
        raise PreflightError(
            "GS-767", f"the key {fingerprint} {what}" + (f" on {day}" if day else ""),
            note="hosts reject what it signs; gpusetup changed nothing",
            hint=f"gpg {place}--quick-set-expire {fingerprint} 2y, or another key: --sign-with NAME"
            if told[1] == "e" else "use another key: --sign-with NAME",
        )  # fmt: skip
    return Signer(fingerprint, home)


def _gpg(home: str, *words: str, wrong: str = "") -> Finished:
    done = _asked_gpg(home, *words)
    if done.code:
        raise PreflightError(
            "GS-767", f"there is no secret key {wrong}" if wrong else "gpg failed",
            note=done.err.strip()[-300:], hint="gpg --list-secret-keys",
        )  # fmt: skip
    return done


def _asked_gpg(home: str, *words: str) -> Finished:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "GNUPGHOME", "GPG_TTY") if name in os.environ}
    place = ("--homedir", home) if home else ()
    try:
        return run(("gpg", "--batch", "--yes", *place, *words), env=env, deadline=_DEADLINE)
    except BadInputError as error:
        raise PreflightError(
            "GS-767", "gpg, which signs a bundle's repositories, is not installed", hint="apt-get install gnupg"
        ) from error


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
    last = kept_in(_record(folder), Before) or Before()
    if not (folder / MANIFEST).is_file():
        return last
    there = read_manifest(folder / MANIFEST)[0]
    signers = last.signers or (_named(there) if (folder / SIGNATURE).is_file() else ())
    newest = there if there.serial > last.serial else last
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
            f"the bundle of {coming.made or 'an unknown day'} is older than the present one",
            path=str(where),
            note=f"it has the serial {coming.serial}, the one of {before.made} that was here has {before.serial}",
        )
    if not signed and (asked.signed_by or (before.signers and not asked.unsigned)):
        whose = asked.signed_by or before.signers[0]
        raise BadInputError(
            "GS-793", f"the bundle is not signed by {whose}", path=str(where), note="its signature file is missing",
            hint="get it again from a source you trust" + ("" if asked.signed_by else "; --unsigned accepts it"),
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
