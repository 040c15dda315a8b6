"""Build all stand-in repositories once per state of this folder; describe them for tests and inventories.

Each state has a folder of its own: another checkout's tests never change what hosts of this one read.
"""

import hashlib
import json
import shutil
import time
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from tests.lab import network
from tests.lab.flavours import UBUNTU_KERNELS
from tests.lab.places import REPOSITORIES, SOURCE, STATE, locked
from tests.lab.repository import catalog, catalog_rpm, catalog_suse, deb, rpm
from tests.lab.repository.keys import Keys
from tests.lab.repository.serve import FAULTS, WHAT, WHERE

FOLDER = "packages"
KEPT = 24 * 3600
"""How long the folder of another state stays after it was last asked for, in seconds."""

CUDA_REPOS = "compute/cuda/repos"
NVIDIA_DEB, UBUNTU_DEB = "cudatools@nvidia.com", "ubuntu-devel-discuss@lists.ubuntu.com"
NVIDIA_RPM, ROCKY_RPM, SUSE_RPM = "NVIDIA", "Rocky Enterprise Software Foundation", "openSUSE"


@dataclass(frozen=True, kw_only=True)
class Repositories:
    """Where the repositories are, and the key that signs them."""

    base: str
    fingerprint: str
    wrong_fingerprint: str
    armored: str

    @property
    def folder(self) -> Path:
        return REPOSITORIES / self.base.rpartition("/")[2]

    @property
    def variables(self) -> dict[str, str]:
        """What an inventory says of them."""
        return {
            "gpusetup_source": self.base, "gpusetup_source_fingerprints": self.fingerprint,
            "gpusetup_source_key": self.key,
        }  # fmt: skip

    @property
    def key(self) -> str:
        return f"{self.base}/lab-key.asc"

    def url(self, distro: str) -> str:
        """NVIDIA's repository for ubuntu2404, debian12, rhel9, …"""
        return f"{self.base}/{CUDA_REPOS}/{distro}/x86_64"

    @property
    def ubuntu(self) -> str:
        """Ubuntu's own archive: suites jammy and noble, component restricted."""
        return f"{self.base}/ubuntu"

    @property
    def rocky(self) -> str:
        """What EL itself has: baseos, appstream, crb and epel below."""
        return f"{self.base}/rocky/9"

    @property
    def leap(self) -> str:
        """What openSUSE Leap itself has: oss below."""
        return f"{self.base}/leap/15.6"

    @property
    def container_toolkit(self) -> str:
        return f"{self.base}/libnvidia-container/stable"

    @property
    def virtualgl(self) -> str:
        """The repository of VirtualGL's project: a stand-in, for its packages cannot be had here."""
        return f"{self.base}/virtualgl"

    def beside(self, name: str, address: str) -> dict[str, str]:
        """What an inventory says of one more of them."""
        source = {"name": name, "urls": [address], "fingerprints": [self.fingerprint], "key": self.key}
        return {"gpusetup_extra_sources": json.dumps([source])}

    def with_fault(self, token: str, what: str, where: str = "all") -> "Repositories":
        """The same repositories behind a server that misbehaves; set_fault(token, "", "") mends it."""
        set_fault(token, what, where)
        return replace(self, base=f"{network.REPOSITORY_URL}/with/{token}/{self.folder.name}")


def set_fault(token: str, what: str, where: str = "all") -> None:
    if (what and what not in WHAT) or where not in WHERE or not token.isalnum():
        raise ValueError(
            f"fault {what!r} on {where!r} (token {token!r}): known are {WHAT} on {WHERE}, the token is alphanumeric"
        )
    FAULTS.mkdir(parents=True, exist_ok=True)
    new = FAULTS / f"{token}.new"
    new.write_text(f"{what} {where}\n" if what else "")
    new.replace(FAULTS / token)


def ready() -> Repositories:
    """Built once; the server itself runs as long as there are hosts."""
    folder = REPOSITORIES / f"{FOLDER}-{_digest()[:16]}"
    described = folder / "repositories.json"
    with locked("repositories"):
        if not described.exists():
            _build(folder)
        folder.touch()
        for other in REPOSITORIES.glob(f"{FOLDER}-*"):
            if time.time() - other.stat().st_mtime > KEPT:
                shutil.rmtree(other)
    return Repositories(**json.loads(described.read_text()))


