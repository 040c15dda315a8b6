"""Import a release of the matrix. gpusetup uses it until it ships a newer one.

The release needs a signature by a signer in ~/.config/gpusetup/matrix-signers (lines as in ssh-keygen's ALLOWED
SIGNERS; --signers names another file), or the digest that you give. gpusetup refuses an older release and changes
nothing if it cannot read the release.

examples:
  gpusetup matrix import https://mirror.example/matrix.json         with matrix.json.sig beside it
  gpusetup matrix import matrix.json --sha256 3f…                   of the file
  gpusetup matrix import matrix.json --check                        what would change; imports nothing
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli.output import json_text, say, write_answer
from gpusetup.errors import BadInputError, Exit, UnreachableError

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "content_of", "run"]

_LIMIT = 64 << 20
_PATIENCE = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="FILE|URL", help="a file of `gpusetup matrix export`")
    trust = parser.add_argument_group("signatures")
    trust.add_argument("--signers", metavar="FILE", help="known signers; default: ~/.config/gpusetup/matrix-signers")
    trust.add_argument("--signature", metavar="FILE|URL", help="default: the same name with .sig")
    trust.add_argument("--sha256", metavar="DIGEST", help="accept the file with this digest, without a signature")
    parser.add_argument("--older", action="store_true", help="import a release older than the matrix in use")
    parser.add_argument("--check", action="store_true", help="show what would change; import nothing")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the answer to FILE")


def run(arguments: argparse.Namespace) -> Exit:
    """Prove it, read it whole, put it in force, and say what is new."""
    from gpusetup.cli.matrix_diff import summary
    from gpusetup.matrix import kept
    from gpusetup.matrix.load import matrix, releases_place
    from gpusetup.model.documents import MatrixImported

    with tempfile.TemporaryDirectory() as folder:
        content = content_of(arguments.source)
        vouched = _vouched(arguments, content, Path(folder))
    release = kept.opened(content, arguments.source)
    now = matrix()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    kept.check_order(release, now.date, today, older=arguments.older)
    if os.environ.get("GPUSETUP_MATRIX"):
        raise BadInputError("GS-223", "GPUSETUP_MATRIX names another matrix, which would stay in force",
                            hint="unset GPUSETUP_MATRIX")  # fmt: skip
    found = tuple(kept.changes(kept.texts_of(now), release.files))
    if arguments.check:
        kept.examined(release)
        place = ""
    else:
        place = str(kept.put_in_force(release, Path(releases_place(os.environ))))
    if arguments.format == "json":
        document = MatrixImported(
            date=release.date, before=now.date, vouched=vouched, place=place, changes=tuple(summary(found))
        )
        write_answer(json_text(document), arguments.out)
        return Exit.DONE
    told = [f"the matrix of {release.date}, {vouched}", *summary(found)]
    write_answer("\n".join(told), arguments.out)
    if arguments.check:
        say(f"nothing was changed: the matrix of {now.date} is in force")
    else:
        say(f"now in use; before: {now.date}. `gpusetup matrix diff {now.date} {release.date}` tells more")
    return Exit.DONE


def content_of(source: str) -> bytes:
    """Return what is in a file or at an address."""
    if "://" not in source:
        try:
            return Path(source).read_bytes()
        except OSError as error:
            raise BadInputError("GS-223", f"cannot read {source}: {error.strerror}", path=source) from error
    from gpusetup.bootstrap.web import Unfetched, fetch

    try:
        return fetch(source, limit=_LIMIT, patience=_PATIENCE)
    except Unfetched as error:
        raise UnreachableError("GS-223", f"cannot fetch {source}", note=str(error), hint="try again") from error


def _vouched(arguments: argparse.Namespace, content: bytes, folder: Path) -> str:
    """Return who vouches for the release."""
    digest = hashlib.sha256(content).hexdigest()
    if arguments.sha256:
        if digest != arguments.sha256.strip().lower():
            raise BadInputError(
                "GS-221", "the release is not the file with that digest", path=arguments.source,
                note=f"expected {arguments.sha256}, got {digest}", hint="never take the new digest unchecked",
            )  # fmt: skip
        return "by its digest"
    from gpusetup.drive import signatures

    signers = _signers(arguments.signers)
    release, signature = folder / "release", folder / "signature"
    release.write_bytes(content)
    source = arguments.signature or arguments.source + ".sig"
    signature.write_bytes(content_of(source))
    return f"signed by {signatures.check(release, signature, signers, source)}"


def _signers(named: str | None) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    path = Path(named) if named else Path(base) / "gpusetup" / "matrix-signers"
    if not path.is_file():
        raise BadInputError(
            "GS-221", f"no signer is known: {path} is missing", path=str(path),
            hint="write the line of whom you trust into it (NAME KEYTYPE KEY), or give the digest: --sha256",
        )  # fmt: skip
    return path
