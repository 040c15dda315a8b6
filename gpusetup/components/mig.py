"""MIG: the parser of layouts, the check that a GPU can be cut like that, the actions of a plan."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Wanted, action
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import from_json, refusing
from gpusetup.components.record import record_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.gpus import gpu_by_id
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import Gpu
from gpusetup.model.package import Manager
from gpusetup.model.plan import Action
from gpusetup.model.settings import MigInstances, MigLayout, MigWish, Settings
from gpusetup.model.stack import Stack
from gpusetup.model.tables import MigProduct
from gpusetup.versions import nv

_FORM = "{all: all-1g.18gb}, {0: [3g.71gb, 2g.35gb], 1: {1g.18gb: 7}, 2: off}"
_GPU = re.compile(r"all|[0-9]{1,3}|GPU-[0-9a-f-]{36}")
_NAMED = re.compile(r"all-(\dg\.\d+gb)(?:([+-][a-z.]+)|\.(me|me\.all|gfx))?")
_OFF = ("off", "false", "no", "none", "disabled", "all-disabled")
_ON = ("on", "enabled", "all-enabled")
_BALANCED = "all-balanced"


def _wishes(value: Any, label: str) -> tuple[MigWish, ...]:
    """Read the wish for each named GPU."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            value = from_json(value)
        except ValueError:
            raise _wrong(label, value) from None
    if not isinstance(value, dict):
        value = {"all": value}
    found = {}
    for key, layout in value.items():
        name = str(key)
        if not _GPU.fullmatch(name):
            raise _wrong(label, name, "name a GPU: all, its number, or its UUID (GPU-…)")
        found[name] = _wish(name, layout, f"{label}[{name}]")
    return tuple(found[name] for name in sorted(found))


def _wish(gpu: str, layout: Any, label: str) -> MigWish:
    if isinstance(layout, bool) or layout is None:
        if layout:
            raise _wrong(label, layout)
        return MigWish(gpu=gpu, enabled=False)
    if isinstance(layout, str):
        text = layout.strip()
        if text.lower() in _OFF:
            return MigWish(gpu=gpu, enabled=False)
        if text.lower() in _ON:
            return MigWish(gpu=gpu, enabled=True)
        if text == _BALANCED:
            return MigWish(gpu=gpu, enabled=True, layout="balanced")
        if named := _NAMED.fullmatch(text):
            more = named[2] or (f"+{named[3]}" if named[3] else "")
            return MigWish(gpu=gpu, enabled=True, instances=(MigInstances(profile=named[1] + more, count=0),))
        layout = [item.strip() for item in text.split(",")]
    if isinstance(layout, dict):
        layout = [{name: what} for name, what in layout.items()]
    if not isinstance(layout, list | tuple) or not layout:
        raise _wrong(label, layout)
    return MigWish(gpu=gpu, enabled=True, instances=tuple(_instances(item, label) for item in layout))


def _instances(item: Any, label: str) -> MigInstances:
    """Read one item of a list: a profile, or {profile: how many, or its compute instances}."""
    if isinstance(item, str):
        item = {item: 1}
    if not isinstance(item, dict) or len(item) != 1:
        raise _wrong(label, item)
    ((profile, what),) = item.items()
    if not isinstance(profile, str) or not judge.mig.PROFILE.fullmatch(profile):
        raise _wrong(label, profile, "name a profile as nvidia-smi mig -lgip does: 1g.18gb, 3g.71gb, 1g.18gb+me")
    if isinstance(what, int) and not isinstance(what, bool):
        if not 1 <= what <= 14:
            raise _wrong(label, what, f"say how many {profile}: 1 or more")
        return MigInstances(profile=profile, count=what)
    if not isinstance(what, list | tuple) or not what or not all(isinstance(name, str) for name in what):
        raise _wrong(label, what, f"say how many {profile}, or list its compute instances: {{{profile}: [1c, 2c]}}")
    names = []
    for name in what:
        whole = judge.mig.compute_name(profile, name)
        if whole is None:
            raise _wrong(label, name, f"{profile} has no compute instance {name}; write 1c, 2c or {profile}")
        names.append(whole)
    if judge.mig.too_many(profile, names):
        raise _wrong(label, " ".join(what), f"{profile} has {profile[0]} compute slices in all")
    return MigInstances(profile=profile, compute=() if names == [profile] else tuple(names))


_wrong = refusing("GS-370", "is not a MIG layout", f"for example {_FORM}")


_AMPERE = "8.0"
"""Only GPUs of this compute capability need a reset to switch MIG on or off."""


