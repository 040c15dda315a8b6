"""A run reads its inventory once: the first Ansible process hands what it read to those that come after it.

It is handed on in memory that only these processes have (an anonymous file, sealed once it is whole): what an inventory
plugin learnt, passwords among it, is written to no disk, and what a vault holds stays encrypted. Whatever cannot be
handed on exactly is not handed on; then each process reads the inventory itself, as Ansible does.
"""

import fcntl
import gc
import io
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Any

from gpusetup.drive.inventory import SELECTED

_PLUGIN = "gpusetup_memory"
_PLACE = "GPUSETUP_INVENTORY"
"""The descriptor of the memory, and the inventory that it holds."""
TYPED = "GPUSETUP_TYPED"
_ENABLED, _FOLDER = "ANSIBLE_INVENTORY_ENABLED", "ANSIBLE_INVENTORY_PLUGINS"
_PLUGINS = Path(__file__).resolve().parents[1] / "inventory_plugins"
_WHOLE = getattr(fcntl, "F_SEAL_WRITE", 0)
_SEALS = _WHOLE | getattr(fcntl, "F_SEAL_GROW", 0) | getattr(fcntl, "F_SEAL_SHRINK", 0)
_MODULES = (
    "ansible._internal._datatag.", "ansible.module_utils._internal._datatag", "ansible.parsing.yaml.objects",
    "ansible.utils.unsafe_proxy", "datetime",
)  # fmt: skip
"""Whose types may be in what is handed on, beside the plain ones: what Ansible itself makes of what it reads."""


