"""What somebody asks for: components with specifiers, and the machine it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

ModuleFlavour = Literal["open", "proprietary"]


class _Names(Struct, frozen=True, forbid_unknown_fields=True):
    packages: tuple[str, ...]
    said_as: dict[str, str]
    of_vendors: tuple[tuple[str, str], ...]


_NAMES = msgspec.json.decode((Path(__file__).parent / "data/packages.json").read_bytes(), type=_Names)
PACKAGES = _NAMES.packages
"""Packages above the frameworks, named as on the Python index; what asks most of the others comes first."""
SAID_AS = _NAMES.said_as
"""Other names of components."""
OF_VENDORS = _NAMES.of_vendors
"""Packages of distributions, NVIDIA and conda, by pattern: the component that they are; a group names its series."""

COMPONENTS = (*PACKAGES, "torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl", "driver", "python")
"""Everything that can be asked for, in the order in which preferences look at it."""

SITE_FILE = "gpusetup.toml"
"""What a site says, beside its inventory or in the current folder."""

DEFAULT_COMPONENTS = ("driver", "cuda", "cudnn", "nccl", "cupy")
"""What nothing-asked-for means."""


class Requirement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A component and what its version must be; `variant` names one build of torch (cu128).

    `latest` asks for the newest release there is, whatever is installed or on record. `beside` are further toolkits
    of CUDA, each a specifier of its own: the first one is the default.
    """

    component: str
    specifier: str = ""
    variant: str = ""
    latest: bool = False
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.latest:
            return f"{self.component}==latest"
        first = self.component + self.specifier + (f"+{self.variant}" if self.variant else "")
        return " ".join((first, *(self.component + specifier for specifier in self.beside)))


class DriverCandidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver that a host's configured repositories really offer, and its module flavours there."""

    version: str
    modules: tuple[ModuleFlavour, ...]


class LibraryCandidates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host's repositories really offer of a library that is to come from there."""

    component: Literal["cuda", "cudnn", "nccl"]
    builds: tuple[tuple[str, str], ...]
    """Version and the CUDA major that it was built for; of CUDA itself, its own."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a site or a project forbids, whatever else is asked for: `[policy]`, `[tool.gpusetup.policy]`."""

    newest_driver_branch: Annotated[int, Meta(ge=100, le=9999)] | None = None
    oldest_driver: Annotated[str, Meta(pattern=r"^[0-9]{3,4}(\.[0-9]{1,3}){0,2}$")] | None = None
    forbid_end_of_life: tuple[Literal["driver", "cuda"], ...] = ()
    """Driver branches that have ended, and toolkits whose own branch has."""
    forbid_cvss_from: Annotated[float, Meta(gt=0, le=10)] | None = None
    """Releases with a known vulnerability of this score or more."""
    places: tuple[tuple[str, str], ...] = ()
    """Each key with its file and line."""

    def quoted(self, key: str) -> str:
        """Return a key as the file has it, and where."""
        value = getattr(self, key)
        shown = ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else value
        return f"{key} = {shown} in {dict(self.places)[key]}"


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to the resolver: complete, so that two equal requests have equal answers."""

    requirements: tuple[Requirement, ...] = ()
    gpus: tuple[str, ...] = ()
    """Names as people write them, PCI ids or sm_NN; empty: the GPU is left open."""
    gpu_count: int = 0
    """How many GPUs one host has, when known; more than one makes NCCL's GPU code a must."""
    os: str | None = None
    arch: Literal["x86_64", "aarch64"] | None = None
    driver: str | None = None
    """This driver is installed and stays."""
    installed_driver: str | None = None
    """This driver is installed and works: kept when it satisfies, replaced when not."""
    installed_module: ModuleFlavour | None = None
    recorded: tuple[Requirement, ...] = ()
    """What was applied last: each stays as long as it satisfies."""
    driver_candidates: tuple[DriverCandidate, ...] | None = None
    """The only drivers that can be had; None: whatever NVIDIA published."""
    library_candidates: tuple[LibraryCandidates, ...] = ()
    """The only releases of these libraries that can be had; others are whatever NVIDIA published."""
    wheels_only: bool = False
    """CUDA libraries come as wheels: which toolkits NVIDIA's repository has for the distribution is no limit."""
    pythons: tuple[str, ...] | None = None
    """The Pythons that the host has or can get, its own first; None: whatever the matrix says of the distribution."""
    vgpu_guest: bool = False
    driver_elsewhere: Literal["wsl", "container"] | None = None
    """The host borrows its driver: none is installed there."""
    allow_builds: bool = False
    """Packages without a wheel may be built on the host."""
    allow_vulnerable: bool = False
    """A driver with a known vulnerability is as good as one without."""
    policy: Policy | None = None
    native: bool = False
    forward: bool = False
