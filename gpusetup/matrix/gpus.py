"""Find a GPU by any of its names, and return what the rules need to know of it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gpusetup.errors import BadInputError
from gpusetup.model.record import Arch
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.platforms import Gpu
    from gpusetup.model.release import Architecture
    from gpusetup.model.tables import Instance

_PCI_ID = re.compile(r"(?:.*\[|0x)?10de:(?:0x)?([0-9a-f]{4})(?:\].*)?", re.IGNORECASE)  # also a line of lspci -nn
_CAPABILITY = re.compile(r"(?:(?:sm|compute|cc)[ _-]?|(?=\d+\.))([0-9]{1,2})[._]?([0-9])[af]?", re.IGNORECASE)
_TOKEN = re.compile(r"[a-z0-9]+")
_LETTERS_DIGITS = r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])"
_FILLER = frozenset({"nvidia", "gpu", "graphics", "card"})
_TELLS_A_PRODUCT = r"(?![0-9]*gb$)(?:[a-z]*[a-z][0-9]+[a-z0-9]*|[0-9]+[a-z]{1,2}|[0-9]{3,}|[a-z]{3,})"
_AROUND = (
    r"(?i)^[^[]*\[|\].*|^gpu \d+:|\(uuid.*|\b(?:mig[ -])?\d+g\.\d+gb\S*|\b(?:with )?max-q(?: design)?|\b[dh]gxs?\b"
    r"|\bnvl\d+\b|\(nvgpu\)|\b(?:shared|mega|tesla|vws)\b"
)
_VARIANT = (
    r"(?i)\b(?:\d+ ?gb|mobile|refresh|rev\. ?[a-z]|pcie|sxm|nvlink|gddr\dx?|lite hash rate|lhr)\b"
    r"|(?<=k[248]0)x?[cdmst]+\b"
)
"""What a name has besides the product's: words of lspci, nvidia-smi -L and labels, its MIG slice, its system; its
memory, revision and form."""
_VGPU = r"(?i)\b(?:grid|vgpu)\b|(?<=\d)(?:dx?|xm|xl?|l|p)?-\d+[abcq]\b"
_FORWARD_COMPATIBLE = frozenset({"datacenter", "jetson"})


class GpuKind(Struct, frozen=True, kw_only=True):
    """One product, or several that are equal to the rules."""

    label: str
    names: tuple[str, ...]
    arch: str
    cc: str
    module: str
    """Whether open kernel modules are `unsupported`, `supported`, `required` or `unknown`."""
    min_branch: int | None
    last_branch: int | None
    min_driver: str | None
    """The first driver that lists all of the products; None if it is unknown for any."""
    forward_compatible: bool | None
    """Whether cuda-compat packages work on it; None when that depends on the product."""
    only_cpu: Arch | None
    nvswitch: bool
    inferred: bool
    sources: tuple[str, ...]


def _architecture(matrix: Matrix, arch: str, cc: str) -> Architecture:
    def fit(row: Architecture) -> int:
        return 2 * (row.name == arch) + (cc in row.capabilities)

    if fit(best := max(matrix.driver.architectures, key=fit)):
        return best
    raise BadInputError("GS-205", f"the matrix has no architecture {arch} with compute capability {cc}")


def kind_of(matrix: Matrix, gpus: Iterable[Gpu], label: str) -> GpuKind:
    """Return what the rules need to know of products that are equal to them."""
    gpus = tuple(gpus)
    first = gpus[0]
    architecture = _architecture(matrix, first.arch, first.cc)
    # A Jetson's driver comes with Jetson Linux, not from a driver branch.
    module = "unknown" if first.kind == "jetson" else "required" if first.open_required else architecture.open_module
    floors = [gpu.min_driver for gpu in gpus if gpu.min_driver]
    forward = {gpu.kind in _FORWARD_COMPATIBLE for gpu in gpus}
    return GpuKind(
        label=label, names=tuple(gpu.name for gpu in gpus), arch=first.arch, cc=first.cc,
        module=module, min_branch=architecture.min_branch,
        last_branch=first.last_branch or architecture.last_branch,
        min_driver=max(floors, key=nv) if len(floors) == len(gpus) else None,
        forward_compatible=forward.pop() if len(forward) == 1 else None, only_cpu=first.only_cpu,
        nvswitch=all(gpu.nvswitch_baseboard for gpu in gpus),
        inferred=all(gpu.confidence == "inferred" for gpu in gpus), sources=architecture.sources,
    )  # fmt: skip


def _tokens(name: str) -> frozenset[str]:
    return frozenset(_normal(name).split())


@lru_cache(maxsize=4096)
def _normal(name: str) -> str:
    return " ".join(token for token in _TOKEN.findall(name.lower()) if token not in _FILLER)


def _of_architecture(gpus: tuple[Gpu, ...], text: str) -> list[Gpu]:
    """Return the products of a named architecture, without Jetsons and workstation SoCs."""
    named = {text.strip().lower().removesuffix(suffix) for suffix in ("", " architecture", " generation", " lovelace")}
    return [gpu for gpu in gpus if gpu.arch.lower() in named and gpu.kind not in ("jetson", "workstation-soc")]


def _with_tokens(gpus: Iterable[Gpu], tokens: frozenset[str]) -> list[Gpu]:
    return [gpu for gpu in gpus if tokens and any(tokens <= _tokens(name) for name in (gpu.name, *gpu.aliases))]


def products_named(gpus: tuple[Gpu, ...], text: str) -> list[Gpu]:
    """Return the products whose name, or a part of it, a text is; empty for other texts."""
    if found := _of_architecture(gpus, text):
        return found
    wanted = _normal(text)
    last = wanted.rpartition(" ")[2]  # few names contain it: the others need not be taken apart
    near = [gpu for gpu in gpus if any(last in name.lower() for name in (gpu.name, *gpu.aliases))]
    if exact := [gpu for gpu in near if any(wanted == _normal(name) for name in (gpu.name, *gpu.aliases))]:
        return exact
    if not any(re.fullmatch(_TELLS_A_PRODUCT, token) for token in _tokens(text)):
        return []  # `gb`, `ti` or `3` alone are parts of many names and identify no product
    found = _with_tokens(near, _tokens(text))
    if found := found or _with_tokens(gpus, _tokens(re.sub(_LETTERS_DIGITS, " ", text.lower()))):
        return found
    text = text.replace("_", " ")  # as Slurm and renters of GPUs write it
    product = re.sub(_AROUND, "", text)
    product = re.sub(_VARIANT, "", text) if product == text else product
    return products_named(gpus, product) if product != text else []


def _by_capability(matrix: Matrix, cc: str, label: str) -> GpuKind:
    products = [gpu for gpu in matrix.gpus.gpus if gpu.cc == cc]
    if products and all(gpu.only_cpu for gpu in products):  # Jetsons and DGX Spark
        return kind_of(matrix, products, label)
    row = next((row for row in matrix.driver.architectures if cc in row.capabilities), None)
    if row is None:
        listed = sorted({cc for row in matrix.driver.architectures for cc in row.capabilities}, key=nv)
        raise BadInputError(
            "GS-121",
            f"no GPU that gpusetup knows has compute capability {cc}",
            path=f"--gpu {label}",
            hint="known: " + ", ".join("sm_" + cc.replace(".", "") for cc in listed),
        )
    return GpuKind(
        label=label, names=(label,), arch=row.name, cc=cc, module=row.open_module, min_branch=row.min_branch,
        last_branch=row.last_branch, min_driver=None, forward_compatible=None, only_cpu=None, nvswitch=False,
        inferred=row.confidence == "inferred", sources=row.sources,
    )  # fmt: skip


def gpu_by_id(matrix: Matrix, pci_id: str, subsystem: str = "") -> tuple[Gpu, ...]:
    """Return the products with this PCI id, narrowed by the subsystem if one is known for it."""
    found = tuple(gpu for gpu in matrix.gpus.gpus if pci_id in gpu.ids)
    exact = tuple(gpu for gpu in found if subsystem and subsystem in gpu.subsystems)
    return exact or found


def _instead(matrix: Matrix, text: str) -> str:
    """Return what to type for an architecture without a listed product, or for a vGPU; empty for other texts."""
    for row in matrix.driver.architectures:
        if row.name.lower() == text.lower():
            return f"{row.name} is an architecture: --gpu sm_{row.capabilities[0].replace('.', '')}. "
    if re.fullmatch(r"\d+g\.\d+gb\S*", text.lower()):
        return "a MIG profile goes by its GPU: `gpusetup matrix mig` lists them. "
    whole = re.sub(_VGPU, "", text).strip()
    if whole != text and products_named(matrix.gpus.gpus, whole):
        return f"a vGPU goes by its GPU: --gpu '{whole}'; `gpusetup matrix vgpu` lists its guest's drivers. "
    return ""


def gpus_named(matrix: Matrix, text: str) -> list[Gpu]:
    """Return every product that a text names; raise BadInputError with similar names when there is none."""
    text = text.strip()
    pci, capability = _PCI_ID.fullmatch(text), _CAPABILITY.fullmatch(text)
    if capability is not None:
        cc = _by_capability(matrix, f"{capability[1]}.{capability[2]}", text).cc  # raises for one that no GPU has
        found = [gpu for gpu in matrix.gpus.gpus if gpu.cc == cc]
    elif pci is not None:
        found = list(gpu_by_id(matrix, f"10de:{pci[1].lower()}"))
    else:
        found = products_named(matrix.gpus.gpus, text)
    if found:
        return found
    plain = text.lower().removeprefix("nvidia ")
    what = next((what for what, names in matrix.gpus.not_covered.items() if re.fullmatch(names, plain)), "")
    if what:
        raise BadInputError(
            "GS-120",
            f"{text!r} is {what}, and gpusetup is for NVIDIA GPUs since Kepler",
            path=f"--gpu {text!r}",
            hint="its maker has the driver; `gpusetup matrix gpu` lists the GPUs that gpusetup knows",
        )
    full = [name.removeprefix("GeForce ") for gpu in matrix.gpus.gpus for name in (gpu.name, *gpu.aliases)]
    names = {_normal(name): name for text in full for name in (text, *re.findall(r"^[A-Z]+\d+", text))}
    import difflib

    close = [names[key] for key in difflib.get_close_matches(_normal(text), names, n=4, cutoff=0.5)]
    raise BadInputError(
        "GS-120",
        f"unknown GPU {text!r}",
        path=f"--gpu {text!r}",
        hint=(_instead(matrix, text) or ("did you mean " + ", ".join(close) + "? " if close else ""))
        + "A PCI id (lspci -nn -d 10de:) or sm_NN works for every GPU; `gpusetup matrix gpu` lists their names.",
    )


@lru_cache(maxsize=512)
def find_gpu(matrix: Matrix, text: str) -> GpuKind:
    """Return the kind of GPU that a text names; raise BadInputError with candidates if it is unknown or ambiguous."""
    text = text.strip()
    if capability := _CAPABILITY.fullmatch(text):
        return _by_capability(matrix, f"{capability[1]}.{capability[2]}", text)
    found = gpus_named(matrix, text)
    if _of_architecture(matrix.gpus.gpus, text):
        found = [gpu for gpu in found if gpu.only_cpu is None] or found
    if len({(gpu.arch, gpu.cc, gpu.last_branch, gpu.only_cpu, gpu.open_required) for gpu in found}) > 1:
        raise _ambiguous(text, found)
    label = found[0].name if len(found) == 1 or _PCI_ID.fullmatch(text) else text
    return kind_of(matrix, found, label)


def _ambiguous(text: str, found: list[Gpu]) -> BadInputError:
    by_capability: dict[str, list[str]] = {}
    for gpu in sorted(found, key=lambda gpu: nv(gpu.cc)):
        by_capability.setdefault(gpu.cc, []).append(gpu.name)
    several = len(by_capability) > 1
    told = "; ".join(_listed(names, 3 if several else 6) + f" ({cc})" * several for cc, names in by_capability.items())
    ways = "--gpu " + " or ".join(f"sm_{cc.replace('.', '')}" for cc in by_capability) if several else "sm_NN"
    return BadInputError(
        "GS-122",
        f"{text!r} names {len({gpu.name for gpu in found})} products with different requirements",
        path=f"--gpu {text!r}",
        note=f"candidates: {told}",
        hint=f"name one of them, or a PCI id, or {ways}",
    )


def _listed(names: Iterable[str], most: int = 6) -> str:
    unique = sorted(set(names))
    return ", ".join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def taken_for(kind: GpuKind, name: str) -> str:
    """Return how a GPU's name was understood: `Hopper, compute capability 9.0 (H100 PCIe, …)`."""
    products = "" if kind.names == (name,) else f" ({_listed(kind.names)})"
    return f"{kind.arch}{f' on {kind.only_cpu}' if kind.only_cpu else ''}, compute capability {kind.cc}{products}"


def cpu_of(matrix: Matrix, names: Iterable[str]) -> Arch | None:
    """Return the CPU architecture that GPUs come with; None if they come with any, or not with the same one."""
    found = {find_gpu(matrix, name).only_cpu for name in names} - {None}
    return found.pop() if len(found) == 1 else None


def instances(matrix: Matrix) -> dict[str, Instance]:
    """Return the machine types of clouds by their normalised names."""
    return {plain_type(item.name): item for item in matrix.instances.instances}


def plain_type(name: str | None) -> str:
    """Normalise a machine type's name: lower case, without the prefix `Standard_`."""
    return (name or "").strip().lower().removeprefix("standard_")


def instance_named(matrix: Matrix, name: str) -> Instance:
    """Return the cloud machine type with this name, or raise BadInputError."""
    from difflib import get_close_matches

    known, asked = instances(matrix), plain_type(name)
    if asked in known:
        return known[asked]
    close = [known[near].name for near in get_close_matches(asked, known, n=3)]
    raise BadInputError(
        "GS-138",
        f"the matrix has no machine type {name}" + (f"; it has {', '.join(close)}" if close else ""),
        path=f"--on {name}",
    )
