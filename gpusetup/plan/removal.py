"""What has to go, come back and be freed so that a host is as it was before the first apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.lifecycle import Removal

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts

__all__ = ["pending_reboot", "removal_of"]


def removal_of(facts: HostFacts) -> Removal | None:
    """Return what the record says is to be undone; None for a host without a record."""
    state = facts.state
    if state is None:
        return None
    installed = facts.packages.installed
    back = _part(state, "taken") | {name: old for name, old in _part(state, "moved").items() if name in installed}
    files = {path: entry for path, entry in _part(state, "files").items() if isinstance(entry, dict)}
    python = _part(_part(state, "expect"), "python")
    deleted = tuple(sorted(path for path, entry in files.items() if entry.get("original") is None))
    return Removal(
        packages=tuple(sorted(name for name in _part(state, "brought") if name in installed)),
        restored=tuple(f"{name}={back[name]}" for name in sorted(back)),
        files_deleted=deleted,
        files_restored=tuple(sorted(path for path in files if path not in deleted)),
        links=tuple(sorted(_part(state, "links"))),
        holds=tuple(state.get("holds") or ()),
        services=tuple(sorted(_part(state, "services"))),
        arguments=tuple(state.get("arguments") or ()),
        initramfs=any("nouveau" in path for path in files),
        python="" if python.get("adopted") else str(python.get("path") or ""),
        history="/var/lib/gpusetup",
    )


def pending_reboot(facts: HostFacts, removal: Removal) -> str:
    """Say why the host still runs something that is no longer on its disk."""
    loaded = facts.driver.loaded if facts.driver is not None else None
    if loaded is not None and (removal.packages or removal.restored):
        return f"nvidia {loaded.version} stays loaded until the host reboots"
    return ""


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