def _digest() -> str:
    seen = hashlib.sha256()
    for path in sorted((SOURCE / "repository").rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and path.name != "serve.py":
            seen.update(path.name.encode() + b"\0" + path.read_bytes())
    return seen.hexdigest()


def _build(folder: Path) -> None:
    new, scratch = STATE / "repositories.new", STATE / "repositories.scratch"
    for place in (new, scratch):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    keys = Keys(STATE / "signing")
    try:
        _cuda_for_apt(new, scratch, keys)
        _ubuntu(new, scratch, keys)
        _enterprise_linux(new, scratch, keys)
        _suse(new, scratch, keys)
        described = Repositories(
            base=f"{network.REPOSITORY_URL}/{folder.name}", fingerprint=keys.fingerprint(),
            wrong_fingerprint=keys.fingerprint(wrong=True), armored=keys.armored(),
        )  # fmt: skip
        # Where NVIDIA has its keys: in each directory, named by the last eight digits.
        for place in (new / CUDA_REPOS).glob("*/*"):
            (place / f"{keys.fingerprint()[-8:].lower()}.pub").write_text(keys.armored())
        (new / "libnvidia-container" / "gpgkey").write_text(keys.armored())
        (new / "lab-key.asc").write_text(keys.armored())
        (new / "wrong-key.asc").write_text(keys.armored(wrong=True))
        (new / "repositories.json").write_text(json.dumps(asdict(described), indent=1) + "\n")
    finally:
        keys.close()
        shutil.rmtree(scratch, ignore_errors=True)
    REPOSITORIES.mkdir(parents=True, exist_ok=True)
    new.rename(folder)


def _cuda_for_apt(top: Path, scratch: Path, keys: Keys) -> None:
    for first, same, packages in (
        ("ubuntu2404", ("ubuntu2204",), catalog.ubuntu()),
        ("debian12", ("debian13",), catalog.debian()),
    ):
        folder = top / CUDA_REPOS / first / "x86_64"
        deb.build(packages, folder, scratch, NVIDIA_DEB)
        deb.index_flat(folder, keys, "NVIDIA")
        for name in same:
            (top / CUDA_REPOS / name).symlink_to(first)
    server, arm = top / CUDA_REPOS / "ubuntu2404" / "sbsa", {"amd64": "arm64", "all": "all"}
    some = (package for package in catalog.ubuntu() if package.driver[:3] in ("", "580"))
    deb.build((replace(package, arch=arm[package.arch]) for package in some), server, scratch, NVIDIA_DEB)
    deb.index_flat(server, keys, "NVIDIA", "arm64")
    folder = top / "libnvidia-container" / "stable" / "deb" / "amd64"
    deb.build(catalog.container_toolkit_deb(), folder, scratch, NVIDIA_DEB)
    deb.index_flat(folder, keys, "https://nvidia.github.io/libnvidia-container")
    deb.build(catalog.virtualgl(), top / "virtualgl", scratch, "information@virtualgl.org")
    deb.index_flat(top / "virtualgl", keys, "VirtualGL")


def _ubuntu(top: Path, scratch: Path, keys: Keys) -> None:
    for suite, kernel in UBUNTU_KERNELS.items():
        deb.build(catalog.ubuntu_archive(kernel), top / "ubuntu" / "pool" / suite, scratch, UBUNTU_DEB)
        deb.index_suite(top / "ubuntu", suite, "restricted", keys, "Ubuntu")


def _enterprise_linux(top: Path, scratch: Path, keys: Keys) -> None:
    cuda = top / CUDA_REPOS / "rhel9" / "x86_64"
    drivers = chain.from_iterable(catalog_rpm.drivers().values())
    of_nvidia = [*drivers, *catalog_rpm.precompiled(), *catalog_rpm.libraries()]
    rpm.build(of_nvidia, cuda, scratch, NVIDIA_RPM)
    toolkit = top / "libnvidia-container" / "stable" / "rpm" / "x86_64"
    rpm.build(catalog_rpm.container_toolkit(), toolkit, scratch, NVIDIA_RPM)
    folders = {cuda: catalog_rpm.streams(), toolkit: None}
    for name, packages in (
        ("baseos", catalog_rpm.base_system()),
        ("appstream", catalog_rpm.tools()),
        ("crb", []),
        ("epel", catalog_rpm.epel()),
    ):
        folder = top / "rocky" / "9" / name
        folder.mkdir(parents=True)
        if packages:
            rpm.build(packages, folder, scratch, ROCKY_RPM)
        folders[folder] = None
    for folder, streams in folders.items():
        if any(folder.glob("*.rpm")):
            rpm.sign(folder, keys)
        rpm.index(folder, keys, streams)


def _suse(top: Path, scratch: Path, keys: Keys) -> None:
    of_nvidia = top / CUDA_REPOS / "opensuse15" / "x86_64"
    rpm.build([*catalog_suse.drivers(), *catalog_suse.tools()], of_nvidia, scratch, NVIDIA_RPM)
    own = top / "leap" / "15.6" / "oss"
    rpm.build(catalog_suse.base_system(), own, scratch, SUSE_RPM)
    for folder in (of_nvidia, own):
        rpm.sign(folder, keys)
        rpm.index(folder, keys)
    (top / CUDA_REPOS / "sles15").symlink_to("opensuse15")
