"""Python packages above the frameworks: one shape of record for all of them, one file for each."""

# Annotations are not postponed here: as text, every one would be compiled again at every start.
import re
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gpusetup.model.record import Arch, Capability, MatrixFile, PackageVersion, Record, Version

PackageKind = Literal["wheel", "source", "placeholder"]


Target = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9][af]?$")]


class PackageCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The GPU code inside a wheel: 9.0a runs on 9.0 alone."""

    targets: tuple[Target, ...]
    ptx: tuple[Target, ...] = ()


def major_of_extra(text: str) -> str:
    """Return the CUDA major that an extra is for: 12 of `core_cu12`; empty when it is for all."""
    return "".join(re.findall(r"cu([0-9]{2})$", text))


class PackageRelease(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of a package, as the index has it."""

    version: PackageVersion
    date: str
    kind: PackageKind
    """`source`: the index has no wheel, so it is built on the host; `placeholder`: a name that somebody keeps free."""
    read: str
    """How the metadata was read: pep658, range (of the wheel), sdist PKG-INFO, file list only."""
    pythons: dict[Arch, tuple[str, ...]] = field(default_factory=dict)
    """Pythons that it can be installed with, per CPU; a CPU without wheels is not there."""
    glibc: dict[Arch, str] = field(default_factory=dict)
    cuda: tuple[str, ...] = ()
    """CUDA inside the wheel: a minor (13.0), or a major (13) where only that was measured; empty: none, or unknown."""
    linked: bool = False
    """Whether the wheel's libraries are linked with those of this CUDA, so that torch must bring the same major."""
    code: PackageCode | None = None
    """None: nobody published or measured which GPUs it has code for."""
    cc_min: Capability | None = None
    """The lowest compute capability that its documentation names."""
    driver_min: Version | None = None
    """The lowest driver that its documentation names, where that is above what its CUDA needs."""
    compilers: tuple[str, ...] = ()
    """Compiler wheels that the index's own resolver took for it without an upper limit; empty: none, or unknown."""
    requires: dict[str, str] = field(default_factory=dict)
    """Requirements that matter to a GPU stack: name → specifier, `any` where every version will do."""
    adds: tuple[str, ...] = ()
    """Packages that it opens at run time and does not ask for."""
    extras: tuple[str, ...] = ()
    """The extra without which this release does not ask for what it needs."""
    yanked: bool = False


class PackageFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """frameworks/NAME.json."""

    name: str
    needs: tuple[str, ...] = ()
    """Components that it works with only, although not every release's metadata says so."""
    extras: tuple[str, ...] = ()
    """Extras that it is installed with; of those that end in `cuN` the one of the stack's CUDA major."""
    build: str = ""
    """What building it from source needs."""
    releases: tuple[PackageRelease, ...]
