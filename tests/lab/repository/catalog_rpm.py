"""Which rpm packages the stand-in repositories hold: NVIDIA's rhel9 directory with its module streams, and what EL itself has."""

from functools import partial
from typing import Any

from tests.lab.repository.catalog import (
    CONTAINER_TOOLKIT,
    CUDA,
    CUDNN,
    DRIVERS,
    FABRIC_WITHOUT_BRANCH_FROM,
    NCCL,
    NO_PROPRIETARY_FROM,
    Package,
    cuda_release,
)

EL_KERNEL = "5.14.0-570.12.1.el9_6.x86_64"
BRANCHES = ("570", "580", "590", "610")
PRECOMPILED = ("580.142", "580.159.04")
"""Versions with modules that NVIDIA built for this very kernel: not the newest, as they come later than drivers do."""
EPOCH = "3"


def _rpm(name: str, version: str, **words: Any) -> Package:
    return Package(name=name, version=version, arch="x86_64", **words)


def drivers() -> dict[str, list[Package]]:
    """Driver version → its packages; all versions lie in one directory, the streams choose."""
    return {version: _driver(branch, version) for branch in BRANCHES for version in DRIVERS[branch]}


def _driver(branch: str, version: str) -> list[Package]:
    full = f"{EPOCH}:{version}-1.el9"
    same = f"{{}} = {full}".format
    package = partial(_rpm, version=full, driver=version)
    packages = [
        package("nvidia-driver-cuda-libs", content="libraries"),
        package("nvidia-driver-libs", depends=(same("nvidia-driver-cuda-libs"),)),
        package("nvidia-driver-cuda", content="smi", depends=(same("nvidia-driver-cuda-libs"), same("nvidia-kmod-common"), same("nvidia-persistenced"))),
        package("nvidia-driver", depends=(same("nvidia-driver-libs"), same("nvidia-kmod-common"))),
        package("nvidia-kmod-common", content="modprobe_conf", depends=(same("nvidia-kmod"),)),
        package("nvidia-persistenced", content="persistenced"),
        package("nvidia-modprobe"),
        package(
            "kmod-nvidia-open-dkms", content="dkms", extra={"open": "-open", "dkms_name": "nvidia", "rpm": "yes"},
            depends=("dkms", "kernel-devel"), provides=(same("nvidia-kmod"),), conflicts=("kmod-nvidia-latest-dkms",),
        ),
        package("nvidia-open", depends=(same("nvidia-driver"), same("nvidia-driver-cuda"), same("kmod-nvidia-open-dkms"))),
    ]  # fmt: skip
    if int(branch) < NO_PROPRIETARY_FROM:
        packages += [
            package(
                "kmod-nvidia-latest-dkms", content="dkms", extra={"open": "", "dkms_name": "nvidia", "rpm": "yes"},
                depends=("dkms", "kernel-devel"), provides=(same("nvidia-kmod"),), conflicts=("kmod-nvidia-open-dkms",),
            ),
            package("cuda-drivers", depends=(same("nvidia-driver"), same("nvidia-driver-cuda"), same("kmod-nvidia-latest-dkms"))),
        ]  # fmt: skip
    plain = int(branch) >= FABRIC_WITHOUT_BRANCH_FROM
    suffix = "" if plain else f"-{branch}"
    other = partial(_rpm, version=f"{version}-1", driver=version)
    return [
        *packages, other("nvidia-fabricmanager" if plain else "nvidia-fabric-manager", content="fabricmanager"),
        other(f"libnvidia-nscq{suffix}"), other(f"libnvsdm{suffix}"), other(f"nvidia-imex{suffix}"),
    ]  # fmt: skip


def precompiled() -> list[Package]:
    """Modules that come built, one package for each driver and kernel, and the plugin that keeps other kernels out."""
    short = EL_KERNEL.removesuffix(".el9_6.x86_64")
    names = {version: f"kmod-nvidia-{version}-{short}" for version in PRECOMPILED}
    words = {
        "open": "", "kernel": EL_KERNEL, "place": "extra/drivers/video/nvidia", "signer": "Lab stand-in for NVIDIA",
    }  # fmt: skip
    dkms = ("kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms")
    return [
        _rpm("dnf-plugin-nvidia", "2.3-1.el9"),
        *(
            _rpm(
                name, f"{EPOCH}:{version}-3.el9_6", driver=version, content="prebuilt_module", extra=words,
                provides=(f"nvidia-kmod = {EPOCH}:{version}-1.el9",),
                conflicts=(*dkms, *(other for other in names.values() if other != name)),
            )
            for version, name in names.items()
        ),
    ]  # fmt: skip


