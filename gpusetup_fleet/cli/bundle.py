"""Make a folder with everything for hosts without a network: signed repositories, wheels, gpusetup.

With a request it holds driver, CUDA and its libraries, the build tools for kernel modules and the wheels for hosts of
one release and CPU. Repeat with another --os or --arch to add it, or give an inventory; files that exist are not
downloaded again. With --controller-only it holds gpusetup and ansible-core as wheels. Serve it from any web server or
with `gpusetup bundle serve`, or copy it to the hosts.

examples:
  gpusetup bundle 'torch==2.9.*' --gpu h100 --os ubuntu24.04 --out site
  gpusetup bundle --lock gpu.lock.json --os rocky9 --out site
  gpusetup bundle --inventory inventory.ini --out site    for all of its hosts
  gpusetup bundle --controller-only --out gpusetup-bundle
  gpusetup bundle --verify site                  every file against the manifest
  gpusetup bundle --verify site --diff old       what to carry over
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, Exit
from gpusetup_fleet.cli import serving

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from gpusetup.model.bundle import BundledSystem
    from gpusetup_fleet.model.bundle import SystemWanted
    from gpusetup_fleet.supply.choosing import Supply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_requirements(parser)
    machine = parser.add_argument_group("machine")
    machine.add_argument("--gpu", action="append", default=[], metavar="NAME", help="GPU of the hosts, repeatable")
    machine.add_argument("--os", metavar="ID", help="their distribution: ubuntu24.04, rocky9, …")
    machine.add_argument(
        "--arch", type=options.arch_name, action="append", choices=options.ARCHES, help="repeatable; default: x86_64"
    )
    machine.add_argument(
        "--python", action="append", metavar="X.Y",
        help="only for this Python, repeatable with --controller-only; default: 3.10 to 3.14",
    )  # fmt: skip
    what = parser.add_argument_group("content")
    what.add_argument("--controller-only", action="store_true", help="gpusetup and its libraries, nothing for hosts")
    what.add_argument(
        "--inventory",
        metavar="INVENTORY",
        help="for the hosts of an inventory: what `apply` would choose for each of them today",
    )
    what.add_argument(
        "--from", dest="facts", metavar="FILE", help="the same for the hosts in what `gpusetup facts` wrote"
    )
    what.add_argument("--lock", metavar="FILE", help="exactly this lock instead of a request")
    what.add_argument(
        "--kernel", action="append", default=[], metavar="RELEASE",
        help="headers of this kernel too (uname -r of the hosts), repeatable; the newest are always included",
    )  # fmt: skip
    what.add_argument(
        "--set", dest="variables", action="append", default=[], metavar="NAME=VALUE",
        help="a gpusetup_ variable of the hosts, wins over an inventory: gpusetup_containers=docker",
    )  # fmt: skip
    what.add_argument(
        "--archive", action="append", default=[], metavar="LINE|FILE",
        help="the distribution's archive: a line of sources.list, or a .repo file for dnf and zypper; default: its own",
    )  # fmt: skip
    where = parser.add_argument_group("where")
    where.add_argument("--out", metavar="DIR", help="the folder to make or add to")
    where.add_argument(
        "--sign-with", default="", metavar="KEY", help="secret OpenPGP key; default: gpusetup's own for bundles"
    )
    where.add_argument("--dry-run", action="store_true", help="show what would be downloaded, and its size")
    check = parser.add_argument_group("existing bundle")
    check.add_argument("--verify", "--check", dest="check", metavar="DIR", help="every file against the manifest")
    check.add_argument(
        "--signed-by", metavar="FINGERPRINT", help="with --verify: the manifest must be signed by this key"
    )
    check.add_argument("--older", action="store_true", help="with --verify: accept an older bundle than before")
    check.add_argument(
        "--unsigned", action="store_true", help="with --verify: accept an unsigned bundle in place of a signed one"
    )
    check.add_argument("--diff", metavar="OLD", help="with --verify: list files that an older bundle or manifest lacks")
    options.add_reach(parser)
    options.add_format(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Make or check a bundle."""
    from gpusetup.bootstrap.bundle import MANIFEST

    if arguments.check:
        why = "it compares a bundle that exists, and makes none"
        options.refuse_beside(
            arguments, "--verify", why,
            "REQ", "--out", "--dry-run", "--lock", "--inventory", "--from", "--controller-only", "--gpu", "--os",
        )  # fmt: skip
        folder = Path(arguments.check)
        _accept(folder, arguments)
        if arguments.diff:
            return _differences(folder / MANIFEST, Path(arguments.diff), arguments.format)
        return _print_contents(folder, arguments)
    if not arguments.out and not arguments.dry_run:
        raise BadInputError("GS-720", "no folder for the bundle", path="--out")
    if arguments.out and not Path(arguments.out).name:  # `.` is the old folder once the new one is in its place
        arguments.out = str(Path(arguments.out).resolve())
    if arguments.controller_only:
        _controller(arguments)
    elif not _hosts(arguments):
        return Exit.DONE
    return _print_contents(Path(arguments.out), arguments)


