"""Build what people install: `./dev release [KIND …] [--out DIR] [--python 3.11 …] [--arch amd64]`.

Kinds: wheel (with the sdist, and the wheel of gpusetup-fleet), collection (Ansible Galaxy), single (one file that
needs only Python), deb, rpm; all of them when none is named. container, an image of the .deb, is built when it is
named: it fetches its base (--base).
--rehearse does all that the release workflow does before it uploads: it builds twice, compares the bytes, and has twine
and, where it is installed, lintian look at the packages. Exit 1 when one of them has something against it.
Beside each file lies its bill of materials (.cdx.json). The same commit gives the same bytes: every date in them is the
commit's. Those of the image also depend on its base and on the distribution's packages of that day.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusetup import __version__
from tools.release import bills, container, deb, front, rpm, share, single
from tools.release.tree import MACHINES, Target, lay_out

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("wheel", "collection", "single", "deb", "rpm")
NAMED = ("container",)
"""Built only when named: it needs buildah, a registry and special rights."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PROGRAMS = {"deb": "dpkg-deb", "rpm": "rpmbuild", "container": "buildah"}
"""Programs that build the kinds that Python alone cannot."""
SYSTEMS = {"deb": ("3.11", "3.13"), "rpm": ("3.12",)}
"""The Pythons of today's Debian 12 and 13, and of Enterprise Linux 9 and 10."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS + NAMED))
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--python", action="append", metavar="3.N", help="for packages of this Python; may be repeated")
    parser.add_argument("--arch", choices=MACHINES, default="amd64", help="default: %(default)s")
    parser.add_argument(
        "--base", default=container.BASE, metavar="IMAGE", help="of the container; default: %(default)s"
    )
    parser.add_argument("--rehearse", action="store_true", help="build twice, compare, check; uploads nothing")
    told = parser.parse_args(arguments)
    unknown = [kind for kind in told.kinds if kind not in KINDS + NAMED]
    if unknown:
        parser.error(f"no kind is called {unknown[0]!r}; known: {', '.join(KINDS + NAMED)}")
    missing = sorted(
        {PROGRAMS[kind] for kind in told.kinds or KINDS if kind in PROGRAMS and not shutil.which(PROGRAMS[kind])}
    )
    if missing:
        packages = " ".join({"rpmbuild": "rpm", "dpkg-deb": "dpkg", "buildah": "buildah"}[name] for name in missing)
        parser.error(
            f"{', '.join(missing)} is not here: sudo apt-get install {packages}, or name the kinds that you want"
        )
    out = told.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    asked = (told.python, told.arch, moment(), told.base)
    paths = made(told.kinds or list(KINDS), out, *asked)
    for path in paths:
        print(f"{_digest(path)}  {path.relative_to(out)}", flush=True)
    if not told.rehearse:
        return 0
    with tempfile.TemporaryDirectory() as again:
        wrong = differing(paths, made(told.kinds or list(KINDS), Path(again), *asked)) + objections(paths)
    print("\n".join(wrong) or "rehearsed: ready to upload")
    return 1 if wrong else 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differing(first: Sequence[Path], second: Sequence[Path]) -> list[str]:
    """Return the files that differ between two builds or exist in one only."""
    digests = [{path.name: _digest(path) for path in paths} for paths in (first, second)]
    names = sorted(digests[0].keys() | digests[1].keys())
    return [
        f"{name}: a second build gives other bytes" for name in names if digests[0].get(name) != digests[1].get(name)
    ]


def objections(paths: Sequence[Path]) -> list[str]:
    """Return the errors that twine and lintian find; print if one of them is not installed."""
    of = {suffix: [str(path) for path in paths if path.name.endswith(suffix)] for suffix in (".whl", ".tar.gz", ".deb")}
    python = [*of[".whl"], *(path for path in of[".tar.gz"] if not Path(path).name.startswith("gpusetup-stack-"))]
    uv = str(Path(sys.executable).with_name("uv"))
    checks = [([uv, "tool", "run", "--quiet", "twine>=6,<7", "check", "--strict"], python)]
    checks.append((["lintian", "--fail-on", "error,warning"], of[".deb"]))
    wrong = []
    for argv, files in checks:
        if not files:
            continue
        if shutil.which(argv[0]) is None:
            print(f"{Path(argv[0]).name} is not here: it did not look at {len(files)} packages", file=sys.stderr)
            continue
        done = subprocess.run([*argv, *files], capture_output=True, text=True, check=False)
        wrong += (done.stdout + done.stderr).splitlines()[-20:] if done.returncode else []
    return wrong


def moment() -> int:
    """Return the date for all files: SOURCE_DATE_EPOCH, else the commit's."""
    if told := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(told)
    argv = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def made(  # noqa: PLR0917 - what the command line says, in its order
    kinds: Sequence[str], out: Path, pythons: Sequence[str] | None, arch: str, when: int, base: str = container.BASE
) -> list[Path]:
    """Build the kinds; return their files, each with its bill of materials."""
    found: list[Path] = []

    def add(path: Path, inside: list[dict[str, Any]]) -> Path:
        found.extend((path, bills.write(path, inside, when, __version__)))
        return path

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        wheel, sdist, fleet = python_packages(scratch, when)
        if "wheel" in kinds:
            for package in (wheel, sdist, fleet):
                add(Path(shutil.copy(package, out)), bills.asked_by(package))
        if "collection" in kinds:
            add(collection(out, scratch, when), [])
        if "single" in kinds:
            targets = [Target(python, arch) for python in pythons or PYTHONS]
            file = single.build(wheel, out, targets, moment=when)
            add(file, bills.wheels_in(file))

        def root(target: Target) -> Path:
            place = scratch / f"root-{target.python}"
            if not place.exists():
                lay_out(place, wheel, target)
            return place

        for kind, pack in (("deb", deb.build), ("rpm", rpm.build)):
            for python in (pythons or SYSTEMS[kind]) if kind in kinds else ():
                target = Target(python, arch)
                package = pack(root(target), out, target, moment=when)
                add(package, bills.libraries_in(target.site(root(target))))
        if "container" in kinds:
            target = Target(pythons[0] if pythons else container.PYTHON, arch)
            package = deb.build(root(target), scratch, target, moment=when)
            image = container.build(package, out, base, moment=when)
            add(image.path, [*image.packages, *bills.libraries_in(target.site(root(target)))])
    return found


