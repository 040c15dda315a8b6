"""Which packages the stand-in repositories hold: NVIDIA's names and versions, by distribution family and driver branch.

Names follow NVIDIA's driver guides and installers, versions are ones that NVIDIA published; package revisions follow the
pattern of their family. What is inside is a stand-in: see stand_in/.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# The newest two of a branch: one to install, one to upgrade to or to come down from.
DRIVERS = {
    "535": ["535.288.01", "535.309.01"], "550": ["550.144.03", "550.163.01"], "570": ["570.195.03", "570.211.01"],
    "580": ["580.142", "580.159.04", "580.178.04"], "590": ["590.44.01", "590.48.01"],
    "595": ["595.71.05", "595.91.07"], "610": ["610.43.02", "610.57.04"], "615": ["615.71.09"],
}  # fmt: skip
NO_PROPRIETARY_FROM = 615
PINNING_FROM = 590
FABRIC_WITHOUT_BRANCH_FROM = 580

# CUDA series → its releases: metapackage, cudart, cublas, as NVIDIA's images and Dockerfiles pin them.
CUDA = {
    "12.4": [("12.4.1-1", "12.4.127-1", "12.4.5.8-1")],
    "12.6": [("12.6.3-1", "12.6.77-1", "12.6.4.1-1")],
    "12.8": [("12.8.1-1", "12.8.90-1", "12.8.4.1-1")],
    "12.9": [("12.9.1-1", "12.9.79-1", "12.9.1.4-1")],
    "13.0": [("13.0.0-1", "13.0.48-1", "13.0.0.19-1"), ("13.0.2-1", "13.0.96-1", "13.1.0.3-1")],
    "13.2": [("13.2.1-1", "13.2.75-1", "13.4.0.1-1")],
    "13.3": [("13.3.1-1", "13.3.29-1", "13.6.0.2-1")],
    # No published list of this release's packages was found: its compiler's number stands for all of them.
    "13.4": [("13.4.2-1", "13.4.92-1", "13.4.92-1")],
}
# Built for a CUDA series (NCCL) or for a CUDA major (cuDNN 9).
NCCL = {
    "12.4": ["2.21.5"], "12.6": ["2.23.4"], "12.8": ["2.25.1"], "12.9": ["2.27.3", "2.32.3"],
    "13.0": ["2.27.7", "2.28.9"], "13.3": ["2.30.7"], "13.4": ["2.32.3"],
}  # fmt: skip
CUDNN = {
    "12": ["9.1.0.70", "9.5.1.17", "9.8.0.87", "9.10.2.21", "9.16.0.29", "9.28.0.42"],
    "13": ["9.12.0.46", "9.28.0.42"],
}
COMPAT = {"13.3": "610.43.02-1", "13.4": "615.71.09-1"}
CONTAINER_TOOLKIT = "1.20.0"


@dataclass(frozen=True, kw_only=True)
class Package:
    """One stand-in package; `content` names what is put inside (a function of contents.py) and how it is called."""

    name: str
    version: str
    depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    summary: str = ""
    arch: str = "amd64"
    content: str = ""
    driver: str = ""
    extra: dict[str, str] = field(default_factory=dict)


def ubuntu() -> list[Package]:
    """NVIDIA's repository for Ubuntu: names carry the branch below 590, from there a pinning package chooses it."""
    packages = [*_common_deb()]
    for branch, version, named in _releases():
        full = f"{version}-0ubuntu1" if named else f"{version}-1ubuntu1"
        packages += _ubuntu_driver(branch, version, full, suffix=f"-{branch}" if named else "")
        packages += _fabric(branch, version, full)
        packages += _pinning(branch, version) if int(branch) >= 580 else []
    return packages


def debian() -> list[Package]:
    """NVIDIA's repository for Debian: Debian's own names underneath, NVIDIA's metapackages on top."""
    packages = [*_common_deb()]
    for branch, version, named in _releases():
        full = f"{version}-1"
        packages += _debian_driver(branch, version, full, f"-{branch}" if named else "")
        packages += _fabric(branch, version, full)
        packages += [] if named else _pinning(branch, version)
    return packages


def _releases() -> list[tuple[str, str, bool]]:
    """Branch, version, and whether package names carry the branch."""
    return [(branch, version, int(branch) < PINNING_FROM) for branch in DRIVERS for version in DRIVERS[branch]]


