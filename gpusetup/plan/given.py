"""A file that NVIDIA publishes as the source of packages or of the driver: what its name says of it.

It is on the host already; a `.run` installer may also be an address, from which the host fetches it.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

__all__ = ["Given", "given"]

_RUNFILE = re.compile(
    r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d{3}\.\d+(?:\.\d+)?)(?P<kind>-[a-z0-9-]+)?\.run"
)
_LOCAL = re.compile(
    r"(?P<stem>(?:cuda-repo|nvidia-driver-local-repo)-(?P<directory>[a-z]+\d+|wsl-ubuntu)-[\w.+-]+)\.(?P<form>deb|rpm)"
)


class Given(NamedTuple):
    """What a file's name says."""

    kind: Literal["runfile", "deb", "rpm"]
    path: str
    """Where it is on the host, or the address of a `.run` installer."""
    stem: str = ""
    """A local repository's name, without its ending."""
    directory: str = ""
    """The distribution that it is for, as NVIDIA's repositories call it."""
    version: str = ""
    """The driver's, of a `.run` installer."""
    arch: str = ""
    guest: bool = False
    """Whether it is a vGPU guest's driver."""


def given(source: str) -> Given | None:
    """Return what a source is when it is a file; None for all other sources, and for a file of no such name."""
    name = source.rpartition("/")[2]
    fetched = source.startswith(("https://", "http://"))
    if not (source.startswith("/") or fetched):
        return None
    if match := _RUNFILE.fullmatch(name):
        kind_of = match["kind"] or ""
        if kind_of.startswith("-vgpu"):
            return None  # the software of the machine that lends vGPUs, which no guest can use
        guest = kind_of.startswith("-grid")
        return Given("runfile", source, version=match["version"], arch=match["arch"], guest=guest)
    if not fetched and (match := _LOCAL.fullmatch(name)):
        kind: Literal["deb", "rpm"] = "deb" if match["form"] == "deb" else "rpm"
        return Given(kind, source, stem=match["stem"], directory=match["directory"])
    return None
