"""Small signed rpm packages and repositories, by the real rpmbuild, rpmsign and createrepo_c."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from gpusetup_fleet.supply import rpm_repository
from gpusetup_fleet.supply.fetching import Pool
from gpusetup_fleet.supply.root import Entry, Extras
from gpusetup_fleet.supply.signing import Signer
from tests.programs import RPM, lacking

NEEDED = pytest.mark.skipif(
    bool(lacking(RPM)) or os.geteuid() != 0, reason=f"needs root and: apt-get install {' '.join(RPM.values())}"
)


class Rpm(NamedTuple):
    """What is to be in a package: nothing but its name, version and needs."""

    name: str
    version: str = "1-1"
    needs: str = ""


def build(folder: Path, packages: list[Rpm], vendor: Signer | None) -> None:
    """Put packages into a folder, signed by a vendor. A build knows each name once."""
    folder.mkdir(parents=True, exist_ok=True)
    left = packages
    while left:
        now = list({package.name: package for package in left}.values())
        left = [package for package in left if package not in now]
        _built(folder, now)
    if vendor is not None:
        sign = {"_gpg_name": vendor.fingerprint, "_gpg_path": vendor.home, "__gpg": shutil.which("gpg")}
        options = [word for name, value in sign.items() for word in ("--define", f"{name} {value}")]
        run("rpmsign", *options, "--addsign", *map(str, sorted(folder.glob("*.rpm"))))


def _built(folder: Path, packages: list[Rpm]) -> None:
    spec = ["Name: all", "Version: 1", "Release: 1", "Summary: x", "License: x", "%description", "x"]
    for name, evr, needs in packages:
        epoch, _colon, rest = evr.rpartition(":")
        version, _dash, release = rest.rpartition("-")
        spec += [f"%package -n {name}", "Summary: x", f"Version: {version}", f"Release: {release}"]
        spec += ([f"Epoch: {epoch}"] if epoch else []) + ([f"Requires: {needs}"] if needs else [])
        spec += ["AutoReqProv: no", f"%description -n {name}", "x", f"%files -n {name}"]
    (folder / "x.spec").write_text("\n".join(spec) + "\n")
    work = folder / "work"
    defines = {"_topdir": work, "_rpmdir": folder, "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"}
    options = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
    run("rpmbuild", "-bb", "--quiet", "--nodeps", "--target", "x86_64", *options, str(folder / "x.spec"))
    shutil.rmtree(work)
    (folder / "x.spec").unlink()


def described(folder: Path) -> list[Entry]:
    """Return what createrepo_c says of the packages of a folder, and where they are."""
    run("createrepo_c", "--quiet", "--no-database", str(folder))
    found = list(rpm_repository.entries_of(folder, f"file://{folder}"))
    shutil.rmtree(folder / "repodata")
    return found


def published(place: Path, packages: list[Rpm], vendor: Signer, modules: str = "") -> None:
    """Make a repository as its vendor does: packages and list signed by one key."""
    raw = place.parent / f"{place.name}-raw"
    shutil.rmtree(raw, ignore_errors=True)
    build(raw, packages, vendor)
    entries = described(raw)
    pool = Pool(place.parent / "pool")
    pool.fetch([entry.file for entry in entries], lambda _done, _whole: None)
    rpm_repository.publish(place, entries, pool, vendor, Extras(modules, (vendor.public(),)))


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)