def ubuntu_archive(kernel: str) -> list[Package]:
    """Ubuntu's own archive: modules that Canonical built for its kernels, and the stub that turns 570 into 580."""
    flavour = kernel.rpartition("-")[2]
    packages = [
        Package(name=f"linux-headers-{kernel}", version=kernel.rpartition("-")[0] + ".63", content="headers", extra={"kernel": kernel}),
        Package(name=f"linux-headers-{flavour}", version=kernel.rpartition("-")[0] + ".63", depends=(f"linux-headers-{kernel}",)),
        Package(name="linux-image-generic", version=kernel.rpartition("-")[0] + ".63"),
    ]  # fmt: skip
    for branch, version in (("535", "535.288.01"), ("570", "570.211.01"), ("580", "580.142")):
        full = f"{version}-0ubuntu0.24.04.1"
        for is_open in (False, True):
            o = "-open" if is_open else ""
            modules = f"linux-modules-nvidia-{branch}-server{o}-{kernel}"
            packages += [
                Package(
                    name=modules, version=kernel.rpartition("-")[0] + ".63+1", depends=(f"nvidia-kernel-common-{branch}-server (>= {version})",),
                    provides=(f"nvidia-prebuilt-kernel-{branch}-server{o}",), content="prebuilt_module", driver=version,
                    extra={"kernel": kernel, "open": o, "branch": branch},
                ),
                Package(name=f"linux-modules-nvidia-{branch}-server{o}-{flavour}", version=kernel.rpartition("-")[0] + ".63+1", depends=(modules,)),
                Package(
                    name=f"nvidia-dkms-{branch}-server{o}", version=full, driver=version, content="dkms",
                    extra={"open": o, "dkms_name": "nvidia"}, depends=("dkms", f"nvidia-kernel-common-{branch}-server (= {full})"),
                    provides=(f"nvidia-dkms-kernel-{branch}-server{o}",),
                ),
                Package(
                    name=f"nvidia-headless-no-dkms-{branch}-server{o}", version=full, driver=version,
                    depends=(f"libnvidia-compute-{branch}-server (= {full})", f"nvidia-kernel-common-{branch}-server (= {full})"),
                ),
                Package(
                    name=f"nvidia-driver-{branch}-server{o}", version=full, driver=version,
                    depends=(f"nvidia-headless-no-dkms-{branch}-server{o} (= {full})", f"nvidia-utils-{branch}-server (= {full})"),
                ),
            ]  # fmt: skip
        packages += [
            Package(name=f"nvidia-kernel-common-{branch}-server", version=full, content="modprobe_conf", driver=version, **_alone("nvidia-kernel-common")),
            Package(name=f"libnvidia-compute-{branch}-server", version=full, content="libraries", driver=version, **_alone("libnvidia-compute", "libcuda1")),
            Package(name=f"nvidia-utils-{branch}-server", version=full, content="smi", driver=version, depends=(f"libnvidia-compute-{branch}-server (= {full})",), **_alone("nvidia-utils")),
            Package(name=f"nvidia-compute-utils-{branch}-server", version=full, content="persistenced", driver=version, **_alone("nvidia-compute-utils")),
        ]  # fmt: skip
    # An ended branch: its names stay as dummies that pull the next one.
    stub = "580.142-0ubuntu0.24.04.1"
    ended = (
        "nvidia-driver-{} nvidia-driver-{}-open nvidia-dkms-{} nvidia-dkms-{}-open nvidia-utils-{} libnvidia-compute-{}"
    )
    for name in ended.split():
        old, new = name.format(570), name.format(580)
        packages.append(Package(name=old, version=stub, depends=(new,), summary=f"Transitional package for {new}"))
    return packages


def virtualgl() -> list[Package]:
    """VirtualGL under its own name and place; it starts programs as they are, so that Mesa draws in software."""
    return [Package(name="virtualgl", version="3.1.4-20251003", content="virtualgl")]


def container_toolkit_deb() -> list[Package]:
    version = f"{CONTAINER_TOOLKIT}-1"
    return [
        Package(name="nvidia-container-toolkit", version=version, content="container_toolkit", depends=(f"nvidia-container-toolkit-base (= {version})", f"libnvidia-container-tools (= {version})")),
        Package(name="nvidia-container-toolkit-base", version=version),
        Package(name="libnvidia-container-tools", version=version, depends=(f"libnvidia-container1 (= {version})",)),
        Package(name="libnvidia-container1", version=version),
    ]  # fmt: skip


