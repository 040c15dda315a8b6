"""What a lab host looks like. "Like" flavours are Debian wearing another system's name: see README.md for what that proves."""

from dataclasses import dataclass, field, replace

UBUNTU_KERNELS = {"jammy": "5.15.0-140-generic", "noble": "6.8.0-60-generic"}


@dataclass(frozen=True, kw_only=True)
class Flavour:
    name: str
    root: str
    os_release: dict[str, str] | None = None
    files: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    kernel: str = ""  # the kernel is renamed to this
    archive: str = ""  # whose stand-in archive it uses from the start: "ubuntu", "rocky" or "suse"
    suite: str = ""


def _ubuntu(version: str, codename: str) -> Flavour:
    full = f"Ubuntu {version} LTS"
    lsb = {"ID": "Ubuntu", "RELEASE": version, "CODENAME": codename, "DESCRIPTION": f'"{full}"'}
    return Flavour(
        name=f"ubuntu{version.replace('.', '')}-like", root="debian12", kernel=UBUNTU_KERNELS[codename], archive="ubuntu",
        os_release={
            "PRETTY_NAME": full, "NAME": "Ubuntu", "VERSION_ID": version, "VERSION": f"{version} LTS",
            "VERSION_CODENAME": codename, "ID": "ubuntu", "ID_LIKE": "debian", "UBUNTU_CODENAME": codename,
        },
        files={"etc/lsb-release": "".join(f"DISTRIB_{name}={text}\n" for name, text in lsb.items())},
        absent=("etc/debian_version",), suite=codename,
    )  # fmt: skip


def _red_hat(name: str) -> Flavour:
    """The same under Red Hat's own name: for its kernels there are prebuilt modules, for those of the rebuilds not."""
    rocky, full = _rocky(name, "el"), "Red Hat Enterprise Linux"
    own = {
        "NAME": full,
        "VERSION": "9.6 (Plow)",
        "ID": "rhel",
        "ID_LIKE": "fedora",
        "PRETTY_NAME": f"{full} 9.6 (Plow)",
    }
    return replace(
        rocky, os_release={**(rocky.os_release or {}), **own}, absent=(*rocky.absent, "etc/rocky-release"),
        files={**rocky.files, "etc/redhat-release": f"{full} release 9.6 (Plow)\n"},
    )  # fmt: skip


def _rocky(name: str, root: str) -> Flavour:
    release = "Rocky Linux release 9.6 (Blue Onyx)\n"
    return Flavour(
        name=name, root=root, archive="rocky", absent=("etc/debian_version", "etc/lsb-release"),
        os_release={
            "NAME": "Rocky Linux", "VERSION": "9.6 (Blue Onyx)", "ID": "rocky", "ID_LIKE": "rhel centos fedora",
            "VERSION_ID": "9.6", "PLATFORM_ID": "platform:el9", "PRETTY_NAME": "Rocky Linux 9.6 (Blue Onyx)",
        },
        files={"etc/redhat-release": release, "etc/rocky-release": release, "etc/dnf/vars/releasever": "9\n"},
    )  # fmt: skip


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        *(Flavour(name=name, root=name) for name in ("debian12", "debian12-bare")),
        Flavour(name="debian12-minimal", root="debian12-bare", absent=("usr/bin/sudo",)),
        *(Flavour(name=name, root=name) for name in ("debian12-cloud", "debian13", "debian13-bare")),
        _ubuntu("22.04", "jammy"),
        _ubuntu("24.04", "noble"),
        replace(_ubuntu("24.04", "noble"), name="ubuntu2404-arm64-like", root="debian12-arm64"),
        _rocky("rocky9-like", "el"),
        _rocky("rocky9-dnf5-like", "el-dnf5"),
        _red_hat("rhel9-like"),
        Flavour(
            name="leap15-like", root="suse", archive="suse", absent=("etc/debian_version", "etc/lsb-release"),
            os_release={
                "NAME": "openSUSE Leap", "VERSION": "15.6", "ID": "opensuse-leap", "ID_LIKE": "suse opensuse",
                "VERSION_ID": "15.6", "PRETTY_NAME": "openSUSE Leap 15.6",
            },
        ),
    )
}  # fmt: skip
