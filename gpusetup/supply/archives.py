"""Where the archives of distributions are, and which keyring vouches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError
from gpusetup.plan.described_host import CODENAMES

if TYPE_CHECKING:
    from gpusetup.model.record import Arch

__all__ = ["archive_of"]

_DEBIAN = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_LINES = {
    "debian": (
        ("http://deb.debian.org/debian", "{codename} {codename}-updates", "main contrib non-free non-free-firmware"),
        ("http://deb.debian.org/debian-security", "{codename}-security", "main contrib non-free non-free-firmware"),
    ),
    "ubuntu": (
        ("{ubuntu}", "{codename} {codename}-updates", "main restricted universe multiverse"),
        ("{security}", "{codename}-security", "main restricted universe multiverse"),
    ),
}


def archive_of(system: str, arch: Arch) -> tuple[str, ...]:
    """Return the lines of sources.list for a release."""
    family = "debian" if system.startswith("debian") else "ubuntu"
    codename = CODENAMES.get(system)
    if codename is None:
        raise BadInputError(
            "GS-764", f"{system} has no archive that is known", path="--os",
            hint="name its archives: --archive 'deb [signed-by=FILE] URL SUITE COMPONENTS'",
        )  # fmt: skip
    ports = "http://ports.ubuntu.com/ubuntu-ports"
    places = {
        "ubuntu": ports if arch == "aarch64" else "http://archive.ubuntu.com/ubuntu",
        "security": ports if arch == "aarch64" else "http://security.ubuntu.com/ubuntu",
        "codename": codename,
    }
    keyring = _DEBIAN if family == "debian" else _UBUNTU
    return tuple(
        f"deb [signed-by={keyring}] {url.format(**places)} {suite} {components}"
        for url, suites, components in _LINES[family]
        for suite in suites.format(**places).split()
    )
