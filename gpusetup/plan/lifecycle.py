"""After an apply: drift from it, the choice of an apply to roll back to, the plan of a removal."""

import operator
from typing import Any

import msgspec
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.judge import gpudirect, versions
from gpusetup.components.mig import UNKNOWN_BEFORE
from gpusetup.components.registry import COMPONENTS
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.model.applied import NO_LOCK
from gpusetup.model.facts import HostFacts
from gpusetup.model.lifecycle import Difference, Past, Removal
from gpusetup.model.package import PackageSet


def differences(facts: HostFacts) -> tuple[Difference, ...]:
    """Return everything that differs from what the last apply left."""
    host = judge.judged(facts)
    found = judge.drift.differences(host.probed, host.record)
    return tuple(msgspec.convert(item._asdict(), Difference) for item in found)


def is_verified(past: Past) -> bool:
    """Return whether the verification passed; with a simulated GPU a skipped one counts."""
    return past.verified is not None and past.verified.passed


def choose(history: tuple[Past, ...], current: str, wanted: str = "") -> Past:
    """Return the apply to roll back to: the one asked for, else the latest verified one that differs from now.

    If the current apply failed or did not verify, that is the latest verified one.
    """
    if wanted:
        return _named(history, wanted)
    now = next((past for past in history if past.id == current), None)
    stands = now if now is not None and is_verified(now) else None
    for past in reversed(history):
        if is_verified(past) and past.lock != NO_LOCK and not (stands is not None and _same(past, stands)):
            return past
    raise PreflightError(
        "GS-802", "no earlier verified state", note=f"on record: {', '.join(past.id for past in history) or 'none'}"
    )


def _named(history: tuple[Past, ...], wanted: str) -> Past:
    found = [past for past in history if past.id == wanted] or [past for past in history if past.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    raise BadInputError(
        "GS-803",
        f"{len(found)} applies on record begin with {wanted}" if found else f"no apply {wanted} on record",
        path="--to",
        note=f"on record: {', '.join(past.id for past in history) or 'none'}",
    )


def _same(left: Past, right: Past) -> bool:
    """Return whether two applies left the same state."""
    if left.lock.stack != right.lock.stack or left.packages != right.packages:
        return False
    one, other = left.lock.wanted, right.lock.wanted
    if one is None or other is None:
        return one is other
    return all(_same_part(name, getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)


def _same_part(name: str, one: Any, other: Any) -> bool:
    if name == "packages":
        return _wish(one) == _wish(other)
    alike = next((component.alike for component in COMPONENTS if component.kept == name), operator.eq)
    return bool(alike(one or None, other or None))


def _wish(packages: PackageSet | None) -> PackageSet | None:
    """Return a package set without the fields that depend on the packages installed before it."""
    return packages and replace(packages, prerequisites=(), remove=(), may_remove=(), enable=(), replace=())


def removal_of(facts: HostFacts) -> Removal | None:
    """Return everything that a removal undoes, from the record; None for a host without one."""
    state = facts.state
    if state is None:
        return None
    installed = facts.packages.installed
    back = state.taken | {name: old for name, old in state.moved.items() if name in installed}
    brought = {there for item in state.brought.items() for there in versions.places(installed, *item)}
    deleted = tuple(sorted(path for path, entry in state.files.items() if entry.original is None))
    python = state.expect.python.path or "" if state.expect.python and not state.expect.python.adopted else ""
    # Of an apply that did not finish, or from before another gpusetup_python_path, only `environments` knows.
    environments = {*(item.path for item in state.expect.environments if item.path), *state.environments} - {python}
    return Removal(
        packages=tuple(sorted(brought)),
        restored=tuple(f"{name}={back[name]}" for name in sorted(back)),
        files_deleted=deleted,
        files_restored=tuple(sorted(path for path in state.files if path not in deleted)),
        links=tuple(sorted(state.links)),
        holds=state.holds,
        services=tuple(sorted(state.services)),
        arguments=state.arguments,
        runfile=state.runfile.version,
        alternatives=tuple(sorted(state.alternatives)),
        streams=tuple(sorted(state.streams)),
        mig=tuple(sorted(address for address, before in state.mig.found.items() if before is not None)),
        initramfs=any("nouveau" in path or path == gpudirect.OPTIONS for path in state.files),
        python=python,
        environments=tuple(sorted(environments)),
        history="/var/lib/gpusetup",
    )


def unknown_layouts(facts: HostFacts) -> tuple[str, ...]:
    """Return a warning for each GPU whose MIG layout a removal cannot restore."""
    found = facts.state.mig.found if facts.state is not None else {}
    return tuple(f"the MIG layout of {gpu} stays: {UNKNOWN_BEFORE}" for gpu, cut in found.items() if cut is None)


def pending_reboot(facts: HostFacts, removal: Removal) -> str:
    """Return why a reboot is needed after a removal; "" if none is."""
    loaded = facts.driver.loaded if facts.driver is not None else None
    if loaded is not None and (removal.packages or removal.restored or removal.runfile):
        return f"nvidia {loaded.version} stays loaded until the host reboots"
    return ""