def _layouts(
    facts: HostFacts, settings: Settings, stack: Stack, matrix: Matrix
) -> tuple[tuple[MigLayout, ...], tuple[str, ...]]:
    """Return the layout of each GPU and warnings; raise for a layout that a GPU cannot have."""
    if not settings.mig:
        return (), ()
    if facts.vgpu_guest:
        raise PreflightError(
            "GS-371", "gpusetup_mig: this host has vGPUs, whose MIG layout belongs to the vGPU host",
            hint="unset gpusetup_mig here, and lay out the GPU on that host",
        )  # fmt: skip
    wishes = {wish.gpu: wish for wish in settings.mig}
    _refuse_strangers(facts.gpus, wishes)
    layouts: list[MigLayout] = []
    notes: list[str] = []
    for number, gpu in enumerate(facts.gpus):
        wish = wishes.get(gpu.uuid or "") or wishes.get(str(number)) or wishes.get("all")
        if wish is None:
            continue
        product = next((row for row in matrix.mig.products if gpu.pci_id in row.ids), None)
        if not _capable(gpu, product, matrix):
            if wish.gpu == "all" and any(_capable(other, None, matrix) for other in facts.gpus):
                continue
            raise PreflightError(
                "GS-371", f"gpusetup_mig: GPU {number} ({gpu.name or gpu.pci_id}) has no MIG",
                hint="name only the GPUs that have it, or unset gpusetup_mig",
            )  # fmt: skip
        _refuse_old_driver(number, gpu, stack, matrix)
        layout = _layout(number, gpu, wish, product)
        layouts.append(layout)
        notes += _unproven(number, gpu, layout, product)
    return tuple(layouts), tuple(dict.fromkeys(notes))


def _refuse_strangers(gpus: Sequence[Gpu], wishes: dict[str, MigWish]) -> None:
    known = {"all", *(str(number) for number in range(len(gpus))), *(gpu.uuid or "" for gpu in gpus)}
    strangers = [name for name in wishes if name not in known]
    if strangers:
        blind = all(gpu.uuid is None for gpu in gpus)
        raise PreflightError(
            "GS-371", f"gpusetup_mig names {', '.join(strangers)}, and this host has no such GPU",
            note="UUIDs are known only once the driver runs" if blind else "",
            hint=f"it has {len(gpus)}: number them from 0, or write all",
        )  # fmt: skip


def _capable(gpu: Gpu, product: MigProduct | None, matrix: Matrix) -> bool:
    return product is not None or gpu.mig is not None or _first_driver(gpu, matrix) is not None


def _first_driver(gpu: Gpu, matrix: Matrix) -> str | None:
    """Return the first driver with MIG on this product; None if it has no MIG or the matrix does not know."""
    found = [row.mig_min_driver for row in gpu_by_id(matrix, gpu.pci_id, gpu.subsystem) if row.mig_min_driver]
    return min(found, key=nv, default=None)


def _refuse_old_driver(number: int, gpu: Gpu, stack: Stack, matrix: Matrix) -> None:
    first = _first_driver(gpu, matrix)
    if stack.driver is not None and first and nv(stack.driver.version) < nv(first):
        raise PreflightError(
            "GS-373", f"gpusetup_mig: MIG on GPU {number} ({gpu.name}) needs driver {first}, and the stack has "
            f"{stack.driver.version}",
            hint=f"ask for it: gpusetup_driver='>={first}'",
        )  # fmt: skip


def _profiles(gpu: Gpu, product: MigProduct | None) -> list[dict[str, Any]]:
    """Return a GPU's MIG profiles: those it reports, else those of its product in the matrix."""
    own = gpu.slices.profiles if gpu.slices is not None else ()
    found: list[dict[str, Any]] = msgspec.to_builtins(own or (product.profiles if product is not None else ()))
    return found


