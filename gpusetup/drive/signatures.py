"""Signatures with `ssh-keygen -Y`: it signs with existing SSH keys and verifies the signer."""

import os
from pathlib import Path

from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, PreflightError

NAMESPACE = "gpusetup-matrix"
"""The default namespace: signatures that the same key made for other uses are not valid."""
_DEADLINE = 60.0


def sign(path: Path, key: Path, use: str = NAMESPACE) -> Path:
    """Sign a file with a private key, or with the agent's if `key` is a public one; return the signature's path."""
    made = path.with_name(path.name + ".sig")
    made.unlink(missing_ok=True)
    done = _ssh_keygen("-Y", "sign", "-q", "-f", str(key), "-n", use, str(path))
    if done.code or not made.exists():
        raise BadInputError(
            "GS-221", f"{path} was not signed", path=str(key), note=done.err.strip()[-300:],
            hint="name a private key, or the public one of a key that your agent holds",
        )  # fmt: skip
    return made


def check(content: bytes, signature: Path, signers: Path, source: str, use: str = NAMESPACE) -> str:
    """Return who signed a file that came from `source`; raise unless a known signer made the signature for this use."""
    for path in (signers, signature):
        if not path.is_file():
            raise BadInputError("GS-221", f"cannot read {path}: there is no such file", path=source)
    who = _ssh_keygen("-Y", "find-principals", "-f", str(signers), "-s", str(signature))
    names = who.out.split()
    if "sig_find_principals: " in who.err:
        raise BadInputError(
            "GS-221", f"the signature of this {_what(use)} is damaged", path=source, note=who.err.strip()[-300:],
            hint="fetch it again, whole: its last line is -----END SSH SIGNATURE-----",
        )  # fmt: skip
    if who.code or not names:
        raise BadInputError(
            "GS-221", f"no trusted signer signed this {_what(use)}", path=source,
            note=who.err.strip()[-300:],
            hint=f"add the signer's line to {signers} when you trust it (see ALLOWED SIGNERS in ssh-keygen's manual)",
        )  # fmt: skip
    argv = ("-Y", "verify", "-f", str(signers), "-I", names[0], "-n", use, "-s", str(signature))
    done = _ssh_keygen(*argv, stdin=content)
    if done.code:
        raise BadInputError(
            "GS-221", f"the signature does not belong to this {_what(use)}", path=source,
            note=done.err.strip()[-300:],
            hint="fetch both again, from the same place",
        )  # fmt: skip
    return names[0]


def _what(use: str) -> str:
    return use.removeprefix("gpusetup-")


def _ssh_keygen(*words: str, stdin: bytes | None = None) -> Finished:
    passed = ("PATH", "HOME", "SSH_AUTH_SOCK", "SSH_ASKPASS", "DISPLAY")
    env = {name: os.environ[name] for name in passed if name in os.environ}
    try:
        return run(("ssh-keygen", *words), env=env, deadline=_DEADLINE, stdin=stdin)
    except BadInputError as error:
        raise PreflightError(
            "GS-221", "ssh-keygen is not on this machine", hint="install OpenSSH's client: apt install openssh-client"
        ) from error
