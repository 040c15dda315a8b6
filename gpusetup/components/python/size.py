"""What a Python environment weighs: its download, and the room that it takes where it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpusetup.components import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.components.base import Wanted
    from gpusetup.model.plan import Action
    from gpusetup.model.tables import Size, WheelsFile

_BESIDE = 10
"""Per cent beside the files themselves, for folders and what pip writes: CuPy took 5 when it was installed."""


class DiskSpace(NamedTuple):
    """Bytes; what nobody measured is named, and nothing is guessed in its place."""

    download: int = 0
    installed: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Bytes while it is made: pip keeps what it downloaded, inside the new environment, until all is unpacked."""
        return self.download + self.installed * (100 + _BESIDE) // 100 if self.installed else 0


def disk_space_of(requirements: Iterable[str], arch: str, measured: WheelsFile) -> DiskSpace:
    """Return what these lines of a requirements file bring; what comes with two of them is counted once."""
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
    """Return the size that each environment takes that is to be made, by its path."""
    made = {action.id for action in todo if action.kind == "python"}
    lines = {wanted.settings.python_path: wanted.requirements} if "python-packages" in made else {}
    for item in wanted.parts.get("python", ()):
        if f"python-environment-{item.name}" in made:
            lines[item.path] = item.requirements
    return {path: disk_space_of(those, arch, measured) for path, those in lines.items()}


def unmeasured(size: DiskSpace) -> tuple[str, ...]:
    """Say whose size nobody has measured."""
    if not size.unknown:
        return ()
    names = ", ".join(size.unknown)
    return (f"the size of {names} is not known: the disk may be too small for the Python environment",)


def total(sizes: Iterable[DiskSpace]) -> DiskSpace:
    """Return what several environments bring, one beside the other."""
    every = tuple(sizes)
    return DiskSpace(
        download=sum(size.download for size in every),
        installed=sum(size.installed for size in every),
        unknown=tuple(dict.fromkeys(name for size in every for name in size.unknown)),
    )


def _pins(requirements: Iterable[str]) -> Iterator[str]:
    """Yield what is pinned, without its hashes; a line that only limits what comes with a pin brings nothing itself."""
    for line in requirements:
        pin = line.partition(" ")[0]
        if not line.startswith("-") and "==" in pin:
            yield pin


def _plain(pin: str) -> str:
    name, _, version = pin.partition("==")
    return f"{judge.names.python_name(name)}=={version}"
