"""What a diagnosis asks of a machine beside its facts, as the probe answers it."""

from __future__ import annotations

from msgspec import Struct


class Device(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device file: whether the one who looked may open it, None when that is not known."""

    open: bool | None = None
    mode: str | None = None


class BuildLog(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log of a module's last build."""

    path: str
    version: str
    text: str


class LibraryFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that could be meant by a library's name, and the file that it leads to."""

    path: str
    leads_to: str


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Python environment and the frameworks in it, by name."""

    path: str
    packages: dict[str, str]


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the driver says of a GPU after an error; None: it does not tell."""

    action: str | None = None
    """Its recovery action, in nvidia-smi's word."""
    pending: bool | None = None
    """A memory row is replaced at the next reset."""
    failed: bool | None = None
    """A memory row could not be replaced."""


class Reset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When gpusetup reset a GPU, in seconds since the boot and since 1970."""

    uptime: float
    time: float


class Symptoms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was seen on one machine."""

    live: bool
    """The machine itself answered; a capture knows only what was recorded."""
    root: bool | None
    environment: dict[str, str]
    kernel_log: str | None
    kernel_log_refused: bool
    devices: dict[str, Device] | None
    """None on a simulated host."""
    builds: tuple[BuildLog, ...]
    loader_cache: bool
    libraries: dict[str, tuple[LibraryFile, ...]]
    environments: tuple[Environment, ...]
    cdi: dict[str, tuple[str, ...]]
    """By CDI file the versions of libcuda that it names."""
    mig_instances: bool | None
    licence: tuple[str, ...]
    recovery: dict[str, Wanted] = {}
    """By PCI address."""
    resets: dict[str, Reset] = {}
    """By PCI address the last one of this boot."""
