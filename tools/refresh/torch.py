"""Compare the index's torch, torchvision and torchaudio with torch.json.

This writes nothing. A row of torch also lists the GPUs that each build has code for, and most builds are on PyTorch's
own index: a person writes it, from this report and from the wheels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from tools.refresh import reading
from tools.refresh.asking import Fault
from tools.refresh.rows import pythons_of
from tools.refresh.wheels import by_version

if TYPE_CHECKING:
    from tools.refresh.index import Index

COMPANIONS = ("torchvision", "torchaudio")


def torch_differences(stored: dict[str, Any], index: Index) -> tuple[list[str], list[str]]:
    """Return a line per difference, and the files that could not be read."""
    lines, faults = list[str](), list[str]()
    known = {Version(item["version"]): item for item in stored["releases"]}
    relevant = {name for item in stored["releases"] for name in item["pins"]} | {"torch"}
    there = by_version(index, "torch")
    newest = max(known)
    if max(there) < newest:
        raise Fault(f"the index knows torch up to {max(there)} only, and {newest} was seen before")
    for version in sorted(there, reverse=True):
        if version.is_prerelease or (version not in known and version < newest):
            continue
        try:
            row = reading.read(index, there[version], relevant)
        except Fault as error:
            faults.append(f"{version}: {error}")
            continue
        now = {
            "date": row["date"],
            "pythons": pythons_of(row).get("x86_64", []),
            "glibc": row.get("wheels", {}).get("glibc_tag", {}).get("x86_64", ""),
            "pins": {name: text.removeprefix("==") for name, text in row["requires"].items()},
        }
        if version in known:
            lines += _changed(known[version], now, yanked=row.get("yanked", False))
        else:
            said = "; ".join(f"{name} {text}" for name, text in now["pins"].items())
            lines.append(f"+ {version}: {now['date']}; Python {_told(now['pythons'])}; glibc {now['glibc']}; {said}")
    lines += [f"? {version}: not on this index any more" for version in known if version not in there]
    for name in COMPANIONS:
        lines += _companions(name, known, index, faults)
    return lines, faults


def _changed(row: dict[str, Any], now: dict[str, Any], *, yanked: bool) -> list[str]:
    lines = [
        f"~ {row['version']}: {field}: {_told(row[field])} → {_told(now[field])}"
        for field in ("date", "pythons", "glibc")
        if now[field] and row[field] != now[field]
    ]
    pins = {name: text.rpartition("]")[2].removeprefix("==") for name, text in row["pins"].items()}
    for name in sorted({*pins, *now["pins"]}):
        before, after = pins.get(name), now["pins"].get(name)
        if before != after:
            lines.append(f"~ {row['version']}: pins {name}: {before or 'none'} → {after or 'none'}")
    return lines + ([f"~ {row['version']}: withdrawn by its publisher"] if yanked else [])


def _told(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _companions(name: str, known: dict[Version, dict[str, Any]], index: Index, faults: list[str]) -> list[str]:
    """Return the releases whose pinned torch differs from the one in our row."""
    pinned: dict[str, list[Version]] = {}
    for version, files in by_version(index, name).items():
        if version.is_prerelease or all(file.yanked for file in files):
            continue
        try:
            asked = reading.read(index, files, ("torch",))["requires"].get("torch", "")
        except Fault as error:
            faults.append(f"{name} {version}: {error}")
            continue
        if asked.startswith("=="):
            pinned.setdefault(asked.removeprefix("=="), []).append(version)
    return [
        f"~ {row['version']}: {name}: {row['companions'].get(name, 'none')} → {max(pinned[row['version']])}"
        for row in known.values()
        if row["version"] in pinned and row["companions"].get(name) not in map(str, pinned[row["version"]])
    ]