def _ubuntu_driver(branch: str, version: str, full: str, suffix: str) -> list[Package]:
    flavours = [("-open", True)] if int(branch) >= NO_PROPRIETARY_FROM else [("", False), ("-open", True)]
    same = f"{{}} (= {full})".format
    packages = [
        Package(name=f"libnvidia-compute{suffix}", version=full, content="libraries", driver=version, provides=("libcuda1",), conflicts=_others("libnvidia-compute", branch)),
        Package(name=f"nvidia-utils{suffix}", version=full, content="smi", driver=version, depends=(same(f"libnvidia-compute{suffix}"),), conflicts=_others("nvidia-utils", branch)),
        Package(name=f"nvidia-compute-utils{suffix}", version=full, content="persistenced", driver=version, conflicts=_others("nvidia-compute-utils", branch)),
        Package(name=f"nvidia-kernel-common{suffix}", version=full, content="modprobe_conf", driver=version, conflicts=_others("nvidia-kernel-common", branch)),
        Package(name=f"libnvidia-gl{suffix}", version=full, driver=version, conflicts=_others("libnvidia-gl", branch)),
    ]  # fmt: skip
    for o, is_open in flavours:
        dkms = f"nvidia-dkms{suffix}{o}"
        packages += [
            Package(
                name=dkms, version=full, content="dkms", driver=version, extra={"open": o, "dkms_name": "nvidia"},
                depends=("dkms", same(f"nvidia-kernel-common{suffix}")), provides=("nvidia-dkms-kernel",), conflicts=("nvidia-dkms-kernel",),
            ),
            Package(name=f"nvidia-headless-no-dkms{suffix}{o}", version=full, driver=version, depends=(same(f"libnvidia-compute{suffix}"), same(f"nvidia-compute-utils{suffix}"))),
            Package(name=f"nvidia-headless{suffix}{o}", version=full, driver=version, depends=(same(f"nvidia-headless-no-dkms{suffix}{o}"), same(dkms))),
            Package(
                name=f"nvidia-driver{suffix}{o}", version=full, driver=version,
                depends=(same(dkms), same(f"nvidia-utils{suffix}"), same(f"nvidia-compute-utils{suffix}"), same(f"libnvidia-gl{suffix}")),
            ),
            Package(
                name=f"nvidia-open{suffix}" if is_open else f"cuda-drivers{suffix}", version=full, driver=version,
                depends=(same(f"nvidia-driver{suffix}{o}"),), conflicts=(f"cuda-drivers{suffix}" if is_open else f"nvidia-open{suffix}",),
            ),
        ]  # fmt: skip
    return packages


def _debian_driver(branch: str, version: str, full: str, suffix: str) -> list[Package]:
    flavours = [True] if int(branch) >= NO_PROPRIETARY_FROM else [False, True]
    same = f"{{}} (= {full})".format
    packages = [
        Package(name="libcuda1", version=full, content="libraries", driver=version),
        Package(name="nvidia-smi", version=full, content="smi", driver=version, depends=(same("libcuda1"),)),
        Package(name="nvidia-persistenced", version=full, content="persistenced", driver=version),
        Package(name="nvidia-kernel-support", version=full, content="modprobe_conf", driver=version),
        Package(name="nvidia-driver-cuda", version=full, driver=version, depends=(same("libcuda1"), same("nvidia-smi"), same("nvidia-persistenced"))),
        Package(name="nvidia-driver", version=full, driver=version, depends=(same("nvidia-driver-cuda"), f"nvidia-kernel-dkms (= {full}) | nvidia-kernel-open-dkms (= {full})")),
    ]  # fmt: skip
    for is_open in flavours:
        dkms = "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"
        packages += [
            Package(
                name=dkms, version=full, content="dkms", driver=version, extra={"open": "-open" if is_open else "", "dkms_name": "nvidia"},
                depends=("dkms", same("nvidia-kernel-support")), provides=("nvidia-kernel-any",), conflicts=("nvidia-kernel-any",),
            ),
            Package(
                name=f"nvidia-open{suffix}" if is_open else f"cuda-drivers{suffix}", version=full, driver=version,
                depends=(same("nvidia-driver"), same(dkms)), conflicts=(f"cuda-drivers{suffix}" if is_open else f"nvidia-open{suffix}",),
            ),
        ]  # fmt: skip
    return packages


def _fabric(branch: str, version: str, full: str) -> list[Package]:
    plain = int(branch) >= FABRIC_WITHOUT_BRANCH_FROM
    suffix = "" if plain else f"-{branch}"
    others = () if plain else ("nvidia-fabricmanager",)
    return [
        Package(name=f"nvidia-fabricmanager{suffix}", version=full, content="fabricmanager", driver=version, conflicts=others),
        Package(name=f"libnvidia-nscq{suffix}", version=full, driver=version),
        Package(name=f"libnvsdm{suffix}", version=full, driver=version),
        Package(name=f"nvidia-imex{suffix}", version=full, driver=version),
    ]  # fmt: skip


def _pinning(branch: str, version: str) -> list[Package]:
    """A branch's pinning package is one file of apt preferences; so is a single version's."""
    packages = [
        Package(name=f"nvidia-driver-pinning-{version}", version=f"{version}-1ubuntu1", arch="all", content="pinning", extra={"pin": version}, provides=("nvidia-driver-pinning",), conflicts=("nvidia-driver-pinning",)),
    ]  # fmt: skip
    if version == DRIVERS[branch][-1]:
        packages.append(
            Package(name=f"nvidia-driver-pinning-{branch}", version=f"{branch}-2ubuntu1", arch="all", content="pinning", extra={"pin": branch}, provides=("nvidia-driver-pinning",), conflicts=("nvidia-driver-pinning",)),
        )  # fmt: skip
    return packages


