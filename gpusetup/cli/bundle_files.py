"""Subcommands of `bundle`: serve it to hosts, mirror NVIDIA's repositories."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output, timers
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.documents import Mirror


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
