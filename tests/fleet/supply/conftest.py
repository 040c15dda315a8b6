"""Small signed apt packages, a bundle of them, and the key that signs what the tests publish; apt and gpg are real."""

import hashlib
import itertools
import multiprocessing
import os
import shutil
import subprocess
import sys

import pytest

from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.supply import apt_repository, site
from gpusetup_fleet.supply.apt_repository import entries_of
from gpusetup_fleet.supply.choosing import Asked, Supply
from gpusetup_fleet.supply.fetching import Pool, Wanted
from gpusetup_fleet.supply.root import Extras
from gpusetup_fleet.supply.signing import signer
from gpusetup_fleet.supply.site import add_system

NEEDED = pytest.mark.skipif(not (shutil.which("apt-get") and shutil.which("gpg")), reason="needs apt and gpg")
TOUCHES = ("open", "os.link", "os.mkdir", "os.remove", "os.rename")
PIP = "pip-26.0-py3-none-any.whl"
REPOSITORY = "compute/cuda/repos/debian12/x86_64"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return signer("", tmp_path_factory.mktemp("k"))


def deb(folder, name, depends="", version="1:2.0-1"):
    root = folder / version / name
    (root / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\nDescription: x\n"
    (root / "DEBIAN/control").write_text(control + (f"Depends: {depends}\n" if depends else ""))
    path = folder / f"{name}_{version.replace(':', '%3a')}_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", "-Znone", str(root), str(path)], check=True, capture_output=True)
    return path


def published(place, entries, key):
    """Publish packages, and return the line by which apt finds them."""
    pool = Pool(place.parent / "pool")
    pool.fetch([entry.file for entry in entries], nothing)
    apt_repository.publish(place, entries, pool, key, Extras())
    return f"deb [signed-by={place / key.key_file}] file:{place} /"


def described(path):
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    control = subprocess.run(["dpkg-deb", "-f", str(path)], check=True, capture_output=True, text=True).stdout
    stanza = f"{control.strip()}\nFilename: pool/{path.name}\nSize: {len(raw)}\nSHA256: {digest}"
    (entry,) = entries_of(stanza, "")
    return entry._replace(file=entry.file._replace(url=path.as_uri()))


@pytest.fixture
def supply(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "controller_wheels", no_wheels)
    debs = tmp_path / "debs"
    entries = (described(deb(debs, "driver", "dkms")), described(deb(debs, "dkms", version="3.0")))
    request = Request(requirements=(Requirement(component="driver"),), gpus=("t4",), os="debian12", arch="x86_64")
    lock = lock_of(resolve(request, matrix()), matrix())
    wheel = tmp_path / "cupy-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    wheels = (Wanted(f"file://{wheel}", wheel.name, 7, hashlib.sha256(b"a wheel").hexdigest()),)
    return Supply(Asked(request, Settings()), (lock,), REPOSITORY, entries, wheels, "3.11")


@pytest.fixture
def out(tmp_path, supply, key):
    """The folder of a bundle."""
    add_system(tmp_path / "site", supply, key, nothing)
    return tmp_path / "site"


def killed_at(moment, work, *given):
    """Do the work in a process that is killed as it touches its so-and-so-many-th file; return whether it was."""

    def run():
        touched = itertools.count(1)
        sys.addaudithook(lambda event, _: event in TOUCHES and next(touched) == moment and os.kill(os.getpid(), 9))
        work(*given)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode in (0, -9)
    return process.exitcode != 0


def no_wheels(folder, **_what):
    (folder / PIP).write_bytes(b"pip")
    return f"wheels/{PIP}", {"3.11-x86_64": (f"wheels/{PIP}",)}


def nothing(_done: int, _whole: int) -> None: ...
