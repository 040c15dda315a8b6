"""Judge whether nouveau holds the GPU now, or would take it at the next boot."""

from typing import Any, Dict, Iterable, List, NamedTuple

Facts = Dict[str, Any]


class Way(NamedTuple):
    """One way in which nouveau gets, or already has, the GPU."""

    id: str
    what: str
    now: str


def ways(facts: Facts, kernels: Iterable[str] = ()) -> List[Way]:
    """Return every open way; empty when nouveau is kept out. An unreadable initramfs does not count."""
    nouveau, found = facts["nouveau"], []
    if not nouveau["blacklisted"]:
        found.append(Way("blacklist", "nouveau", "free to load"))
    count = list(kernels) or [facts["kernel"]["next"]]
    found += [
        Way("initramfs", image["path"], "would start nouveau")
        for image in nouveau["initramfs"]
        if image["kernel"] in count and image["nouveau"] and image["blacklist"] is False
    ]
    if nouveau["loaded"]:
        found.append(Way("loaded", "nouveau", "loaded: it holds the GPU"))
    return found
