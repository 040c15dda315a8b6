"""Subcommands of `matrix` for its releases: export and import."""

import argparse
import collections
import datetime as dt
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.cli import options
from gpusetup.cli.output import answer, say, write_answer
from gpusetup.errors import BadInputError, Exit, UnreachableError
from gpusetup.matrix import releases
from gpusetup.matrix.load import matrix, releases_place
from gpusetup.model.answers import Change


def summary(found: Iterable[Change]) -> Iterator[str]:
    """Yield a line for each changed component."""
    counts = collections.Counter((item.component, item.what) for item in found)
    for component in sorted({component for component, _ in counts}):
        parts = [
            f"{counts[component, what]} {what}" for what in ("added", "changed", "gone") if counts[component, what]
        ]
        yield f"{component.removeprefix('frameworks/')}: {', '.join(parts)}"


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--sign", metavar="KEY", help="sign it with this SSH key: ssh-keygen asks for its passphrase")
    options.add_format(parser)


def run_export(arguments: argparse.Namespace) -> Exit:
    """Write the matrix in use into one file, for `gpusetup matrix import` on other machines.

    examples:
      gpusetup matrix export --out matrix.json
      gpusetup matrix export --out matrix.json --sign ~/.ssh/id_ed25519     writes matrix.json.sig too
    """
    from gpusetup.drive import signatures
    from gpusetup.model.documents import MatrixExported

    content = releases.exported(matrix())
    out = Path(arguments.out)
    write_answer(content.decode().rstrip("\n"), arguments.out)
    release = releases.opened(content, arguments.out)
    signature = signatures.sign(out, Path(arguments.sign)) if arguments.sign else None
    document = MatrixExported(
        path=str(out), date=release.date, sha256=release.sha256, signature=str(signature) if signature else ""
    )
    if arguments.format == "json":
        return answer("json", document, "", None)
    say(f"{out}: the matrix of {release.date}, {len(content) // 1024} kB, SHA-256 of its files {release.sha256}")
    if signature is not None:
        say(f"{signature}: its signature")
    return Exit.DONE


_LIMIT = 64 << 20
_PATIENCE = 5.0


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="FILE|URL", help="a file of `gpusetup matrix export`")
    trust = parser.add_argument_group("signatures")
    trust.add_argument("--signers", metavar="FILE", help="known signers; default: ~/.config/gpusetup/matrix-signers")
    trust.add_argument("--signature", metavar="FILE|URL", help="default: the same name with .sig")
    trust.add_argument("--sha256", metavar="DIGEST", help="accept the file with this digest, without a signature")
    parser.add_argument("--older", action="store_true", help="import a release older than the matrix in use")
    parser.add_argument("--check", action="store_true", help="show what would change; import nothing")
    options.add_output(parser)


def run_import(arguments: argparse.Namespace) -> Exit:
    """Import a release of the matrix. gpusetup uses it until it ships a newer one.

    The release needs a signature by a signer in ~/.config/gpusetup/matrix-signers (lines as in ssh-keygen's ALLOWED
    SIGNERS; --signers names another file), or the digest that you give. gpusetup refuses an older release and changes
    nothing if it cannot read the release.

    examples:
      gpusetup matrix import https://mirror.example/matrix.json         with matrix.json.sig beside it
      gpusetup matrix import matrix.json --sha256 3f…                   of the file
      gpusetup matrix import matrix.json --check                        what would change; imports nothing
    """
    from gpusetup.model.documents import MatrixImported

    with tempfile.TemporaryDirectory() as folder:
        content = content_of(arguments.source)
        vouched = _vouched(arguments, content, Path(folder))
    release = releases.opened(content, arguments.source)
    now = matrix()
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    releases.check_order(release, now.date, today, older=arguments.older)
    if os.environ.get("GPUSETUP_MATRIX"):
        raise BadInputError("GS-223", "GPUSETUP_MATRIX names another matrix, which would stay in force",
                            hint="unset GPUSETUP_MATRIX")  # fmt: skip
    found = tuple(releases.changes(releases.texts_of(now), release.files))
    if arguments.check:
        releases.examined(release)
        place = ""
    else:
        place = str(releases.put_in_force(release, Path(releases_place(os.environ))))
    if arguments.format == "json":
        document = MatrixImported(
            date=release.date, before=now.date, vouched=vouched, place=place, changes=tuple(summary(found))
        )
        return answer("json", document, "", arguments.out)
    told = [f"the matrix of {release.date}, {vouched}", *summary(found)]
    write_answer("\n".join(told), arguments.out)
    if arguments.check:
        say(f"nothing was changed: the matrix of {now.date} is in force")
    else:
        say(f"now in use; before: {now.date}")
    return Exit.DONE


def content_of(source: str) -> bytes:
    """Return the content of a file or of a URL."""
    if "://" not in source:
        try:
            return Path(source).read_bytes()
        except OSError as error:
            raise BadInputError("GS-223", f"cannot read {source}: {error.strerror}", path=source) from error
    from gpusetup.bootstrap.web import Unfetched, fetch

    if not source.startswith(("http://", "https://")):
        raise BadInputError("GS-223", f"{source} is not an http(s) address", path=source)
    say(f"fetching {source.rpartition('/')[2]}")
    try:
        return fetch(source, limit=_LIMIT, patience=_PATIENCE)
    except Unfetched as error:
        raise UnreachableError("GS-223", f"cannot fetch {source}", note=str(error), hint="try again") from error


def _vouched(arguments: argparse.Namespace, content: bytes, folder: Path) -> str:
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
    signature = folder / "signature"
    source = arguments.signature or arguments.source + ".sig"
    signature.write_bytes(content_of(source))
    return f"signed by {signatures.check(content, signature, signers, source)}"


def _signers(named: str | None) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    path = Path(named) if named else Path(base) / "gpusetup" / "matrix-signers"
    if not path.is_file():
        raise BadInputError(
            "GS-221", f"no signer is known: {path} is missing", path=str(path),
            hint="add a line for each signer you trust (NAME KEYTYPE KEY), or give the digest: --sha256",
        )  # fmt: skip
    return path