def _accept(folder: Path, arguments: argparse.Namespace) -> None:
    """Check the manifest's signature and age, then compare all files with it."""
    from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, check_bundle, read_manifest
    from gpusetup_fleet.supply.signing import Asked, before_in, examine_order, keep, prove

    asked = Asked(arguments.signed_by or "", arguments.older, arguments.unsigned)
    manifest, before = read_manifest(folder / MANIFEST)[0], before_in(folder)
    examine_order(manifest, (folder / SIGNATURE).is_file(), before, asked, folder / MANIFEST)
    who = prove(folder, folder / MANIFEST, manifest, before, asked)
    check_bundle(folder)
    keep(folder, manifest, who)


def _controller(arguments: argparse.Namespace) -> None:
    from gpusetup.bootstrap.bundle import PYTHONS
    from gpusetup_fleet.supply.controller import make_controller_bundle

    why = "a controller's bundle has nothing for hosts"
    options.refuse_beside(
        arguments, "--controller-only", why,
        "REQ", "--gpu", "--os", "--inventory", "--from", "--lock", "--kernel", "--archive", "--dry-run",
    )  # fmt: skip
    pythons = tuple(dict.fromkeys(arguments.python or PYTHONS))
    if unknown := [python for python in pythons if python not in PYTHONS]:
        raise BadInputError(
            "GS-719",
            f"gpusetup does not run on Python {unknown[0]}",
            path="--python",
            hint="one of " + ", ".join(PYTHONS),
        )
    make_controller_bundle(
        Path(arguments.out), pythons=pythons, archs=tuple(dict.fromkeys(arguments.arch or ("x86_64",)))
    )


def _hosts(arguments: argparse.Namespace) -> bool:
    """Add the requested releases to the folder; return False for a dry run, which only lists them."""
    from gpusetup.matrix.load import data_home
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup_fleet.cli.bundle_hosts import systems_of
    from gpusetup_fleet.supply.choosing import choose
    from gpusetup_fleet.supply.signing import signer
    from gpusetup_fleet.supply.site import add_system

    matrix = load_matrix()
    systems = systems_of(arguments, matrix)
    # Check the signing key before any download.
    key = None if arguments.dry_run else signer(arguments.sign_with, Path(data_home(os.environ), "bundle-key"))
    wanted = []
    for kinds in systems:
        supply = choose(kinds, matrix, output.say)
        if key is None:
            wanted.append(_needed(supply))
            continue
        output.say(_in_short(_needed(supply)))
        add_system(Path(arguments.out), supply, key, Progress())
    if key is None:
        from gpusetup_fleet.model.bundle import BundleWanted

        lines = list[str]()
        for system in wanted:
            lines += [_in_short(system), *(f"  {output.size_text(one.size):>10}  {one.name}" for one in system.files)]
        output.answer(arguments.format, BundleWanted(systems=tuple(wanted)), "\n".join(lines), None)
    return key is not None


def _needed(supply: Supply) -> SystemWanted:
    """Return what a release needs, the largest file first; duplicates count once."""
    from gpusetup_fleet.model.bundle import Carried, SystemWanted

    files = {item.sha256: item for item in supply.files()}.values()
    return SystemWanted(
        system=supply.name,
        stacks=len(supply.locks),
        packages=len(supply.packages),
        wheels=len(supply.wheels),
        bytes=sum(item.size for item in files),
        files=tuple(Carried(name=item.name, size=item.size) for item in sorted(files, key=lambda item: -item.size)),
    )


def _in_short(wanted: SystemWanted) -> str:
    stacks = f"{wanted.stacks} stacks, " if wanted.stacks > 1 else ""
    parts = counted(wanted.packages, "package"), counted(wanted.wheels, "wheel"), output.size_text(wanted.bytes)
    return f"{wanted.system}: {stacks}{', '.join(parts)}"


class Progress:
    """Prints a line for each tenth of a download."""

    def __init__(self) -> None:
        self.told = -1

    def __call__(self, done: int, whole: int) -> None:
        """Print the progress if it reached another tenth."""
        tenth = 10 * done // whole if whole else 10
        if tenth != self.told:
            self.told = tenth
            output.say(f"  {output.size_text(done)} of {output.size_text(whole)}")


