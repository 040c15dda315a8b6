"""Compare wanted MIG layouts with what a GPU has, and find where instances fit.

An instance is {"profile", "start", "compute"}; a layout {"enabled", "instances"}; a profile, from a GPU or the matrix,
{"name", "total", "starts", "size"}: the maximum count, the slices at which one may start, how many slices it takes.
"""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

Instance = Dict[str, Any]
Layout = Dict[str, Any]
Profile = Dict[str, Any]
Placed = List[Tuple[str, int]]

PROFILE = re.compile(r"^(\d)g\.\d+gb([+-][a-z.]+)?$")
_COMPUTE = re.compile(r"^(\d)c(\..+)?$")


def compute_name(profile: str, wish: str) -> Optional[str]:
    """Return the full name of a compute instance (`1c` in `3g.20gb` is `1c.3g.20gb`), None when it is invalid."""
    match, outer = _COMPUTE.fullmatch(wish), PROFILE.fullmatch(profile)
    if wish == profile:
        return profile
    if not match or not outer or match.group(2) not in (None, "." + profile):
        return None
    slices = int(match.group(1))
    if not 1 <= slices <= int(outer.group(1)):
        return None
    return profile if slices == int(outer.group(1)) else f"{slices}c.{profile}"


def slices(profile: str, compute: str) -> int:
    """Return how many compute slices a compute instance takes."""
    match = _COMPUTE.fullmatch(compute) or PROFILE.fullmatch(profile)
    return int(match.group(1)) if match else 0


def too_many(profile: str, compute: Sequence[str]) -> bool:
    """Return whether compute instances need more slices than their GPU instance has."""
    outer = PROFILE.fullmatch(profile)
    return outer is not None and sum(slices(profile, item) for item in compute) > int(outer.group(1))


def text_of(layout: Optional[Layout]) -> str:
    """Return a short description of a layout: `7 x 1g.18gb`, `off`."""
    if layout is None:
        return "unknown"
    if not layout["enabled"]:
        return "off"
    names = [_name(item) for item in layout["instances"]]
    counted = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted) or "on, without instances"


def _name(instance: Instance) -> str:
    compute = list(instance["compute"])
    if compute == [instance["profile"]]:
        return str(instance["profile"])
    return "{} ({})".format(instance["profile"], " + ".join(compute) or "without compute instances")


def of_facts(gpu: Dict[str, Any]) -> Optional[Layout]:
    """Return the layout of a GPU from the facts; None when unknown."""
    slices = gpu.get("slices")
    if gpu.get("mig") is None or slices is None or slices["instances"] is None:
        return None
    return {"enabled": gpu["mig"] == "Enabled", "instances": slices["instances"]}


def same(left: Optional[Layout], right: Optional[Layout]) -> bool:
    """Return whether two layouts are equal, ignoring where instances start: users do not notice that."""
    if left is None or right is None or left["enabled"] != right["enabled"]:
        return False
    return not left["enabled"] or _bare(left) == _bare(right)


def _bare(layout: Layout) -> List[Tuple[str, List[str]]]:
    return sorted((item["profile"], sorted(item["compute"])) for item in layout["instances"])


def asked(wish: Layout, profiles: Optional[Sequence[Profile]]) -> Optional[Layout]:
    """Return a wish with counts expanded to single instances; 0 means as many as `profiles` allow.

    None when that maximum is unknown.
    """
    found: List[Instance] = []
    totals = {item["name"]: item["total"] for item in profiles or ()}
    for item in wish["instances"]:
        name = item["profile"]
        count = item.get("count", 1) or totals.get(name)
        if count is None:
            return None
        compute = list(item["compute"]) or [name]
        found += [{"profile": name, "compute": compute} for _number in range(count)]
    return {"enabled": wish["enabled"], "instances": found}


def unknown(layout: Layout, profiles: Sequence[Profile]) -> List[str]:
    """Return the profiles of a layout that a GPU does not have."""
    names = {item["name"] for item in profiles}
    return sorted({item["profile"] for item in layout["instances"]} - names)


def place(names: Sequence[str], profiles: Sequence[Profile]) -> Optional[Placed]:
    """Return a start slice for each instance, the largest first; None when they do not fit together."""
    known = {item["name"]: item for item in profiles}
    if any(name not in known or list(names).count(name) > known[name]["total"] for name in names):
        return None
    single = [name for name in names if name.endswith(("+me", "+me.all"))]
    if len(single) > 1:  # a GPU's media engines belong to one instance
        return None
    order = sorted(names, key=lambda name: (-known[name]["size"], -_slices_of(name), name))
    compute = max((_slices_of(item["name"]) for item in profiles), default=0)
    if sum(_slices_of(name) for name in names) > compute:
        return None
    return _place(order, known, frozenset())


def _slices_of(name: str) -> int:
    match = PROFILE.fullmatch(name)
    return int(match.group(1)) if match else 0


def _place(names: Sequence[str], known: Dict[str, Profile], taken: "frozenset[int]") -> Optional[Placed]:
    if not names:
        return []
    first, profile = names[0], known[names[0]]
    for start in profile["starts"]:
        place_of = frozenset(range(start, start + profile["size"]))
        if place_of & taken:
            continue
        rest = _place(names[1:], known, taken | place_of)
        if rest is not None:
            return [(first, start), *rest]
    return None


def fitting(names: Sequence[str], profiles: Sequence[Profile]) -> Tuple[List[str], List[str]]:
    """Return the instances that fit, tried in order, and the profiles of which one more fits beside them."""
    kept: List[str] = []
    for name in names:
        if place([*kept, name], profiles) is not None:
            kept.append(name)
    beside = [item["name"] for item in profiles if place([*kept, item["name"]], profiles) is not None]
    return kept, beside


def placed(layout: Layout, profiles: Sequence[Profile]) -> Optional[Layout]:
    """Return a layout with a start slice for each instance, sorted by it; None when they do not fit."""
    found = place([item["profile"] for item in layout["instances"]], profiles)
    if found is None:
        return None
    left = list(layout["instances"])
    instances = []
    for name, start in found:
        item = next(item for item in left if item["profile"] == name)
        left.remove(item)
        instances.append({"profile": name, "start": start, "compute": list(item["compute"])})
    return {"enabled": layout["enabled"], "instances": sorted(instances, key=lambda item: item["start"])}


def refusal(layout: Layout, profiles: Sequence[Profile]) -> Optional[Tuple[str, str]]:
    """Return (why a GPU cannot have a layout, what would fit); None when it can."""
    names = [item["profile"] for item in layout["instances"]]
    strangers = unknown(layout, profiles)
    offered = ", ".join("{} (up to {})".format(item["name"], item["total"]) for item in profiles)
    if strangers:
        return "it has no profile {}".format(", ".join(strangers)), "it has " + offered
    for item in layout["instances"]:
        if too_many(item["profile"], item["compute"]):
            what = "{} has fewer compute slices than {}".format(item["profile"], " + ".join(item["compute"]))
            return what, "ask for fewer, or smaller ones"
    if place(names, profiles) is not None:
        return None
    kept, beside = fitting(names, profiles)
    what = "{} do not fit on one GPU".format(text_of({"enabled": True, "instances": _plain(names)}))
    fits = text_of({"enabled": True, "instances": _plain(kept)})
    return what, "what fits: " + fits + (", and beside it one of " + ", ".join(beside) if beside else "")


def _plain(names: Sequence[str]) -> List[Instance]:
    return [{"profile": name, "compute": [name]} for name in names]
