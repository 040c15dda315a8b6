"""Would the kernel's own driver for NVIDIA GPUs come first, now or at the next boot?"""

from typing import Any, Dict, Iterable, List, NamedTuple

Facts = Dict[str, Any]


class Way(NamedTuple):
    """One way by which nouveau gets, or has got, the GPU."""

    id: str
    what: str
    now: str


def ways(facts: Facts, kernels: Iterable[str] = ()) -> List[Way]:
    """Return every open way, none when nouveau is kept out. An initramfs that could not be read is not held against
    it.
    """
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
