"""Subcommands of `bundle`: pack a bundle into a file, unpack it, serve it to hosts, mirror NVIDIA's repositories."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output, timers
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.documents import Mirror


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SMALLEST = 1 << 20


def add_pack_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="site.tar.zst (needs the program zstd) or site.tar"
    )
    parser.add_argument("--since", metavar="OLD", help="only what an older bundle or manifest.json lacks")
    parser.add_argument("--split", default="", metavar="SIZE", help="parts of at most this size: 4G, 650M")
    options.add_format(parser)


def run_pack(arguments: argparse.Namespace) -> Exit:
    """Pack a bundle into one file, or into parts that fit a medium.

    examples:
      gpusetup bundle pack site --out site.tar.zst
      gpusetup bundle pack site --since old --out new.tar.zst            only what the older bundle lacks
      gpusetup bundle pack site --out /media/usb/site.tar.zst --split 4G      site.tar.zst.000, .001, …
    """
    from gpusetup.bootstrap.bundle import MANIFEST
    from gpusetup.cli.bundle import Progress
    from gpusetup.model.documents import BundlePacked
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
    last = f" to {parts[-1].name}" if len(parts) > 1 else ""
    where = "site" if since is None else "SITE, the folder of the older bundle"
    then = f"on the other side: gpusetup bundle unpack {parts[0].name} --out {where}"
    text = f"{parts[0]}{last}: {output.size_text(size)}\n\n{then}"
    return output.answer(arguments.format, BundlePacked(parts=tuple(map(str, parts)), bytes=size), text, None)


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


def add_unpack_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="the packed bundle, or the first of its parts")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to make or update")
    trust = parser.add_argument_group("signatures")
    trust.add_argument("--signed-by", default="", metavar="FINGERPRINT", help="require this key's signature")
    trust.add_argument("--older", action="store_true", help="accept a bundle older than the one before")
    trust.add_argument("--unsigned", action="store_true", help="accept an unsigned bundle in place of a signed one")
    options.add_format(parser)


def run_unpack(arguments: argparse.Namespace) -> Exit:
    """Unpack a packed bundle into a folder and compare every file with the manifest.

    In the folder of an older bundle it writes only the differences. gpusetup refuses a bundle that is older than the
    one accepted before, or not signed by its key.

    examples:
      gpusetup bundle unpack site.tar.zst --out /srv/bundle
      gpusetup bundle unpack site.tar.zst.000 --out /srv/bundle        the other parts beside it
    """
    from gpusetup.bootstrap.bundle import MANIFEST, read_manifest
    from gpusetup.cli.bundle import Progress
    from gpusetup.model.documents import BundleUnpacked
    from gpusetup.supply.packing import unpack
    from gpusetup.supply.signing import Asked

    out = Path(arguments.out)
    out = out if out.name else out.resolve()  # `.` is the old folder once the new one is in its place
    asked = Asked(arguments.signed_by, arguments.older, arguments.unsigned)
    came = unpack(Path(arguments.file), out, Progress(), asked)
    manifest, digest = read_manifest(out / MANIFEST)
    text = f"{out}: {came} of {len(manifest.files)} files were new; all match the manifest\nmanifest sha256 {digest}"
    about = BundleUnpacked(path=str(out), new=came, files=len(manifest.files), manifest_sha256=digest)
    return output.answer(arguments.format, about, text, None)


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    options.add_server(parser, "0.0.0.0:8080")


def run_serve(arguments: argparse.Namespace) -> Exit:
    """Serve a bundle to hosts: the files of its manifest, and nothing else. Ctrl-C ends it.

    Needs gpusetup[collector]. For hundreds of hosts use a static web server.

    examples:
      gpusetup bundle serve site
      gpusetup bundle serve site --listen 10.0.0.5:8443 --certificate site.pem --key site.key
    """
    options.check_server()
    from gpusetup.supply.server import server_of

    place = options.listen_address(arguments.listen)
    tls = options.tls_of(arguments.certificate, arguments.key)
    server = server_of(Path(arguments.folder), place, tls, output.say)
    kind = "https" if tls else "http"
    output.say(f"serving {arguments.folder} at {kind}://{place[0]}:{server.server_port}; Ctrl-C ends it")
    return options.served(server)


def add_mirror_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--os", action="append", default=[], metavar="ID", help="a distribution, repeatable")
    parser.add_argument(
        "--arch", type=options.arch_name, action="append", choices=options.ARCHES, help="repeatable; default: x86_64"
    )
    parser.add_argument(
        "--releases", type=int, default=2, metavar="N", help="newest releases of each line; default: %(default)s"
    )
    parser.add_argument("--out", metavar="DIR", help="the mirror")
    parser.add_argument("--room", type=int, metavar="GIB", help="refuse a total size above this")
    parser.add_argument("--source", default="nvidia", metavar="URL", help="a mirror to mirror; default: NVIDIA")
    parser.add_argument("--source-fingerprints", default="", metavar="FPR", help="with --source: of its key")
    parser.add_argument("--source-key", default="", metavar="URL", help="with --source: address of its key")
    parser.add_argument(
        "--sign-with", default="", metavar="KEY", help="secret OpenPGP key; default: gpusetup's own for bundles"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what it would hold")
    timers.add_argument(parser)
    options.add_format(parser)


def run_mirror(arguments: argparse.Namespace) -> Exit:
    """Mirror the newest releases of NVIDIA's packages that the matrix knows, signed with your key.

    Hosts use it with the printed gpusetup_source and gpusetup_source_fingerprints. gpusetup waits for half-published
    releases and replaces a mirror as a whole.

    examples:
      gpusetup bundle mirror --os ubuntu24.04 --os rocky9 --out /srv/nvidia
      gpusetup bundle mirror --os ubuntu24.04 --releases 1 --dry-run          show its size
      gpusetup bundle mirror --os ubuntu24.04 --out /srv/nvidia --timer daily
    """
    task = timers.Task(does="keep the mirror of NVIDIA's repositories fresh", longest="12h", spread="1h")
    if arguments.timer in {timers.OFF, timers.SHOW}:
        return timers.answer(arguments, task, os.environ)
    if not arguments.os or not (arguments.out or arguments.dry_run) or arguments.releases < 1:
        raise BadInputError(
            "GS-779", "a mirror needs a distribution, a folder and at least one release of each line", path="--os"
        )
    if arguments.timer:
        return timers.answer(arguments, task, os.environ)
    from gpusetup.bootstrap.bundle import alone_on
    from gpusetup.cli.bundle import Progress
    from gpusetup.matrix.load import data_home
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup.model.documents import Mirror, Mirrored
    from gpusetup.plan.settings import read_level, settings_for
    from gpusetup.resolve.requests import question
    from gpusetup.supply import mirroring
    from gpusetup.supply.signing import fingerprints_of, signer

    matrix = load_matrix()
    words = {"source": arguments.source, "source_key": arguments.source_key}
    level = {name: value for name, value in words.items() if value}
    if arguments.source_fingerprints:
        level["source_fingerprints"] = arguments.source_fingerprints
    settings = settings_for({}, {}, read_level(level, "--source"), ())
    room = arguments.room << 30 if arguments.room is not None else None
    key = None if arguments.dry_run else signer(arguments.sign_with, Path(data_home(os.environ), "bundle-key"))
    found: list[Mirrored] = []
    vendors: list[str] = []
    selections = [
        mirroring.look(question([], matrix, os=system, arch=arch), settings, matrix, arguments.releases)
        for system in dict.fromkeys(arguments.os)
        for arch in dict.fromkeys(arguments.arch or ("x86_64",))
    ]
    out = Path(arguments.out) if arguments.out else Path()
    mirroring.require_limit(out, selections, room)
    with nullcontext() if key is None else alone_on(out, "renews the mirror"):
        for chosen in selections:
            came, went = (None, None) if key is None else mirroring.keep(out, chosen, key, Progress())
            found.append(
                Mirrored(place=chosen.place, packages=len(chosen.entries), bytes=chosen.size, new=came, gone=went)
            )
            vendors += fingerprints_of(chosen.extras.keys)
    made = Mirror(
        repositories=tuple(found),
        source="" if key is None else str(out.absolute()),
        fingerprints=() if key is None else tuple(dict.fromkeys((key.fingerprint, *vendors))),
    )
    return output.answer(arguments.format, made, _text(made), None)


def _text(made: Mirror) -> str:
    lines = [
        f"{each.place}: {counted(each.packages, 'package')}, {output.size_text(each.bytes)}"
        + ("" if each.new is None else f"; {each.new} new, {each.gone} gone")
        for each in made.repositories
    ]
    if made.source:
        lines += ["", f"gpusetup_source={made.source}   # or where it is served",
                  f"gpusetup_source_fingerprints={','.join(made.fingerprints)}"]  # fmt: skip
    return "\n".join(lines)
