"""Debian packages and a signed flat repository (NVIDIA's layout) or an archive with suites (Ubuntu's)."""

import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.process import run
from tests.lab.repository.catalog import Package
from tests.lab.repository.contents import content_of
from tests.lab.repository.keys import Keys

LIBDIR = {"amd64": "usr/lib/x86_64-linux-gnu", "arm64": "usr/lib/aarch64-linux-gnu", "all": "usr/lib"}


def build(packages: Iterable[Package], folder: Path, scratch: Path, publisher: str) -> None:
    """`publisher` is the mail address its real packages carry: facts tell by it who made what is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda package: _build_one(package, folder, scratch, publisher), packages))


def _build_one(package: Package, folder: Path, scratch: Path, publisher: str) -> None:
    content = content_of(package, LIBDIR[package.arch])
    tree = scratch / f"{package.name}_{package.version}"
    for path, (mode, data) in content.files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
        (tree / path).chmod(mode)
    for path, target in content.links.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    control = tree / "DEBIAN"
    control.mkdir()
    fields = {
        "Package": package.name, "Version": package.version, "Architecture": package.arch,
        "Maintainer": f"lab stand-in <{publisher}>", "Section": "non-free/libs",
        "Depends": ", ".join(package.depends), "Provides": ", ".join(package.provides),
        "Conflicts": ", ".join(package.conflicts), "Replaces": ", ".join(package.conflicts),
        "Description": package.summary or f"lab stand-in for {package.name}",
    }  # fmt: skip
    (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
    for name, text in (("postinst", content.after_install), ("prerm", content.before_removal)):
        if text:
            wanted = "configure" if name == "postinst" else "remove upgrade"
            script = f'#!/bin/sh\nset -e\ncase "$1" in {wanted.replace(" ", "|")}) ;; *) exit 0 ;; esac\n{text}'
            (control / name).write_text(script)
            (control / name).chmod(0o755)
    target = folder / f"{package.name}_{package.version.replace(':', '%3a')}_{package.arch}.deb"
    run(["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", tree, target])
    shutil.rmtree(tree)


def index_flat(folder: Path, keys: Keys, origin: str, architecture: str = "amd64") -> None:
    """Packages and a signed Release in the folder itself, as NVIDIA's repositories have them."""
    _compress(folder / "Packages", run(["apt-ftparchive", "packages", "."], cwd=folder).stdout)
    _release(folder, keys, {"Origin": origin, "Label": origin, "Architectures": architecture})


def index_suite(top: Path, suite: str, component: str, keys: Keys, origin: str) -> None:
    """dists/SUITE/COMPONENT for the packages in pool/SUITE."""
    folder = top / "dists" / suite / component / "binary-amd64"
    folder.mkdir(parents=True)
    _compress(folder / "Packages", run(["apt-ftparchive", "packages", f"pool/{suite}"], cwd=top).stdout)
    fields = {
        "Origin": origin, "Label": origin, "Suite": suite, "Codename": suite, "Architectures": "amd64",
        "Components": component,
    }  # fmt: skip
    _release(top / "dists" / suite, keys, fields)


def _compress(path: Path, text: str) -> None:
    path.write_text(text)
    run(["gzip", "-9nk", path])


def _release(folder: Path, keys: Keys, fields: dict[str, str]) -> None:
    """InRelease, and beside it two variants that a client must refuse: another key, and a date long past."""
    options = [word for key, value in fields.items() for word in ("-o", f"APT::FTPArchive::Release::{key}={value}")]
    text = run(["apt-ftparchive", *options, "release", "."], cwd=folder).stdout
    (folder / "Release").write_text(text)
    keys.clearsign(text, folder / "InRelease")
    keys.clearsign(text, folder / "InRelease.wrong-key", wrong=True)
    expired = text + "Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC\n"
    lines = [line for line in expired.splitlines(keepends=True) if not line.startswith("Date:")]
    keys.clearsign("Date: Fri, 31 Dec 2021 00:00:00 UTC\n" + "".join(lines), folder / "InRelease.expired")