def _layout(number: int, gpu: Gpu, wish: MigWish, product: MigProduct | None) -> MigLayout:
    instances = wish.instances
    if wish.layout == "balanced":
        if product is None or not product.balanced:
            raise PreflightError(
                "GS-374",
                f"gpusetup_mig: there is no known all-balanced layout of GPU {number} ({gpu.name or gpu.pci_id})",
                hint="name the profiles, which `nvidia-smi mig -lgip` lists: {" + f'"{number}": ["…", "…"]' + "}",
            )
        instances = tuple(MigInstances(profile=name, count=count) for name, count in product.balanced.items())
    layout = MigLayout(gpu=gpu.address, enabled=wish.enabled, instances=instances)
    profiles = _profiles(gpu, product)
    if not profiles:
        return layout
    asked = judge.mig.asked(_plain(layout), profiles)
    told = asked or {"enabled": True, "instances": [{"profile": item.profile, "compute": []} for item in instances]}
    why = judge.mig.refusal(told, profiles)
    own = gpu.slices is not None and bool(gpu.slices.profiles)
    if why is not None and (own or (product is not None and product.confidence == "vendor")):
        raise PreflightError(
            "GS-374", f"gpusetup_mig: GPU {number} ({gpu.name or gpu.pci_id}) does not allow this layout: {why[0]}",
            note="according to its own table of profiles" if own else "according to NVIDIA's table of its product",
            hint=why[1],
        )  # fmt: skip
    totals = {row["name"]: row["total"] for row in profiles}
    counted = tuple(
        msgspec.structs.replace(item, count=item.count or totals.get(item.profile, 0)) for item in instances
    )
    return msgspec.structs.replace(layout, instances=counted)


def _unproven(number: int, gpu: Gpu, layout: MigLayout, product: MigProduct | None) -> Iterator[str]:
    if layout.instances and not (gpu.slices is not None and gpu.slices.profiles):
        if product is None:
            yield f"the matrix has no MIG profiles of GPU {number} ({gpu.name or gpu.pci_id}): the GPU itself decides"
        elif product.confidence != "vendor":
            yield f"the MIG profiles of {product.name} are not NVIDIA's own table: the GPU itself decides"


def _plain(layout: MigLayout) -> dict[str, Any]:
    instances = [
        {"profile": item.profile, "count": item.count, "compute": list(item.compute)} for item in layout.instances
    ]
    return {"enabled": layout.enabled, "instances": instances}


UNKNOWN_BEFORE = "its layout before gpusetup is unknown: the driver did not answer then"


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield an action per GPU whose layout changes; a GPU that is no longer named gets its earlier layout back."""
    record = record_of(host.facts).mig
    layouts: tuple[MigLayout, ...] = wanted.parts.get("mig", ())
    probed = {gpu["address"]: gpu for gpu in host.probed["gpus"]}
    asked = {layout.gpu: _plain(layout) for layout in layouts}
    if gone := [address for address in asked if address not in probed]:
        raise PreflightError(
            "GS-371", f"that apply set MIG layouts of GPUs that are no longer here: {', '.join(gone)}",
            hint="run gpusetup apply, which lays out the GPUs that this host has now",
        )  # fmt: skip
    unnamed = {address: cut for address, cut in record.found.items() if address not in asked and address in probed}
    back = {address: msgspec.to_builtins(cut) for address, cut in unnamed.items() if cut is not None}
    for address in sorted(unnamed.keys() - back):
        what = f"MIG of GPU {list(probed).index(address)}: it keeps its layout until the next boot"
        yield action("mig", address, what, f"gpusetup_mig no longer names it, and {UNKNOWN_BEFORE}")
    for address, wish in sorted((back | asked).items()):
        gpu = probed[address]
        now = judge.mig.of_facts(gpu)
        layout = judge.mig.asked(wish, (gpu["slices"] or {}).get("profiles"))
        last = record.wanted.get(address)
        kept = last is not None and judge.mig.same(judge.mig.asked(msgspec.to_builtins(last), None), layout)
        if judge.mig.same(now, layout) or (now is None and kept):
            continue
        number = list(probed).index(address)
        why = f"it is {judge.mig.text_of(now)}" if now is not None else "set by gpusetup_mig"
        if address in back:
            why += "; gpusetup_mig no longer names it; this is its earlier layout"
        resets = gpu["compute_capability"] == _AMPERE and (now is None or now["enabled"] != wish["enabled"])
        if resets:
            why += "; reboots only if this GPU cannot be reset"
        what = f"MIG of GPU {number} ({gpu['name'] or address}): {judge.mig.text_of(layout or wish)}"
        yield action("mig", address, what, why, reboot=resets)


def _wants(context: Context, _manager: Manager, stack: Stack, matrix: Matrix) -> Brought:
    layouts, notes = _layouts(context.facts, context.settings, stack, matrix)
    return Brought(layouts, notes=notes)


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    layouts = wanted.parts.get("mig", ())
    if not layouts and not record_of(facts).mig.found:
        return {}
    return {"gpu_mig_layouts": layouts, "gpu_mig_gpus": tuple(gpu.address for gpu in facts.gpus)}


MIG = Component(
    name="mig", settings={"mig": _wishes}, wants=_wants, actions=_actions, variables=_variables, kept="mig", none=()
)
