"""Mirror the newest releases of NVIDIA's packages that the matrix knows, signed with your key.

Hosts use it with the printed gpusetup_source and gpusetup_source_fingerprints. gpusetup waits for half-published
releases and replaces a mirror as a whole.

examples:
  gpusetup bundle mirror --os ubuntu24.04 --os rocky9 --out /srv/nvidia
  gpusetup bundle mirror --os ubuntu24.04 --releases 1 --dry-run          show its size
  gpusetup bundle mirror --os ubuntu24.04 --out /srv/nvidia --timer daily
"""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--source-fingerprints", default="", metavar="FPR", help="of the key that signs it")
    parser.add_argument("--source-key", default="", metavar="URL", help="address of that key")
    parser.add_argument(
        "--sign-with", default="", metavar="KEY", help="secret OpenPGP key; default: gpusetup's own for bundles"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what it would hold")
    timers.add_argument(parser)
    options.add_format(parser)
    parser.set_defaults(
        ask_become_pass=False, ask_vault_pass=False, limit=None, forks=None, user=None, private_key=None,
        vault_password_file=None, ansible_arguments=[], extra_vars=[], inventory=None,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Exit:
    """Select, download and publish packages, one distribution release after the other."""
    if arguments.timer in {timers.OFF, timers.SHOW}:
        return _timed(arguments)
    if not arguments.os or not (arguments.out or arguments.dry_run) or arguments.releases < 1:
        raise BadInputError(
            "GS-779", "a mirror needs a distribution, a folder and at least one release of each line", path="--os"
        )
    if arguments.timer:
        return _timed(arguments)
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
    with nullcontext() if key is None else mirroring.alone(out):
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
    output.write_answer(output.json_text(made) if arguments.format == "json" else _text(made), None)
    return Exit.DONE


def _text(made: Mirror) -> str:
    from gpusetup.cli.plan_text import size_text

    lines = [
        f"{each.place}: {counted(each.packages, 'package')}, {size_text(each.bytes)}"
        + ("" if each.new is None else f"; {each.new} new, {each.gone} gone")
        for each in made.repositories
    ]
    if made.source:
        lines += ["", f"gpusetup_source={made.source}   # or where it is served",
                  f"gpusetup_source_fingerprints={','.join(made.fingerprints)}"]  # fmt: skip
    return "\n".join(lines)


def _timed(arguments: argparse.Namespace) -> Exit:
    words = [word for name in arguments.os for word in ("--os", name)]
    words += [word for name in arguments.arch or () for word in ("--arch", name)]
    for option, value in (
        ("--releases", arguments.releases), ("--out", arguments.out and Path(arguments.out).absolute()),
        ("--room", arguments.room), ("--source", arguments.source), ("--source-key", arguments.source_key),
        ("--source-fingerprints", arguments.source_fingerprints), ("--sign-with", arguments.sign_with),
    ):  # fmt: skip
        words += [option, str(value)] if value not in (None, "") else []
    task = timers.Task(
        command="bundle mirror", does="keep the mirror of NVIDIA's repositories fresh", words=tuple(words),
        longest="12h", spread="1h",
    )  # fmt: skip
    text, code = timers.answer(arguments, task, os.environ)
    output.write_answer(text, None)
    return code
