"""Package wishes, package sets and plans, independent of the package manager."""

import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..gpu_judge import versions
from .failure import HostFailure

Wish = Dict[str, str]  # name, version, arch
Installed = Dict[str, str]  # name, or name:arch of a foreign architecture, to version
BEFORE = "packages-before.json"
"""Holds the packages before a transaction, in the state folder, until the record has counted the difference."""
Plan = Dict[str, Any]  # install, upgrade, downgrade, remove, download_bytes, disk_bytes


def merge(wishes: Iterable[Wish]) -> List[Wish]:
    """Return one wish per package, in order; fail if a package is wanted in two versions."""
    merged: Dict[Tuple[str, str], Wish] = {}
    for wish in wishes:
        name = wish["name"]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+_-]*", name):
            raise HostFailure("GS-461", f"{name!r} is not a package name")
        version = wish.get("version") or ""
        if not re.fullmatch(r"[A-Za-z0-9.+~:_^*-]*", version) or version.startswith("-"):
            raise HostFailure("GS-461", f"{version!r} is not a version of {name}")
        arch = wish.get("arch") or ""
        if arch and not re.fullmatch(r"[a-z0-9_]+", arch):
            raise HostFailure("GS-461", f"{arch!r} is not an architecture of {name}")
        known = merged.get((name, arch))
        if known and known["version"] and version and known["version"] != version:
            raise HostFailure(
                "GS-461",
                "{} is requested in two versions: {} and {}".format(name, known["version"], version),
                hint="use the same version in every role's package list",
            )
        merged[name, arch] = {"name": name, "version": version or (known or {}).get("version", ""), "arch": arch}
    return list(merged.values())


def difference(before: Installed, after: Installed) -> Dict[str, Any]:
    """Return the changes between two package sets: {"installed", "removed", "moved"}."""
    before, after = named_like(before, after), named_like(after, before)
    return {
        "installed": {name: after[name] for name in after if name not in before},
        "removed": {name: before[name] for name in before if name not in after},
        "moved": {
            name: [before[name], after[name]] for name in after if name in before and before[name] != after[name]
        },
    }


def named_like(one: Installed, other: Installed) -> Installed:
    """Rename packages of one set that the other set, with several versions of them, lists by name and version."""
    several = {name: versions.one_of_several(name, version) for name, version in one.items()}
    return {several[name] if several[name] in other else name: version for name, version in one.items()}


def is_counted(kept: Dict[str, Any], state: Dict[str, Any]) -> bool:
    """Return whether the record has already counted the changes since those packages were written down."""
    return bool(kept.get("id")) and kept.get("id") == state["counted"]


def unmet(wishes: Iterable[Wish], installed: Installed) -> List[Wish]:
    """Return the wishes that the installed set does not fulfil."""
    return [wish for wish in wishes if not versions.satisfied(installed, key(wish), wish["version"])]


def undone(wishes: Iterable[Wish], removals: Iterable[str], installed: Installed) -> List[str]:
    """Return as text which wishes and removals a package set does not fulfil."""
    words = []
    for wish in unmet(wishes, installed):
        there = versions.version_of(installed, key(wish), wish["version"])
        is_there = f"is there in {there}" if there else "is not there"
        words.append(" ".join(part for part in (key(wish), wish["version"], is_there) if part))
    return words + [f"{name} {installed[name]} is still there" for name in removals if name in installed]


def after(installed: Installed, plan: Plan) -> Installed:
    """Return the package set that a plan leads to."""
    found = dict(installed)
    for name, version in plan["remove"].items():
        found.pop(name, None)
        found.pop(versions.one_of_several(name, version), None)
    found.update(plan["install"])
    for kind in ("upgrade", "downgrade"):
        found.update({name: new for name, (_old, new) in plan[kind].items()})
    return found


def listed(name: str, version: str) -> Wish:
    """Return the wish for a package as a package set lists it."""
    bare, _colon, arch = (versions.stem(name, version) or name).partition(":")
    return {"name": bare, "arch": arch, "version": version}


def key(wish: Wish) -> str:
    """Return the name under which a package set lists the wish."""
    return wish["name"] + (":" + wish["arch"] if wish["arch"] else "")


def is_of_kernel(version: str, kernel: str) -> bool:
    """Return whether a package's version belongs to a kernel; SUSE's has one more number: 6.4.0-150600.23.47.2 is the
    kernel 6.4.0-150600.23.47-default.
    """
    return version in kernel or version.rpartition(".")[0] == kernel.rpartition("-")[0]


def nearest(offered: Iterable[str], wanted: str) -> List[str]:
    """Return the offered versions that are most like the wanted one, for a message."""

    def likeness(version: str) -> int:
        count = 0
        for ours, theirs in zip(re.sub(r"^\d+:", "", version), wanted):
            if ours != theirs:
                break
            count += 1
        return -count

    return sorted(set(offered), key=likeness)[:4]


def stub(name: str, version: str, driver_version: str) -> Optional[str]:
    """Return why a package of the wanted branch is only a transitional package to another branch, None if it is not."""
    major = driver_version.split(".", maxsplit=1)[0]
    found = versions.upstream(version).split(".")
    if not major or len(found) < 2 or not (found[0].isdigit() and int(found[0]) >= 300):
        return None
    if found[0] == major:
        return None
    return (
        f"{name} {version} belongs to branch {found[0]}, not {major}: "
        "a transitional package that would switch the host to another branch"
    )


def stubs(wishes: Iterable[Wish], params: Dict[str, Any]) -> List[str]:
    """Return why packages of the driver would switch the host to another branch."""
    named = [wish for wish in wishes if wish["name"] in params["driver_packages"]]
    reasons = (stub(wish["name"], wish["version"], params["driver_version"]) for wish in named)
    return [reason for reason in reasons if reason]


def forbidden(
    removals: Iterable[str], may_remove: Iterable[str], asked: Iterable[str], brought: Iterable[str] = ()
) -> List[str]:
    """Return the packages that a transaction would remove without permission.

    Dependencies that we installed may go with what needed them: dnf removes what nothing needs any more.
    """
    globs, ours = list(may_remove) + [name.split(":")[0] for name in asked], set(brought)
    return sorted(name for name in removals if name not in ours and not versions.matches(name, globs))
