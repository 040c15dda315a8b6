"""Requests to the resolver: components with specifiers, and the machine they are for."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gpusetup.errors import shipped
from gpusetup.model import whole

ModuleFlavour = Literal["open", "proprietary"]
Relation = Literal["native", "backward", "minor-version", "forward"]
"""How a CUDA runtime runs on a driver."""


class _Names(Struct, frozen=True, forbid_unknown_fields=True):
    packages: tuple[str, ...]
    said_as: dict[str, str]
    of_vendors: tuple[tuple[str, str], ...]
    elsewhere: dict[str, tuple[str, ...]]
    behind: dict[str, tuple[str, str]]


_NAMES = msgspec.json.decode(shipped("model/data/packages.json"), type=_Names)
PACKAGES = _NAMES.packages
"""Packages above the frameworks by their names on PyPI; those with the most requirements come first."""
SAID_AS = _NAMES.said_as
"""Other names of components."""
OF_VENDORS = _NAMES.of_vendors
"""(pattern, component) for package names of distributions, NVIDIA and conda; groups capture the component's series,
the CUDA major it was built for, the major of a toolkit's part, whose version begins with the toolkit's, or the series
of a toolkit's library, which has versions of its own."""
ELSEWHERE, BEHIND = {name: text for text, names in _NAMES.elsewhere.items() for name in names}, _NAMES.behind
"""What to type for names that are not components; table → what to say of a value that looks like one of its rows."""

COMPONENTS = (*PACKAGES, "torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl", "driver", "python")
"""Every component, in the order in which preferences apply to them."""

BUILT_FOR = {"jax": "jax[cuda{}]", "cupy": "cupy-cuda{}x", "cudnn": "nvidia-cudnn-cu{}", "nccl": "nvidia-nccl-cu{}"}
"""Components with builds per CUDA major, and how such a build is named."""

SITE_FILE = "gpusetup.toml"
"""A site's settings file, next to its inventory or in the current folder."""

DEFAULT_COMPONENTS = ("driver", "cuda", "cudnn", "nccl", "cupy")
"""The components of an empty request."""


class Requirement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A component and its version specifier; `variant` names one build of torch (cu128), or a CUDA major (cu12).

    `latest` requests the newest release, whatever is installed or on record. `beside` has the specifiers of further
    CUDA toolkits; the first one, in `specifier`, is the default.
    """

    component: str
    specifier: str = ""
    variant: str = ""
    latest: bool = False
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        specifier = "==latest" if self.latest else self.specifier
        if self.component in BUILT_FOR and self.variant:
            return BUILT_FOR[self.component].format(self.variant[2:]) + specifier
        first = self.component + specifier + (f"+{self.variant}" if self.variant else "")
        return " ".join((first, *(self.component + specifier for specifier in self.beside)))


class DriverCandidate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver that a host's configured repositories offer, with its module flavours."""

    version: str
    modules: tuple[ModuleFlavour, ...]


class LibraryCandidates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The builds of a library that a host's repositories offer, if the library is to come from there."""

    component: Literal["cuda", "cudnn", "nccl"]
    builds: tuple[tuple[str, str], ...]
    """(version, CUDA major it was built for); for CUDA its own major."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a site or project forbids, whatever is requested: `[policy]`, `[tool.gpusetup.policy]`."""

    newest_driver_branch: Annotated[int, Meta(ge=100, le=9999)] | None = None
    oldest_driver: Annotated[str, whole(r"[0-9]{3,4}(\.[0-9]{1,3}){0,2}")] | None = None
    forbid_end_of_life: tuple[Literal["driver", "cuda"], ...] = ()
    """Drivers whose branch is past its end of life, and toolkits that shipped with such a branch."""
    forbid_cvss_from: Annotated[float, Meta(gt=0, le=10)] | None = None
    """Releases with a known vulnerability of this score or more."""
    places: tuple[tuple[str, str], ...] = ()
    """(key, its file and line)."""

    def quoted(self, key: str) -> str:
        """Return a key with its value and its place in the file."""
        value = getattr(self, key)
        shown = ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else value
        return f"{key} = {shown} in {dict(self.places)[key]}"


class Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A complete question to the resolver: equal requests have equal answers."""

    requirements: tuple[Requirement, ...] = ()
    gpus: tuple[str, ...] = ()
    """Product names, PCI ids or sm_NN; empty: any GPU."""
    gpu_count: int = 0
    """The number of GPUs per host, if known; with more than one, NCCL must have code for them."""
    machine_type: str | UnsetType = UNSET
    """The cloud's machine type that was named in place of its GPUs."""
    os: str | None = None
    arch: Literal["x86_64", "aarch64"] | None = None
    driver: str | None = None
    """The installed driver, which must stay."""
    installed_driver: str | None = None
    """The installed, working driver: kept if it meets the request, else replaced."""
    installed_module: ModuleFlavour | None = None
    recorded: tuple[Requirement, ...] = ()
    """The versions of the last apply: each stays if it meets the request."""
    driver_candidates: tuple[DriverCandidate, ...] | None = None
    """The only available drivers; None: every driver that NVIDIA published."""
    library_candidates: tuple[LibraryCandidates, ...] = ()
    """The only available releases of these libraries; others: every release that NVIDIA published."""
    wheels_only: bool = False
    """CUDA libraries come as wheels, so the toolkits in NVIDIA's repository for the distribution do not matter."""
    pythons: tuple[str, ...] | None = None
    """The Pythons that the host has or can install, its own first; None: those of the distribution in the matrix."""
    vgpu_guest: bool = False
    driver_elsewhere: Literal["wsl", "container"] | None = None
    """The host uses the driver of another system: none is installed on it."""
    allow_builds: bool = False
    """Packages without a wheel may be built on the host."""
    allow_vulnerable: bool = False
    """Do not prefer drivers without known vulnerabilities."""
    policy: Policy | None = None
    native: bool = False
    forward: bool = False
