"""Named Python environments beside the default one: what is asked for, and what one host is to have."""

from __future__ import annotations

from msgspec import Struct

from gpusetup.model.request import Requirement
from gpusetup.model.stack import Stack


class EnvironmentWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as it is asked for."""

    name: str
    requirements: tuple[Requirement, ...]


class Environment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment as a host is to have it."""

    name: str
    path: str
    """The link that names it."""
    stack: Stack
    """With the driver that all environments of the host share."""
    requirements: tuple[str, ...]
    interpreter: str = ""
    """What it is made with; empty: the system's own Python."""


class RoleEnvironment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same as the role takes it."""

    name: str
    path: str
    requirements: tuple[str, ...]
    interpreter: str = ""
