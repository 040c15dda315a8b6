"""Pack a bundle into one file, or into parts that fit a medium.

examples:
  gpusetup bundle pack site --out site.tar.zst
  gpusetup bundle pack site --since old --out new.tar.zst            only what the older bundle lacks
  gpusetup bundle pack site --out /media/usb/site.tar.zst --split 4G      site.tar.zst.000, .001, …
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SMALLEST = 1 << 20
_MOST_PARTS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="site.tar.zst (needs the program zstd) or site.tar"
    )
    parser.add_argument("--since", metavar="OLD", help="only what an older bundle or manifest.json lacks")
    parser.add_argument("--split", default="", metavar="SIZE", help="parts of at most this size: 4G, 650M")
    options.add_format(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Write it."""
    from gpusetup.bootstrap.bundle import MANIFEST
    from gpusetup.cli.bundle import Progress
    from gpusetup.cli.plan_text import size_text
    from gpusetup.supply.packing import pack

    out = Path(arguments.out)
    if not out.name.endswith((".tar", ".tar.zst")):
        raise BadInputError(
            "GS-788", f"{out.name} does not end in .tar or .tar.zst", path="--out", hint="--out site.tar.zst"
        )
    if not out.parent.is_dir():
        raise BadInputError("GS-788", f"there is no folder {out.parent}", path="--out", hint=f"mkdir -p {out.parent}")
    since = Path(arguments.since) if arguments.since else None
    since = since / MANIFEST if since is not None and since.is_dir() else since
    parts = pack(Path(arguments.folder), out, _size(arguments.split), Progress(), since)
    size = sum(part.stat().st_size for part in parts)
    if arguments.format == "json":
        from gpusetup.model.documents import BundlePacked

        output.write_answer(output.json_text(BundlePacked(parts=tuple(map(str, parts)), bytes=size)), None)
        return Exit.DONE
    last = f" to {parts[-1].name}" if len(parts) > 1 else ""
    where = "site" if since is None else "SITE, the folder of the older bundle"
    output.write_answer(
        f"{parts[0]}{last}: {size_text(size)}\n\n"
        f"on the other side: gpusetup bundle unpack {parts[0].name} --out {where}",
        None,
    )
    return Exit.DONE


def _size(text: str) -> int:
    if not text:
        return 0
    found = re.fullmatch(r"(\d{1,6})([KMGT]?)(?:i?B)?", text)
    size = int(found[1]) * _UNITS[found[2]] if found else 0
    if size < _SMALLEST:
        raise BadInputError(
            "GS-788", f"{text} cannot be the size of a part", path="--split", hint="1M or more: --split 4G"
        )
    return size