def streams() -> dict[str, list[Package]]:
    """Stream of the module nvidia-driver → the packages it makes visible, as NVIDIA's metadata lists them."""
    of = drivers()
    found: dict[str, list[Package]] = {"open-dkms": [], "latest-dkms": []}
    for branch in BRANCHES:
        mine = [package for version in DRIVERS[branch] for package in of[version]]
        proprietary = {"kmod-nvidia-latest-dkms", "cuda-drivers"}
        is_open = {"kmod-nvidia-open-dkms", "nvidia-open"}
        found[f"{branch}-open"] = [package for package in mine if package.name not in proprietary]
        found[f"{branch}-dkms"] = [package for package in mine if package.name not in is_open]
        built = [package for package in precompiled() if not package.driver or package.driver.startswith(branch)]
        found[branch] = [package for package in mine if package.name not in proprietary | is_open] + built
        found["open-dkms"] += found[f"{branch}-open"]
        found["latest-dkms"] += found[f"{branch}-dkms"]
    return found


def libraries() -> list[Package]:
    """Toolkit, runtime, NCCL and cuDNN packages."""
    found = []
    for series, releases in CUDA.items():
        for release in releases:
            found += cuda_release(series, *release, "{} >= {}".format, "x86_64")
    for series, versions in NCCL.items():
        for version in versions:
            full = f"{version}-1+cuda{series}"
            found += [
                _rpm("libnccl", full, content="nccl", extra={"nccl": version}),
                _rpm("libnccl-devel", full, depends=(f"libnccl = {full}",)),
            ]
    for major, versions in CUDNN.items():
        found += [
            _rpm(f"libcudnn9-cuda-{major}", f"{version}-1", content="cudnn", extra={"cudnn": version})
            for version in versions
        ]
    return found


def container_toolkit() -> list[Package]:
    version = f"{CONTAINER_TOOLKIT}-1"
    package = partial(_rpm, version=version)
    return [
        package("nvidia-container-toolkit", content="container_toolkit", depends=(f"nvidia-container-toolkit-base = {version}", f"libnvidia-container-tools = {version}")),
        package("nvidia-container-toolkit-base"),
        package("libnvidia-container-tools", depends=(f"libnvidia-container1 = {version}",)),
        package("libnvidia-container1"),
    ]  # fmt: skip


def base_system() -> list[Package]:
    """What the distribution itself offers: the kernel and its development files."""
    version, _, release = EL_KERNEL.removesuffix(".x86_64").partition("-")
    kernel = {"kernel": EL_KERNEL}
    package = partial(_rpm, version=f"{version}-{release}", extra=kernel)
    provides = (f"kernel-devel-uname-r = {EL_KERNEL}",)
    locks = ("dnf-command(versionlock)", "dnf-plugin-versionlock = 4.3.0-20.el9")
    return [
        package("kernel-core"),
        package("kernel-devel", content="kernel_devel", provides=provides),
        package("kernel-devel-matched", depends=(f"kernel-devel = {version}-{release}",)),
        package("kernel-headers"),
        _rpm("python3-dnf-plugin-versionlock", "4.3.0-20.el9", content="versionlock", provides=locks),
        _rpm("bash", "5.1.8-9.el9", provides=("/bin/sh", "/usr/bin/sh")),
        _rpm("rocky-release", "9.6-1.3.el9", provides=("system-release = 9.6", "redhat-release = 9.6")),
    ]


PRESENT = ("kernel-core", "bash", "rocky-release")
"""In rpm's database of a new host: what they stand for is really there."""


def tools() -> list[Package]:
    """Names that setup programs ask for; the root has these tools from Debian."""
    return [
        _rpm("gcc", "11.5.0-5.el9"), _rpm("make", "4.3-8.el9"), _rpm("elfutils-libelf-devel", "0.192-5.el9"),
        _rpm("python3-pip", "21.3.1-1.el9"), _rpm("python3.12", "3.12.9-1.el9", content="python"),
        _rpm("python3.12-pip", "23.2.1-4.el9"),
    ]  # fmt: skip


def epel() -> list[Package]:
    return [_rpm("dkms", "3.0.10-1.el9", content="dkms_tool", depends=("gcc", "make"))]
