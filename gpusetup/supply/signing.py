"""The OpenPGP key that signs a bundle's repositories: the site's own, or one that gpusetup makes once and keeps."""

from __future__ import annotations

import datetime as dt
import os
import re
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from gpusetup.content import host_code
from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
            note="hosts take nothing that it signs; nothing was changed",
            hint=f"gpg {place}--quick-set-expire {fingerprint} 2y, or another key: --sign-with NAME"
            if told[1] == "e" else "use another key: --sign-with NAME",
        )  # fmt: skip
    return Signer(fingerprint, home)


def _gpg(home: str, *words: str, wrong: str = "") -> Finished:
    done = _asked_gpg(home, *words)
    if done.code:
        raise PreflightError(
            "GS-767", f"there is no secret key {wrong}" if wrong else "gpg did not do its part",
            note=done.err.strip()[-300:], hint="gpg --list-secret-keys",
        )  # fmt: skip
    return done


def _asked_gpg(home: str, *words: str) -> Finished:
    env = {name: os.environ[name] for name in ("PATH", "HOME", "GNUPGHOME", "GPG_TTY") if name in os.environ}
    place = ("--homedir", home) if home else ()
    try:
        return run(("gpg", "--batch", "--yes", *place, *words), env=env, deadline=_DEADLINE)
    except OSError as error:
        raise PreflightError(
            "GS-767", "gpg signs the repositories of a bundle, and it is not here", hint="apt-get install gnupg"
        ) from error
