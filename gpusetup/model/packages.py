"""Python packages above the frameworks: one record type for all, one file for each."""

# No `from __future__ import annotations` here: msgspec would compile every annotation again at each start.
import re
from typing import Annotated, Literal

from msgspec import Struct, field

from gpusetup.model import whole
from gpusetup.model.record import Arch, Capability, MatrixFile, PackageVersion, Record, Version

PackageKind = Literal["wheel", "source", "placeholder"]


Target = Annotated[str, whole(r"[0-9]+\.[0-9][af]?")]


class PackageCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The GPU code inside a wheel; 9.0a runs only on 9.0."""

    targets: tuple[Target, ...]
    ptx: tuple[Target, ...] = ()


def major_of_extra(text: str) -> str:
    """Return the CUDA major of an extra: 12 for `core_cu12`; empty if it is for all."""
    return "".join(re.findall(r"cu([0-9]{2})$", text))


class PackageRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of a package on PyPI."""

    version: PackageVersion
    date: str
    kind: PackageKind
    """`source`: PyPI has no wheel, so it is built on the host; `placeholder`: empty, only reserves the name."""
    read: str
    """How the metadata was read: pep658, range (of the wheel), sdist PKG-INFO, file list only."""
    pythons: dict[Arch, tuple[str, ...]] = field(default_factory=dict)
    """CPU → the Pythons that it can be installed with; CPUs without wheels are missing."""
    glibc: dict[Arch, str] = field(default_factory=dict)
    cuda: tuple[str, ...] = ()
    """CUDA inside the wheel: a minor (13.0), or a major (13) if only that was measured; empty: none, or unknown."""
    linked: bool = False
    """Whether the wheel links with libraries of this CUDA, so that torch must have the same major."""
    code: PackageCode | None = None
    """None: it is not known which GPUs it has code for."""
    cc_min: Capability | None = None
    """The lowest compute capability in its documentation."""
    driver_min: Version | None = None
    """The lowest driver in its documentation, if that is above what its CUDA needs."""
    compilers: tuple[str, ...] = ()
    """Compiler wheels that pip installs with it without an upper limit; empty: none, or unknown."""
    requires: dict[str, str] = field(default_factory=dict)
    """Requirements relevant to a GPU stack: name → specifier, or `any`."""
    adds: tuple[str, ...] = ()
    """Packages that it loads at run time without requiring them."""
    extras: tuple[str, ...] = ()
    """Extras to install it with; of those that end in `cuN` only the one for the stack's CUDA major."""
    yanked: bool = False


class PackageFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """frameworks/NAME.json."""

    name: str
    needs: tuple[str, ...] = ()
    """Components that it cannot work without, although not every release's metadata requires them."""
    build: str = ""
    """What building it from source needs."""
    releases: tuple[PackageRelease, ...]