def _common_deb() -> list[Package]:
    packages = []
    for series, releases in CUDA.items():
        dashed = series.replace(".", "-")
        for toolkit, cudart, cublas in releases:
            packages += cuda_release(series, toolkit, cudart, cublas, "{} (>= {})".format, "amd64")
        if series in COMPAT:
            packages.append(Package(name=f"cuda-compat-{dashed}", version=COMPAT[series]))
    for major, minor in (("12", "9"), ("13", "4")):
        newest = CUDA[f"{major}.{minor}"][-1][0]
        needs = f"cuda-toolkit-{major}-{minor} (>= {newest})"
        packages.append(Package(name=f"cuda-toolkit-{major}", version=newest, depends=(needs,)))
    for series, versions in NCCL.items():
        for version in versions:
            full = f"{version}-1+cuda{series}"
            packages.append(Package(name="libnccl2", version=full, content="nccl", extra={"nccl": version}))
            packages.append(Package(name="libnccl-dev", version=full, depends=(f"libnccl2 (= {full})",)))
    for major, versions in CUDNN.items():
        for version in versions:
            name, full = f"libcudnn9-cuda-{major}", f"{version}-1"
            packages.append(Package(name=name, version=full, content="cudnn", extra={"cudnn": version}))
            packages.append(Package(name=f"libcudnn9-dev-cuda-{major}", version=full, depends=(f"{name} (= {full})",)))
    packages += _dcgm()
    return packages


def _dcgm() -> list[Package]:
    """Two pairs of DCGM and its exporter, an exporter without its DCGM, and DCGM 3, beside which DCGM 4 cannot be."""
    packages = [
        Package(name="datacenter-gpu-manager", version="1:3.3.9", content="dcgm", conflicts=("datacenter-gpu-manager-4-core",)),
        Package(name="datacenter-gpu-manager-exporter", version="4.9.0-1", content="dcgm_exporter"),
    ]  # fmt: skip
    for dcgm, exporter in (("4.5.3", "4.8.2"), ("4.6.0", "4.8.3")):
        core = f"datacenter-gpu-manager-4-core (= 1:{dcgm}-1)"
        packages.append(Package(name="datacenter-gpu-manager-4-core", version=f"1:{dcgm}-1", content="dcgm", conflicts=("datacenter-gpu-manager",)))  # fmt: skip
        packages += [
            Package(name=f"datacenter-gpu-manager-4-{part}", version=f"1:{dcgm}-1", depends=(core,))
            for part in ("cuda11", "cuda12", "cuda13", "proprietary", "proprietary-cuda12", "proprietary-cuda13")
        ]
        name, needs = "datacenter-gpu-manager-exporter", ("datacenter-gpu-manager-4-core",)
        packages.append(Package(name=name, version=f"{exporter}-1", content="dcgm_exporter", depends=needs))
    return packages


def cuda_release(
    series: str, toolkit: str, cudart: str, cublas: str, at_least: Callable[[str, str], str], arch: str,
) -> list[Package]:  # fmt: skip
    """The packages of one CUDA release; how a dependency is written differs between apt and rpm."""
    dashed, number = series.replace(".", "-"), {"cuda": series, "full": cudart, "toolkit": toolkit}

    def package(name: str, version: str, **words: Any) -> Package:
        return Package(name=f"{name}-{dashed}", version=version, arch=arch, extra=number, **words)

    libraries = (at_least(f"cuda-cudart-{dashed}", cudart), at_least(f"libcublas-{dashed}", cublas))
    programs = (at_least(f"cuda-libraries-{dashed}", toolkit), at_least(f"cuda-nvcc-{dashed}", cudart))
    return [
        package("cuda-cudart", cudart, content="cudart"),
        package("libcublas", cublas, content="cublas"),
        package("cuda-libraries", toolkit, depends=libraries),
        package("cuda-runtime", toolkit, depends=(at_least(f"cuda-libraries-{dashed}", toolkit),)),
        package("cuda-nvcc", cudart, content="nvcc"),
        package("cuda-toolkit", toolkit, depends=programs),
    ]


def _alone(stem: str, *also: str) -> dict[str, tuple[str, ...]]:
    """As Ubuntu's packages have it: one that provides a name is alone in that, so another series takes its place."""
    return {"provides": (stem, *also), "conflicts": (stem,)}


def _others(stem: str, branch: str) -> tuple[str, ...]:
    """A file of another branch may not lie beside: names of all other branches, and the name without one."""
    here = int(branch)
    names = [f"{stem}-{other}" for other in DRIVERS if int(other) < PINNING_FROM and other != branch]
    return tuple(names if here >= PINNING_FROM else [*names, stem])
