"""Unpack a packed bundle into a folder and compare every file with the manifest.

In the folder of an older bundle it writes only the differences. gpusetup refuses a bundle that is older than the one
accepted before, or not signed by its key.

examples:
  gpusetup bundle unpack site.tar.zst --out /srv/bundle
  gpusetup bundle unpack site.tar.zst.000 --out /srv/bundle        the other parts beside it
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="the packed bundle, or the first of its parts")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to make or update")
    trust = parser.add_argument_group("signatures")
    trust.add_argument("--signed-by", default="", metavar="FINGERPRINT", help="require this key's signature")
    trust.add_argument("--older", action="store_true", help="accept a bundle older than the one before")
    trust.add_argument("--unsigned", action="store_true", help="accept an unsigned bundle in place of a signed one")
    options.add_format(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Write it."""
    from gpusetup.bootstrap.bundle import MANIFEST, read_manifest
    from gpusetup.cli.bundle import Progress
    from gpusetup.supply.accepted import Asked
    from gpusetup.supply.packing import unpack

    out = Path(arguments.out)
    asked = Asked(arguments.signed_by, arguments.older, arguments.unsigned)
    came = unpack(Path(arguments.file), out, Progress(), asked)
    manifest, digest = read_manifest(out / MANIFEST)
    text = f"{out}: {came} of {len(manifest.files)} files were new; all match the manifest\nmanifest sha256 {digest}"
    if arguments.format == "json":
        from gpusetup.model.documents import BundleUnpacked

        about = BundleUnpacked(path=str(out), new=came, files=len(manifest.files), manifest_sha256=digest)
        text = output.json_text(about)
    output.write_answer(text, None)
    return Exit.DONE
