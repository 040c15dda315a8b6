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


def _ubuntu(version: str, codename: str, kernel: str) -> Flavour:
    return Flavour(
        name=f"ubuntu{version.replace('.', '')}-like",
        root="debian12",
        os_release={
            "PRETTY_NAME": f"Ubuntu {version} LTS",
            "NAME": "Ubuntu",
            "VERSION_ID": version,
            "VERSION": f"{version} LTS",
            "VERSION_CODENAME": codename,
            "ID": "ubuntu",
            "ID_LIKE": "debian",
            "UBUNTU_CODENAME": codename,
        },
        files={
            "etc/lsb-release": f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version}\nDISTRIB_CODENAME={codename}\n"
            f'DISTRIB_DESCRIPTION="Ubuntu {version} LTS"\n'
        },
        absent=("etc/debian_version",),
        kernel=kernel,
        archive="ubuntu",
        suite=codename,
    )


def _red_hat(name: str) -> Flavour:
    """The same under Red Hat's own name: for its kernels there are prebuilt modules, for those of the rebuilds not."""
    rocky = _rocky(name, "el")
    return replace(
        rocky,
        os_release={
            **(rocky.os_release or {}),
            "NAME": "Red Hat Enterprise Linux",
            "VERSION": "9.6 (Plow)",
            "ID": "rhel",
            "ID_LIKE": "fedora",
            "PRETTY_NAME": "Red Hat Enterprise Linux 9.6 (Plow)",
        },
        files={**rocky.files, "etc/redhat-release": "Red Hat Enterprise Linux release 9.6 (Plow)\n"},
        absent=(*rocky.absent, "etc/rocky-release"),
    )


def _rocky(name: str, root: str) -> Flavour:
    return Flavour(
        name=name,
        root=root,
        os_release={
            "NAME": "Rocky Linux",
            "VERSION": "9.6 (Blue Onyx)",
            "ID": "rocky",
            "ID_LIKE": "rhel centos fedora",
            "VERSION_ID": "9.6",
            "PLATFORM_ID": "platform:el9",
            "PRETTY_NAME": "Rocky Linux 9.6 (Blue Onyx)",
        },
        files={
            "etc/redhat-release": "Rocky Linux release 9.6 (Blue Onyx)\n",
            "etc/rocky-release": "Rocky Linux release 9.6 (Blue Onyx)\n",
            "etc/dnf/vars/releasever": "9\n",
        },
        absent=("etc/debian_version", "etc/lsb-release"),
        archive="rocky",
    )


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour(name="debian12", root="debian12"),
        Flavour(name="debian12-bare", root="debian12-bare"),
        Flavour(name="debian12-minimal", root="debian12-bare", absent=("usr/bin/sudo",)),
        Flavour(name="debian12-cloud", root="debian12-cloud"),
        Flavour(name="debian13", root="debian13"),
        Flavour(name="debian13-bare", root="debian13-bare"),
        _ubuntu("22.04", "jammy", UBUNTU_KERNELS["jammy"]),
        _ubuntu("24.04", "noble", UBUNTU_KERNELS["noble"]),
        _rocky("rocky9-like", "el"),
        _rocky("rocky9-dnf5-like", "el-dnf5"),
        _red_hat("rhel9-like"),
        Flavour(
            name="leap15-like",
            root="suse",
            os_release={
                "NAME": "openSUSE Leap",
                "VERSION": "15.6",
                "ID": "opensuse-leap",
                "ID_LIKE": "suse opensuse",
                "VERSION_ID": "15.6",
                "PRETTY_NAME": "openSUSE Leap 15.6",
            },
            absent=("etc/debian_version", "etc/lsb-release"),
            archive="suse",
        ),
    )
}