class InventoryMemory:
    """The memory of one run."""

    def __init__(self) -> None:
        self._memory: IO[bytes] | None = None
        self.unread: set[str] = set()
        """Its parts that Ansible cannot read, as far as they were reported."""
        self.typed = False
        """All variables of our roles are ours, as the first look has shown: their types are known, no role checks."""

    def to_processes(self, inventory: str | None, passthrough: Sequence[str]) -> tuple[dict[str, str], tuple[int, ...]]:
        """Return what tells an Ansible process where to leave its inventory or to take it from; its descriptors.

        An inventory that a person names past us (`-- -i OTHER`) is Ansible's alone.
        """
        if inventory is None or any(word.startswith(("-i", "--i")) for word in passthrough):
            return {}, ()
        if self._memory is None:
            if not (hasattr(os, "memfd_create") and _WHOLE):
                return {}, ()
            self._memory = os.fdopen(os.memfd_create("inventory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
        descriptor = self._memory.fileno()
        told = {_PLACE: f"{descriptor}:{inventory}"}
        if _is_whole(descriptor) and os.fstat(descriptor).st_size:
            # Of our own inventories, the overlays, the plugin for YAML reads all.
            told[_ENABLED], told[_FOLDER] = f"{_PLUGIN},ansible.builtin.yaml", str(_PLUGINS)
        return told, (descriptor,)


# --- inside Ansible ---------------------------------------------------------------------------------------------------


def hand_over(inventory: Any, environment: Mapping[str, str]) -> str:
    """Leave what the inventory plugins read for the processes to come; return why it cannot be, where it cannot."""
    place = environment.get(_PLACE)
    descriptor = int(place.partition(":")[0]) if place else -1
    if descriptor < 0 or _is_whole(descriptor):
        return ""
    why, whole = "", b""
    try:
        whole = _written(inventory, f"{Path(environment['GPUSETUP_EVENTS']).parent}/")
        _Reader(whole, None).load()
    except Exception as error:  # noqa: BLE001 - whatever it is, Ansible reads the inventory itself
        why, whole = f"{type(error).__name__}: {error}", b""
    os.ftruncate(descriptor, 0)
    for start in range(0, len(whole), 1 << 20):
        os.pwrite(descriptor, whole[start : start + (1 << 20)], start)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return why


def takes(name: str, environment: Mapping[str, str]) -> bool:
    """Tell whether this variable of an environment is there to take what was handed over."""
    return name in (_ENABLED, _FOLDER) and environment.get(_ENABLED, "").startswith(f"{_PLUGIN},")


def take_from_plugin(environment: Mapping[str, str]) -> None:
    """Have Ansible, which read its settings before, ask the plugin that takes over; if there is something to take."""
    if takes(_ENABLED, environment):
        from ansible import constants
        from ansible.plugins.loader import inventory_loader

        constants.INVENTORY_ENABLED = environment[_ENABLED].split(",")
        inventory_loader.add_directory(environment[_FOLDER])


def is_source(path: str, environment: Mapping[str, str]) -> bool:
    """Tell whether an inventory's path is the one that was handed over, or lies in it."""
    inventory = environment.get(_PLACE, "").partition(":")[2]
    if "," in inventory:
        return path == inventory
    whole = os.path.abspath(inventory)  # noqa: PTH100 - as Ansible names it: links stay links
    return bool(inventory) and (path == whole or path.startswith(f"{whole}/"))


def take_over(inventory: Any, loader: Any, environment: Mapping[str, str]) -> None:
    """Put what was handed over into Ansible's empty inventory, as if its plugins had read it now."""
    from ansible.inventory.group import Group
    from ansible.inventory.host import Host

    data = getattr(inventory, "__wrapped__", inventory)  # since ansible-core 2.19 plugins get a wrapper
    if data.hosts or set(data.groups) - {"all", "ungrouped"}:
        return  # a folder's second file
    descriptor = int(environment[_PLACE].partition(":")[0])
    with _no_cleaning():
        hosts, groups, local = _Reader(os.pread(descriptor, os.fstat(descriptor).st_size, 0), loader).load()
    data.hosts = {name: Host(name) for name, *_ in hosts}
    data.groups = {name: Group(name) for name, *_ in groups}
    for name, address, implicit, variables, of in hosts:
        host = data.hosts[name]
        host.address, host.implicit, host.vars = address, implicit, variables
        host.groups = [data.groups[group] for group in of]
    for name, depth, priority, variables, parents, children, members in groups:
        group = data.groups[name]
        group.depth, group.priority, group.vars = depth, priority, variables
        group.parent_groups = [data.groups[other] for other in parents]
        group.child_groups = [data.groups[other] for other in children]
        group.hosts = [data.hosts[member] for member in members]
    data.localhost = data.hosts.get(local)


def _written(data: Any, run: str) -> bytes:
    """Return hosts and groups without those that the run's own overlay brought: the next process has another one."""
    own = data.groups.get(SELECTED)
    hosts = []
    ungrouped = []
    for host in data.hosts.values():
        if own in host.groups and str(host.vars.get("inventory_file")).startswith(run):
            continue
        of = [group.name for group in host.groups if group is not own]
        if of in (["all"], ["all", "ungrouped"]):  # to be selected was to be in a group
            of = ["all", "ungrouped"]
            ungrouped.append(host.name)
        hosts.append((host.name, host.address, host.implicit, host.vars, of))
    names = {name for name, *_ in hosts}
    groups = [
        (
            group.name, group.depth, group.priority, group.vars,
            [other.name for other in group.parent_groups],
            [other.name for other in group.child_groups if other is not own],
            ungrouped
            if own and group.name == "ungrouped"
            else [host.name for host in group.hosts if host.name in names],
        )
        for group in data.groups.values()
        if group is not own
    ]  # fmt: skip
    local = data.localhost.name if data.localhost is not None else None
    out = io.BytesIO()
    with _no_cleaning():
        _Writer(out, pickle.HIGHEST_PROTOCOL).dump((hosts, groups, local))
    return out.getvalue()


class _Writer(pickle.Pickler):
    """Leaves encrypted what is encrypted, and the vault's passwords where they are."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ in {"EncryptedString", "AnsibleVaultEncryptedUnicode"}:
            return _encrypted, (obj._ciphertext,)  # noqa: SLF001 - Ansible has no other way to it in all its versions
        if isinstance(obj, datetime) and not isinstance(obj.tzinfo, (timezone, type(None))):
            return _with_offset(obj)
        return NotImplemented


def _with_offset(moment: datetime) -> Any:
    """Return how a moment is made again, with its offset in place of a zone of somebody's library (AWS's has such)."""
    zone = timezone(moment.utcoffset() or timedelta(), moment.tzname() or "")

    def exchanged(part: Any) -> Any:
        if type(part) is tuple:
            return tuple(map(exchanged, part))
        return zone if part is moment.tzinfo else part

    return exchanged(moment.__reduce_ex__(pickle.HIGHEST_PROTOCOL))


class _Reader(pickle.Unpickler):
    """Makes plain values and Ansible's own; nothing else, whoever wrote it."""

    def __init__(self, data: bytes, loader: Any) -> None:
        super().__init__(io.BytesIO(data))
        self.loader = loader

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _encrypted.__name__):
            return self._encrypted
        if not module.startswith(_MODULES):
            raise pickle.UnpicklingError(f"{module}.{name} is not a type that can be passed on")
        return super().find_class(module, name)

    def _encrypted(self, ciphertext: Any) -> Any:
        value = _encrypted(ciphertext)
        if hasattr(value, "vault"):  # before ansible-core 2.19 each value knows who decrypts it
            value.vault = getattr(self.loader, "_vault", None)
        return value


def _encrypted(ciphertext: Any) -> Any:
    """Return a value of a vault, still encrypted."""
    from ansible.parsing import vault

    with suppress(AttributeError):
        return vault.EncryptedString(ciphertext=ciphertext)
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode

    return AnsibleVaultEncryptedUnicode(ciphertext)


def _is_whole(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _WHOLE)


@contextmanager
def _no_cleaning() -> Iterator[None]:
    """Make many values at once: looking for circles among them meanwhile would take half of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