def python_packages(folder: Path, when: int) -> tuple[Path, Path, Path]:
    """Build the sdist, the wheel from it, and beside them the wheel of gpusetup-fleet."""
    share.write(folder / "share")
    argv = [sys.executable, "-m", "build", "--outdir", str(folder)]
    told = {"GPUSETUP_REPOSITORY": front.repository(ROOT), "GPUSETUP_SHARE": str(folder / "share")}
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(when), **told}
    for words in ([str(ROOT)], ["--wheel", str(ROOT / "gpusetup_fleet")]):
        subprocess.run([*argv, *words], check=True, env=env, stdout=subprocess.DEVNULL)
    found = [next(folder.glob(name)) for name in ("gpusetup-*.whl", "gpusetup-*.tar.gz", "gpusetup_fleet-*.whl")]
    return found[0], found[1], found[2]


def collection(out: Path, scratch: Path, when: int) -> Path:
    """Build the archive for Ansible Galaxy, with the commit's time for every file instead of the build's."""
    argv = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", "build", "--output-path", str(scratch)]
    subprocess.run([*argv, str(_collection_tree(scratch / "collection"))], check=True, stdout=subprocess.DEVNULL)
    (built,) = scratch.glob("gpusetup-stack-*.tar.gz")
    with (
        tarfile.open(built) as archive,
        gzip.GzipFile(out / built.name, "wb", mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as made,
    ):
        for item in archive:
            item.mtime, item.pax_headers = when, {}  # a part of a second stands in the headers
            made.addfile(item, archive.extractfile(item) if item.isfile() else None)
    return out / built.name


def _collection_tree(folder: Path) -> Path:
    """Write the collection's files, with a front page and addresses that are valid on Galaxy."""
    folder.mkdir()
    for name in ("changelogs", "meta", "playbooks", "plugins", "roles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in ("LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    home = front.repository(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(front.page(text, home, __version__), encoding="utf-8")
    told = (ROOT / "galaxy.yml").read_text(encoding="utf-8")
    known = front.addresses(home, __version__)
    for field, name in (("repository", "Source"), ("documentation", "Documentation"), ("issues", "Issues")):
        told += f"{field}: {known[name]}\n" if known else ""
    (folder / "galaxy.yml").write_text(told, encoding="utf-8")
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
