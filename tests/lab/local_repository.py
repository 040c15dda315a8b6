"""Local repositories as NVIDIA packages them: one deb or rpm that holds a whole signed repository below /var.

Names, places and files are those of NVIDIA's own (`nvidia-driver-local-repo-debian12-580.142_1.0-1_amd64.deb`); what is in
them are the stand-ins of one driver version.
"""

import shutil
from itertools import chain
from pathlib import Path

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import openpgp

from tests.lab.places import STATE
from tests.lab.process import run
from tests.lab.repository import build, catalog_rpm, rpm
from tests.lab.repository.deb import index_flat
from tests.lab.repository.keys import Keys


def debian(target: Path, scratch: Path, version: str, directory: str = "debian12") -> Path:
    name = f"nvidia-driver-local-repo-{directory}-{version}"
    tree = scratch / name
    folder = tree / "var" / name
    _filled(folder, directory, f"*_{version}-1_*.deb")
    keys = Keys(STATE / "signing")
    try:
        index_flat(folder, keys, "NVIDIA")
        keyring = f"nvidia-driver-local-{keys.fingerprint()[-8:]}-keyring.gpg"
        (folder / keyring).write_bytes(openpgp.binary(keys.armored().encode()))
    finally:
        keys.close()
    listed = tree / "etc/apt/sources.list.d" / f"{name}.list"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"deb [signed-by=/usr/share/keyrings/{keyring}] file:///var/{name} /\n")
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1.0-1\nArchitecture: amd64\nMaintainer: lab stand-in <cudatools@nvidia.com>\n"
        "Description: a local repository (lab stand-in)\n"
    )
    made = target / f"{name}_1.0-1_amd64.deb"
    run(["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", tree, made])
    shutil.rmtree(tree)
    return made


def red_hat(target: Path, scratch: Path, version: str, directory: str = "rhel9") -> Path:
    name = f"nvidia-driver-local-repo-{directory}-{version}"
    folder = scratch / "payload" / "var" / name
    _filled(folder, directory, f"*-{version}-1.el9.x86_64.rpm")
    keys = Keys(STATE / "signing")
    try:
        only = {package.name for package in chain.from_iterable(catalog_rpm.drivers().values())}
        streams = {
            stream: [package for package in packages if package.name in only and package.driver == version]
            for stream, packages in catalog_rpm.streams().items()
        }
        rpm.index(folder, keys, {stream: packages for stream, packages in streams.items() if packages})
        for unsigned in folder.glob("repodata/repomd.xml.asc*"):
            unsigned.unlink()  # NVIDIA signs the packages in it, not the lists
        (folder / f"{keys.fingerprint()[-8:]}.pub").write_text(keys.armored())
    finally:
        keys.close()
    spec = scratch / "local.spec"
    spec.write_text(
        f"Name: {name}\nVersion: 1.0\nRelease: 1\nSummary: a local repository\nLicense: none\nAutoReqProv: no\n"
        f"%description\nx\n%install\ncp -a {scratch}/payload/. %{{buildroot}}\n%files\n/var/{name}\n"
    )
    defines = {
        "_topdir": scratch / "top", "_rpmdir": scratch / "made", "__os_install_post": "%{nil}",
        "_binary_payload": "w1.gzdio",
    }  # fmt: skip
    options = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
    run(["rpmbuild", "-bb", "--quiet", "--nodeps", "--target", "x86_64", *options, spec], timeout=300)
    (made,) = (scratch / "made").rglob("*.rpm")
    placed = target / f"{name}-1.0-1.x86_64.rpm"
    shutil.copy(made, placed)
    shutil.rmtree(scratch / "payload")
    return placed


def _filled(folder: Path, directory: str, pattern: str) -> None:
    folder.mkdir(parents=True)
    found = sorted((build.ready().folder / build.CUDA_REPOS / directory / "x86_64").glob(pattern))
    assert found, f"no package in {directory} is like {pattern}"
    for package in found:
        shutil.copy(package, folder)
