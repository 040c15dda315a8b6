"""MIG: what GPUs can be cut into, how one is to be cut, and how one is."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from gpusetup.model.record import MatrixFile, Record


class MigInstances(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPU instances of one profile; a count of 0 is as many as there can be."""

    profile: str
    count: int = 1
    compute: tuple[str, ...] = ()
    """Compute instances in each; empty: one that has all of it."""


class MigWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a GPU is to be cut; `gpu` is `all`, a number or a UUID."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()
    layout: str = ""
    """A name that stands for instances which differ by product (all-balanced)."""


class MigLayout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one GPU is to have; `gpu` is its PCI address."""

    gpu: str
    enabled: bool
    instances: tuple[MigInstances, ...] = ()


class MigInstance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance that is there, and its compute instances."""

    profile: str
    start: int
    compute: tuple[str, ...] = ()


class RecordedInstance(Struct, frozen=True, kw_only=True):
    """An instance on record; one that waits for a boot may have a count, and has no place."""

    profile: str
    compute: tuple[str, ...]
    start: int | UnsetType = UNSET
    count: int | UnsetType = UNSET


class MigCut(Struct, frozen=True, kw_only=True):
    """A GPU as it was found, or was left."""

    enabled: bool
    instances: tuple[RecordedInstance, ...]


class MigDevice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What programs see of it: a name and a UUID."""

    profile: str
    uuid: str


class MigProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU instance profile: how many there can be, where one may begin, how many memory slices it takes."""

    name: str
    total: int
    starts: tuple[int, ...]
    size: int


class MigProduct(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Products that are cut alike."""

    name: str
    ids: tuple[str, ...]
    reset: bool = False
    """A change of mode needs a reset of the GPU."""
    profiles: tuple[MigProfile, ...]
    balanced: dict[str, int] = field(default_factory=dict)
    """What `all-balanced` means here."""


class MigFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mig.json."""

    products: tuple[MigProduct, ...]
