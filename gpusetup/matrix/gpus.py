"""From what people call a GPU to what the rules ask of it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpusetup.errors import BadInputError
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.platforms import Gpu
    from gpusetup.model.release import Architecture

__all__ = ["GpuKind", "find_gpu", "gpu_by_id", "kind_of"]

_PCI_ID = re.compile(r"(?:0x)?10de:(?:0x)?([0-9a-f]{4})", re.IGNORECASE)
_CAPABILITY = re.compile(r"(?:sm|compute|cc)[ _-]?([0-9]{1,2})[._]?([0-9])[af]?", re.IGNORECASE)
_TOKEN = re.compile(r"[a-z0-9]+")
_LETTERS_DIGITS = re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_FILLER = frozenset({"nvidia", "gpu", "graphics", "card"})
_FORWARD_COMPATIBLE = frozenset({"datacenter", "jetson"})


class GpuKind(Struct, frozen=True, kw_only=True):
    """One or several products that agree in all that the rules ask."""

    label: str
    names: tuple[str, ...]
    arch: str
    cc: str
    module: str
    """Whether open modules are `unsupported`, `supported`, `required` or `unknown` for it."""
    min_branch: int | None
    last_branch: int | None
    min_driver: str | None
    """The first driver that lists (all of) the products."""
    forward_compatible: bool | None
    """Whether cuda-compat packages are for it; None when that depends on which of the products it is."""
    only_cpu: str | None
    nvswitch: bool
    inferred: bool
    sources: tuple[str, ...]


def _architecture(matrix: Matrix, arch: str, cc: str) -> Architecture:
    rows = [row for row in matrix.driver.architectures if row.name == arch]
    exact = [row for row in rows if cc in row.capabilities]
    by_capability = [row for row in matrix.driver.architectures if cc in row.capabilities]
    for candidates in (exact, rows, by_capability):
        if candidates:
            return candidates[0]
    raise BadInputError("GS-205", f"the matrix has no architecture {arch} with compute capability {cc}")


def _module(gpu: Gpu, architecture: Architecture) -> str:
    if gpu.kind == "jetson":
        return "unknown"  # its driver comes with Jetson Linux, whatever the branches say of its architecture
    return "required" if gpu.open_required else architecture.open_module


def kind_of(matrix: Matrix, gpus: Iterable[Gpu], label: str) -> GpuKind:
    """Return what the rules need to know of products that agree."""
    gpus = tuple(gpus)
    first = gpus[0]
    architecture = _architecture(matrix, first.arch, first.cc)
    floors = [gpu.min_driver for gpu in gpus if gpu.min_driver]
    forward = {gpu.kind in _FORWARD_COMPATIBLE for gpu in gpus}
    return GpuKind(
        label=label,
        names=tuple(gpu.name for gpu in gpus),
        arch=first.arch,
        cc=first.cc,
        module=_module(first, architecture),
        min_branch=architecture.min_branch,
        last_branch=first.last_branch or architecture.last_branch,
        min_driver=max(floors, key=nv) if len(floors) == len(gpus) else None,
        forward_compatible=forward.pop() if len(forward) == 1 else None,
        only_cpu=first.only_cpu,
        nvswitch=all(gpu.nvswitch_baseboard for gpu in gpus),
        inferred=all(gpu.confidence == "inferred" for gpu in gpus),
        sources=architecture.sources,
    )


def _agreement(gpu: Gpu) -> tuple[object, ...]:
    return (gpu.arch, gpu.cc, gpu.last_branch, gpu.only_cpu, gpu.open_required)


def _tokens(name: str) -> frozenset[str]:
    return frozenset(_TOKEN.findall(name.lower())) - _FILLER


def _normal(name: str) -> str:
    return " ".join(token for token in _TOKEN.findall(name.lower()) if token not in _FILLER)


def _matches(gpus: tuple[Gpu, ...], text: str) -> list[Gpu]:
    wanted = _normal(text)
    exact = [gpu for gpu in gpus if wanted in {_normal(name) for name in (gpu.name, *gpu.aliases)}]
    if exact:
        return exact
    for tokens in (_tokens(text), _tokens(_LETTERS_DIGITS.sub(" ", text.lower()))):
        found = [gpu for gpu in gpus if any(tokens <= _tokens(name) for name in (gpu.name, *gpu.aliases))]
        if tokens and found:
            return found
    return []


def _by_capability(matrix: Matrix, cc: str, label: str) -> GpuKind:
    known = [row for row in matrix.driver.architectures if cc in row.capabilities]
    if not known:
        listed = sorted({cc for row in matrix.driver.architectures for cc in row.capabilities}, key=nv)
        raise BadInputError(
            "GS-121",
            f"no NVIDIA GPU has compute capability {cc}",
            path=f"--gpu {label}",
            hint="known: " + ", ".join("sm_" + cc.replace(".", "") for cc in listed),
        )
    row = known[0]
    return GpuKind(
        label=label,
        names=(label,),
        arch=row.name,
        cc=cc,
        module=row.open_module,
        min_branch=row.min_branch,
        last_branch=row.last_branch,
        min_driver=None,
        forward_compatible=None,
        only_cpu=None,
        nvswitch=False,
        inferred=row.confidence == "inferred",
        sources=row.sources,
    )


def gpu_by_id(matrix: Matrix, pci_id: str, subsystem: str = "") -> tuple[Gpu, ...]:
    """Return the products with this PCI id; the subsystem decides where one is known."""
    found = tuple(gpu for gpu in matrix.gpus.gpus if pci_id in gpu.ids)
    exact = tuple(gpu for gpu in found if subsystem and subsystem in gpu.subsystems)
    return exact or found


@lru_cache(maxsize=512)
def find_gpu(matrix: Matrix, text: str) -> GpuKind:
    """Return the kind of GPU that the text names; unknown or ambiguous names are bad input with candidates."""
    text = text.strip()
    capability = _CAPABILITY.fullmatch(text)
    if capability is not None:
        return _by_capability(matrix, f"{capability[1]}.{capability[2]}", text)
    pci = _PCI_ID.fullmatch(text)
    found = list(gpu_by_id(matrix, f"10de:{pci[1].lower()}")) if pci else _matches(matrix.gpus.gpus, text)
    if not found:
        names = {_normal(name): name for gpu in matrix.gpus.gpus for name in (gpu.name, *gpu.aliases)}
        import difflib

        close = [names[key] for key in difflib.get_close_matches(_normal(text), names, n=4, cutoff=0.5)]
        raise BadInputError(
            "GS-120",
            f"unknown GPU {text!r}",
            path=f"--gpu {text!r}",
            hint=("did you mean " + ", ".join(close) + "? " if close else "")
            + "A PCI id (lspci -nn -d 10de:) or sm_NN works for every GPU.",
        )
    if len({_agreement(gpu) for gpu in found}) > 1:
        listed = sorted({gpu.name for gpu in found})
        shown = ", ".join(listed[:12]) + (f" and {len(listed) - 12} more" if len(listed) > 12 else "")
        raise BadInputError(
            "GS-122",
            f"{text!r} names {len(listed)} products that differ in what the rules ask",
            path=f"--gpu {text!r}",
            note=f"candidates: {shown}",
            hint="name one of them, or a PCI id, or sm_NN",
        )
    label = found[0].name if len(found) == 1 or pci else text
    return kind_of(matrix, found, label)
