"""Hosts to which nobody may say `apply`: their driver comes from elsewhere, or no driver drives their GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import NoStackError
from gpusetup.model.request import Request, Requirement
from gpusetup.plan.guest import vgpu_refusal
from gpusetup.plan.preflight import borrowed_from, guest_refusal
from gpusetup.plan.refusals import refusal_of
from gpusetup.plan.requests import working_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.plan import Refusal
    from gpusetup.model.stack import Resolution

__all__ = ["apply_refused"]


def apply_refused(facts: HostFacts, matrix: Matrix, resolve: Callable[[Request, Matrix], Resolution]) -> Refusal | None:
    """Return why apply would install no driver here, whatever is asked for; None where it may."""
    if facts.simulated or working_driver(facts) is not None:
        return None
    kind = borrowed_from(facts)
    if kind is not None:
        return guest_refusal(kind)
    if facts.vgpu_guest:
        return vgpu_refusal()
    gpus = tuple(sorted({gpu.pci_id for gpu in facts.gpus}))
    try:
        resolve(Request(requirements=(Requirement(component="driver"),), gpus=gpus), matrix)
    except NoStackError as error:
        return refusal_of(error)
    return None
