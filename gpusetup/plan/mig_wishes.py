"""Read `gpusetup_mig`: how GPUs are to be cut, in the words that people and NVIDIA's mig-parted use."""

from __future__ import annotations

import json
import re
from typing import Any

from gpusetup.errors import BadInputError
from gpusetup.model.mig import MigInstances, MigWish
from gpusetup.plan import judge

__all__ = ["mig_wishes"]

_FORM = "{all: all-1g.18gb}, {0: [3g.71gb, 2g.35gb], 1: {1g.18gb: 7}, 2: off}"
_GPU = re.compile(r"all|\d{1,3}|GPU-[0-9a-f-]{36}")
_NAMED = re.compile(r"all-(\dg\.\d+gb)(?:([+-][a-z.]+)|\.(me|me\.all|gfx))?")
_OFF = ("off", "false", "no", "none", "disabled", "all-disabled")
_ON = ("on", "enabled", "all-enabled")
_BALANCED = "all-balanced"


def mig_wishes(value: Any, label: str) -> tuple[MigWish, ...]:
    """Return the wish for each GPU that is named."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            value = json.loads(value)
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
    if not isinstance(profile, str) or not judge.mig.is_profile(profile):
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


def _wrong(label: str, value: object, hint: str = "") -> BadInputError:
    return BadInputError(
        "GS-370", f"{label}: {str(value)!r} is no MIG layout", path=label, hint=hint or f"for example {_FORM}"
    )
