"""Make a folder that machines can be set up from: files, and manifest.json with the digest of each.

With --controller-only it holds gpusetup itself, ansible-core and all they need as wheels, for every Python that a new
machine may have. Serve it from any static web server; `gpusetup cloud-init` pins the digest of its manifest.

examples:
  gpusetup bundle --controller-only --out gpusetup-bundle
  gpusetup bundle --check gpusetup-bundle        every file against the manifest
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--controller-only", action="store_true", help="gpusetup and what it runs on")
    what.add_argument("--check", metavar="DIR", help="check a bundle against its manifest")
    parser.add_argument("--out", metavar="DIR", help="the folder to make; replaces an existing bundle")
    parser.add_argument(
        "--python", action="append", metavar="X.Y", help="only for this Python, repeatable; default: 3.10 to 3.14"
    )
    parser.add_argument(
        "--arch",
        type=options.arch_name,
        action="append",
        choices=options.ARCHES,
        help="repeatable; default: x86_64",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> Exit:
    """Make or check."""
    from gpusetup.bootstrap.bundle import MANIFEST, PYTHONS, check_bundle, make_controller_bundle, read_manifest

    if arguments.check:
        folder = Path(arguments.check)
        check_bundle(folder)
    else:
        pythons = tuple(dict.fromkeys(arguments.python or PYTHONS))
        if unknown := [python for python in pythons if python not in PYTHONS]:
            raise BadInputError(
                "GS-719",
                f"gpusetup does not run on Python {unknown[0]}",
                path="--python",
                hint="one of " + ", ".join(PYTHONS),
            )
        if not arguments.out:
            raise BadInputError("GS-720", "no folder for the bundle", path="--out", hint="--out gpusetup-bundle")
        folder = Path(arguments.out)
        make_controller_bundle(folder, pythons=pythons, archs=tuple(dict.fromkeys(arguments.arch or ("x86_64",))))
    manifest, digest = read_manifest(folder / MANIFEST)
    size = sum(file.size for file in manifest.files.values())
    if arguments.format == "json":
        from gpusetup.model.documents import BundleMade

        about = BundleMade(
            path=str(folder), manifest_sha256=digest, gpusetup=manifest.gpusetup, files=len(manifest.files),
            bytes=size, sets=tuple(manifest.sets),
        )  # fmt: skip
        output.write_answer(output.json_text(about), None)
        return Exit.DONE
    lines = [
        f"{folder}: {len(manifest.files)} files, {size / 1e6:.1f} MB, gpusetup {manifest.gpusetup}",
        f"for {', '.join(manifest.sets)}",
        f"manifest sha256 {digest}",
    ]
    if not arguments.check:
        lines += ["", "serve the folder, then:",
                  f"gpusetup cloud-init … --source URL --manifest {folder / MANIFEST} > user-data"]  # fmt: skip
    output.write_answer("\n".join(lines), None)
    return Exit.DONE
