"""What hosts tell of their record, and locks of a few components."""

from typing import Any

import msgspec

from gpusetup.components.record import read_record
from gpusetup.model.applied import NO_LOCK, Applied, HostRecord
from gpusetup.model.package import PackageSet
from gpusetup.model.settings import AppliedWanted
from gpusetup.model.stack import Stack

_REST: dict[str, dict[str, Any]] = {
    "driver": {"branch": "580", "module": "open", "relation": "native"}, "cuda": {"relation": "native"},
    "cudnn": {"cuda": "13"}, "torch": {"variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": ""},
    "cupy": {"package": "cupy-cuda13x", "ctk": True},
}  # fmt: skip


def record(document: Any) -> HostRecord:
    """Read what a host tells; it must be readable."""
    found, reason = read_record(msgspec.to_builtins(document))
    assert found is not None, reason
    return found


def stack_document(**versions: str) -> dict[str, Any]:
    """Return a stack of these components as a document."""
    return {name: _REST[name] | {"version": version} for name, version in versions.items()}


def lock_of(packages: PackageSet | None = None, **versions: str) -> Applied:
    """Return a lock of these components, with packages that bring them; none of neither is no lock."""
    if packages is None and not versions:
        return NO_LOCK
    wanted = AppliedWanted(packages=packages, manage_driver=True, requirements=(), adopted=(), services=())
    return Applied(stack=msgspec.convert(stack_document(**versions), Stack), wanted=wanted)
