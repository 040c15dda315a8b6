"""From wishes to a checked plan: what must be there in which exact version, and what the package manager would do."""

import contextlib
import os
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple, Union

from ..gpu_judge import drift, versions
from . import packages, sources
from .apt import Apt
from .dnf import Dnf
from .failure import HostFailure
from .packages import Installed, Plan, Wish
from .zypper import Zypper

Manager = Union[Apt, Dnf, Zypper]


def manager(params: Dict[str, Any], **extra: Any) -> Manager:
    extra.update(network=params["network"], recommends=params.get("recommends", False))
    if params["manager"] == "apt":
        return Apt(together=params.get("driver_version", ""), **extra)
    return Zypper(**extra) if params["manager"] == "zypper" else Dnf(**extra)


def separate_manager(params: Dict[str, Any], folder: str, enable: Iterable[str] = ()) -> Manager:
    """Return one with its own sources and caches below a folder, for a preview or for the sources before an apply; the
    host's own lists and caches stay unchanged.
    """
    if params["manager"] == "zypper":
        return manager(params, looking=folder)
    # Report a dead mirror within about a minute; by default the programs try for some minutes.
    seconds = params.get("timeout", 300) // 12 or 1
    options = (_apt if params["manager"] == "apt" else _dnf)(sources.Layout(folder), folder, seconds)
    return manager(params, options=options + ["--enablerepo=" + name for name in enable])


def _apt(layout: sources.Layout, folder: str, seconds: int) -> List[str]:
    lists, cache = os.path.join(folder, "lists"), os.path.join(folder, "cache")
    parts = (layout.apt_sources, layout.apt_preferences, layout.apt_logins)
    for needed in (*parts, os.path.join(lists, "partial"), os.path.join(cache, "archives", "partial")):
        os.makedirs(needed, exist_ok=True)
    return [
        "Dir::Etc::sourcelist=" + layout.apt_list,
        "Dir::Etc::sourceparts=" + layout.apt_sources,
        "Dir::Etc::preferencesparts=" + layout.apt_preferences,
        "Dir::Etc::netrcparts=" + layout.apt_logins,
        "Dir::State::lists=" + lists,
        "Dir::Cache=" + cache,
        f"Acquire::http::Timeout={seconds}",
        f"Acquire::https::Timeout={seconds}",
        "Acquire::Retries=0",
        "Acquire::Languages=none",  # no translated descriptions
    ]


def _dnf(layout: sources.Layout, folder: str, seconds: int) -> List[str]:
    options = ["reposdir=" + layout.dnf_repos, "cachedir=" + os.path.join(folder, "cache"), f"timeout={seconds}"]
    return ["--setopt=" + option for option in [*options, "retries=1"]]


def wanted(params: Dict[str, Any], installed: Installed, native: str) -> Tuple[List[Wish], List[str]]:
    """Return (wishes, removals): what must be installed, and which installed packages must go."""
    wishes = [
        dict(wish, arch="" if wish["arch"] == native else wish["arch"]) for wish in packages.merge(params["packages"])
    ]
    names = {wish["name"] for wish in wishes}
    return wishes, drift.unwanted(installed, params["remove"], names)


def lost(params: Dict[str, Any], installed: Installed, record: Dict[str, Any], wishes: Iterable[Wish]) -> List[Wish]:
    """Return wishes for recorded packages that somebody removed, in addition to the given wishes.

    Nothing comes back in a removal, whose wishes are optional, and nothing comes that `remove` names.
    """
    if params["optional"]:
        return []
    asked = {packages.key(wish): wish["version"] for wish in wishes}
    gone = drift.missing(installed, record, asked)
    return [packages.listed(*item) for item in gone.items() if not versions.matches(item[0], params["remove"])]


def resolve(host: Manager, wishes: Iterable[Wish], trouble: Iterable[str] = (), optional: bool = False) -> List[Wish]:
    """Return the wishes with the exact version of each in the repositories; fail if one is not offered."""
    wishes = list(wishes)
    offered = host.offered(sorted({wish["name"] for wish in wishes}))
    exact, missing = [], []
    for wish in wishes:
        found = [item["version"] for item in offered.get(wish["name"], [])]
        fitting = [version for version in found if versions.fits(version, wish["version"])]
        if fitting:
            exact.append(dict(wish, version=fitting[0]))
        else:
            near = packages.nearest(found, wish["version"])
            offer = "offered: " + ", ".join(near) if near else "not available"
            missing.append("{name} {version} ({0})".format(offer, **wish))
    if missing and not optional:
        raise HostFailure(
            "GS-466", "the repositories do not have the requested packages", "; ".join(missing),
            "; ".join(trouble)[:1500],
            "nothing was changed; check gpu_repo_sources, or choose one of the available versions",
        )  # fmt: skip
    return exact


def needed_to_hold(host: Manager, params: Dict[str, Any]) -> List[Wish]:
    """Return the packages that holding needs; fail if they are not available. Needs fresh package lists."""
    if not params["hold"] or host.can_hold():
        return []
    return [{"name": name, "version": "", "arch": ""} for name in host.needed_to_hold()]


def sparing(host: Manager, exact: Sequence[Wish], removals: Sequence[str], stays: Sequence[str]) -> List[str]:
    """Return the removals without the one that packages need which stay: no source has their former versions."""
    for one in sorted(removals, key=lambda name: name[:6] != stays[0][:6]):  # linux-image-… for linux-image-amd64
        rest = [name for name in removals if name != one]
        with contextlib.suppress(HostFailure):
            if not {*stays} & {*packages.named_like(host.simulate(exact, rest)["remove"], host.installed())}:
                return rest
    return list(removals)


def plan_for(host: Manager, exact: Sequence[Wish], removals: Sequence[str], installed: Installed) -> Plan:
    """Return what the package manager would do; fail if that does not achieve everything asked for."""
    plan = host.simulate(exact, removals)
    plan["remove"] = packages.named_like(plan["remove"], installed)
    left = packages.undone(exact, removals, packages.after(installed, plan))
    if left:
        raise HostFailure(
            "GS-463", "the package manager cannot install these packages together", "; ".join(left), host.said,
            "nothing was changed; the note names the missing dependency",
        )  # fmt: skip
    return plan


_RELEASE = {"apt": "apt-mark unhold", "dnf": "dnf versionlock delete", "zypper": "zypper removelock"}


def held_by_us(host: Manager, plan: Plan, ours: Iterable[str]) -> Set[str]:
    """Return the held packages that a plan changes or removes, by the names under which they are held; fail if others
    than us hold one.
    """
    names = {host.lock_name(name, version) for name, version in plan["remove"].items()}
    names |= {host.lock_name(name, "") for kind in ("upgrade", "downgrade") for name in plan[kind]}
    moving = names & set(host.held())
    foreign = sorted(moving - set(ours))
    if foreign:
        raise HostFailure(
            "GS-469", "packages that must change are held by someone else", ", ".join(foreign),
            hint="nothing was changed; release them first: {} {}".format(_RELEASE[host.name], " ".join(foreign)),
        )  # fmt: skip
    return moving
