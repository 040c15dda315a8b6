"""The size of a Python environment: its download, and its disk space."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpusetup.components import judge
from gpusetup.components.base import Wanted
from gpusetup.model.plan import Action
from gpusetup.model.tables import Size, WheelsFile

_BESIDE = 10
"""Per cent added to the size of the files, for folders and files that pip writes; measured with CuPy: 5."""


class DiskSpace(NamedTuple):
    """Sizes in bytes; pins without a measurement are listed in `unknown` and not guessed."""

    download: int = 0
    installed: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Bytes while it is made: pip keeps the downloads inside the environment until all are unpacked."""
        return self.download + self.installed * (100 + _BESIDE) // 100 if self.installed else 0


def disk_space_of(requirements: Iterable[str], arch: str, measured: WheelsFile) -> DiskSpace:
    """Return the size of what these requirement lines install; shared dependencies count once."""
    closures = {item.pin: item.wheels for item in measured.closures if item.arch == arch}
    sizes = next((found for cpu, found in measured.sizes.items() if cpu == arch), {})
    counted: dict[str, Size] = {}
    unknown = []
    for pin in _pins(requirements):
        wheels = closures.get(pin) or ((_plain(pin),) if _plain(pin) in sizes else ())
        if not wheels:
            unknown.append(pin)
        for wheel in wheels:
            name, size = wheel.partition("==")[0], sizes[wheel]
            counted[name] = max(size, counted.get(name, size))
    return DiskSpace(
        download=sum(size.download for size in counted.values()),
        installed=sum(size.installed for size in counted.values()),
        unknown=tuple(unknown),
    )


def environment_sizes(wanted: Wanted, todo: Iterable[Action], arch: str, measured: WheelsFile) -> dict[str, DiskSpace]:
    """Return path → size of each environment that these actions make."""
    made = {action.id for action in todo if action.kind == "python"}
    lines = {wanted.settings.python_path: wanted.requirements} if "python-packages" in made else {}
    for item in wanted.parts.get("python", ()):
        if f"python-environment-{item.name}" in made:
            lines[item.path] = item.requirements
    return {path: disk_space_of(those, arch, measured) for path, those in lines.items()}


def unmeasured(size: DiskSpace) -> tuple[str, ...]:
    """Return a warning that names the pins without a measurement."""
    if not size.unknown:
        return ()
    names = ", ".join(size.unknown)
    return (f"the size of {names} is not known: the disk may be too small for the Python environment",)


def total(sizes: Iterable[DiskSpace]) -> DiskSpace:
    """Return the sum of several environments."""
    every = tuple(sizes)
    return DiskSpace(
        download=sum(size.download for size in every),
        installed=sum(size.installed for size in every),
        unknown=tuple(dict.fromkeys(name for size in every for name in size.unknown)),
    )


def _pins(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the pins without their hashes; options and limit lines install nothing."""
    for line in requirements:
        pin = line.partition(" ")[0]
        if not line.startswith("-") and "==" in pin:
            yield pin


def _plain(pin: str) -> str:
    name, _, version = pin.partition("==")
    return f"{judge.versions.python_name(name)}=={version}"
