"""Write the matrix in use into one file, for `gpusetup matrix import` on other machines.

examples:
  gpusetup matrix export --out matrix.json
  gpusetup matrix export --out matrix.json --sign ~/.ssh/id_ed25519     writes matrix.json.sig too
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli.output import json_text, say, write_answer
from gpusetup.errors import Exit
from gpusetup.matrix.load import matrix

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", metavar="FILE", required=True, help="the file to write")
    parser.add_argument("--sign", metavar="KEY", help="sign it with this SSH key: ssh-keygen asks for its passphrase")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> Exit:
    """Write, and sign where that is asked for."""
    from gpusetup.drive import signatures
    from gpusetup.matrix import kept
    from gpusetup.model.documents import MatrixExported

    content = kept.exported(matrix())
    out = Path(arguments.out)
    write_answer(content.decode().rstrip("\n"), arguments.out)
    release = kept.opened(content, arguments.out)
    signature = signatures.sign(out, Path(arguments.sign)) if arguments.sign else None
    document = MatrixExported(
        path=str(out), date=release.date, sha256=release.sha256, signature=str(signature) if signature else ""
    )
    if arguments.format == "json":
        write_answer(json_text(document), None)
        return Exit.DONE
    say(f"{out}: the matrix of {release.date}, {len(content) // 1024} kB, SHA-256 of its files {release.sha256}")
    if signature is not None:
        say(f"{signature}: its signature")
    return Exit.DONE
