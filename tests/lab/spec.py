"""What a lab host is to be."""

from dataclasses import dataclass, field

from tests.lab.flavours import FLAVOURS
from tests.lab.places import LabError


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """What a host is to be: the words are those of the inventory, without their `lab_` prefix."""

    name: str
    flavour: str = "debian12"
    machine: str = "none"  # the simulated machine: a name in `captures.MACHINES`
    network: str = "none"  # "mirror": reaches the Debian mirror and the Python index through the lab's proxy
    disk: str = "quick"  # "real": waits for the disk when a program asks for that, as a benchmark must
    address: str = ""
    disks: dict[str, int] = field(default_factory=dict)  # mount point → size in MiB; others share the outer disk

    def __post_init__(self) -> None:
        from tests.lab.captures import MACHINES

        more = {"network": ("none", "mirror"), "disk": ("quick", "real")}
        known = {"flavour": FLAVOURS, "machine": MACHINES, **more}
        for key, names in known.items():
            if getattr(self, key) not in names:
                unknown = f"unknown {key} {getattr(self, key)!r}; known: {', '.join(sorted(names))}"
                raise LabError(f"host {self.name}: {unknown}")