def _differences(manifest: Path, older: Path, form: str) -> Exit:
    from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, read_manifest

    older = older / MANIFEST if older.is_dir() else older
    new, old = read_manifest(manifest)[0], read_manifest(older)[0]
    there = {file.sha256 for file in old.files.values()}
    carried = {name: file for name, file in sorted(new.files.items()) if file.sha256 not in there}
    size = sum(file.size for file in carried.values())
    if form == "json":
        from gpusetup_fleet.model.bundle import BundleDiff, Carried

        files = tuple(Carried(name=name, size=file.size) for name, file in carried.items())
        about = BundleDiff(path=str(manifest.parent), older=str(older.parent), bytes=size, files=files)
        return output.answer(form, about, "", None)
    output.say(f"{len(carried)} of {len(new.files)} files are not in the older bundle, {output.size_text(size)}")
    always = [name for name in (MANIFEST, SIGNATURE) if manifest.with_name(name).is_file()]
    output.write_answer("\n".join([*carried, *always]), None)
    return Exit.DONE


def _print_contents(folder: Path, arguments: argparse.Namespace) -> Exit:
    from gpusetup.bootstrap.bundle import MANIFEST, read_manifest

    manifest, digest = read_manifest(folder / MANIFEST)
    size = sum(file.size for file in manifest.files.values())
    if arguments.format == "json":
        from gpusetup_fleet.model.bundle import BundleMade

        about = BundleMade(
            path=str(folder), manifest_sha256=digest, gpusetup=manifest.gpusetup, files=len(manifest.files),
            bytes=size, sets=tuple(manifest.sets), systems=tuple(manifest.systems),
        )  # fmt: skip
        return output.answer("json", about, "", None)
    lines = [
        f"{folder}: {counted(len(manifest.files), 'file')}, {size / 1e6:.1f} MB, gpusetup {manifest.gpusetup}",
        f"for {', '.join(manifest.systems or manifest.sets)}",
        f"manifest sha256 {digest}",
    ]
    if not arguments.check and manifest.systems:
        lines += ["", "copy the folder to each host or serve it, and say in the inventory:"]
        lines += _variables(manifest.systems)
    elif not arguments.check:
        lines += ["", "serve the folder, then:",
                  f"gpusetup cloud-init … --source URL --manifest {folder / MANIFEST} > user-data"]  # fmt: skip
    output.write_answer("\n".join(lines), None)
    return Exit.DONE


def _variables(systems: Mapping[str, BundledSystem]) -> list[str]:
    """Return the inventory lines that use the bundle; a distribution's own packages are an extra repository."""
    from gpusetup_fleet.supply.choosing import ARCHIVE

    own = {name: system for name, system in systems.items() if system.repository.startswith(f"{ARCHIVE}/")}
    others = [system for name, system in systems.items() if name not in own]
    keys = dict.fromkeys(key for system in others for key in (system.fingerprint, *system.vendors))
    lines = ["gpusetup_source=/srv/bundle            # or https://…", f"gpusetup_source_fingerprints={','.join(keys)}"]
    lines = lines if others else []
    for name, system in own.items():
        place = f"/srv/bundle/{system.repository}"
        extra = {
            "name": "gpusetup-bundle", "urls": [f"file://{place}"], "fingerprints": [system.fingerprint],
            "key": f"{place}/{system.fingerprint[-8:].lower()}.pub",
        }  # fmt: skip
        lines += [f"# {name}", "gpusetup_source=distro", f"gpusetup_extra_sources={json.dumps([extra])}"]
    return [*lines, "gpusetup_python_links=/srv/bundle/python   # or https://…/python/"]


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the bundle")
    serving.add_server(parser, "0.0.0.0:8080")


def run_serve(arguments: argparse.Namespace) -> Exit:
    """Serve a bundle to hosts: the files of its manifest, and nothing else. Ctrl-C ends it.

    Needs gpusetup[collector]. For hundreds of hosts use a static web server.

    examples:
      gpusetup bundle serve site
      gpusetup bundle serve site --listen 10.0.0.5:8443 --certificate site.pem --key site.key
    """
    serving.check_server()
    from gpusetup_fleet.supply.server import server_of

    place = serving.listen_address(arguments.listen)
    tls = serving.tls_of(arguments.certificate, arguments.key)
    server = server_of(Path(arguments.folder), place, tls, output.say)
    kind = "https" if tls else "http"
    output.say(f"serving {arguments.folder} at {kind}://{place[0]}:{server.server_port}; Ctrl-C ends it")
    return serving.served(server)
