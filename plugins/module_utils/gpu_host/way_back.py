"""Check before a transaction whether everything it moves or removes can be restored.

A version can be restored if the repositories still offer it, or did so before this apply. A package file that only a
cache has is first put out of reach of the package manager, which may clean up after the transaction; so is one that
came from a folder of this host. Any other version is lost.
"""

import contextlib
import os
import shutil
from typing import Any, Callable, Dict, Iterable, List, NamedTuple

from ..gpu_judge import versions
from ..gpu_probe.environment import changeable
from ..gpu_probe.packages import is_driver
from . import fetched, files, packages, planning, sources, space
from .failure import HostFailure
from .ledger import Ledger
from .packages import Installed, Plan, Wish

Offers = Dict[str, List[Dict[str, str]]]
Texts = Dict[str, bytes]


class WayBack(NamedTuple):
    """The result of a check, by the names under which a package set lists the packages."""

    files: Dict[str, str]
    """Files in caches, of versions that no repository offers."""
    lost: List[str]
    """Packages of the stack, and any removed package, whose installed version cannot be restored."""
    newer: List[str]
    """Other packages that could be restored only in a newer version; nothing needs the older one."""
    former: List[str]
    """Packages whose version only those sources offer that this apply has replaced or is about to replace."""


NOTHING = WayBack({}, [], [], [])


def look(host: planning.Manager, plan: Plan, installed: Installed, params: Dict[str, Any], before: Texts) -> WayBack:
    """Return which packages of a transaction could be restored, also by the sources `before` the apply; a pure removal,
    or one with optional wishes, is not meant to be undone.
    """
    there = {name for kind in ("upgrade", "downgrade") for name in plan[kind]} | set(plan["remove"])
    old = {name: installed[name] for name in sorted(there) if name in installed}
    if not old or not params["packages"] or params["optional"]:
        return NOTHING
    way = WayBack({}, [], [], [])
    wishes = {name: packages.listed(name, version) for name, version in old.items()}
    offered = host.ever_offered(sorted({packages.key(wish) for wish in wishes.values()}))
    wishes = {name: wish for name, wish in wishes.items() if not _is_offered(wish, offered)}
    formerly = _formerly_offered(before, {packages.key(wish) for wish in wishes.values()}, params) if wishes else {}
    names = set(params["driver_packages"])
    for name, wish in wishes.items():
        file = host.archive(wish, _shelf(params["state_dir"]))
        if _is_offered(wish, formerly):
            way.former.append(name)
        elif file:
            way.files[name] = file
        elif name in plan["remove"] or name in names or versions.matches(wish["name"], params["may_remove"]):
            way.lost.append(name)
        else:
            way.newer.append(name)
    return way


def former_sources(ledger: Ledger, root: str = "") -> Texts:
    """Return {path: earlier content} of source files that differ from before the current apply.

    `root` is the folder of a preview, with the files that are to be.
    """
    past = {path: raw for path, raw in ledger.before_apply().items() if sources.is_of_sources(path)}
    found = {}
    for path in sorted({*sources.definitions(), *past}):
        raw = past[path] if path in past else files.read_bytes(path)
        now = files.read_bytes(sources.place(root, path))
        if raw is not None and raw != (now.replace(root.encode(), b"") if now is not None and root else now):
            found[path] = raw
    return found


def _formerly_offered(texts: Texts, names: Iterable[str], params: Dict[str, Any]) -> Dict[str, List[Dict[str, str]]]:
    """Return what former sources offer today, each verified with its former key."""
    if not any(path.endswith((".list", ".sources", ".repo")) for path in texts):
        return {}
    layout, folder = sources.Layout(), fetched.new_folder()
    keys = [path for path in texts if os.path.dirname(path) in (layout.apt_keys, layout.rpm_keys)]
    try:
        for path in {*sources.logins_of_apt(), *texts}:
            raw = texts[path] if path in texts else files.read_bytes(path) or b""
            for key in keys:
                raw = raw.replace(key.encode(), sources.place(folder, key).encode())
            files.write_atomically(sources.place(folder, path), raw, 0o644 if path in keys else 0o600)
        host = planning.separate_manager(params, folder)
        try:
            host.refresh()
            return host.ever_offered(sorted(names))
        finally:
            host.close()
    finally:
        fetched.drop(folder)


def check(preview: Any, host: planning.Manager, plan: Plan, installed: Installed) -> WayBack:
    """Do the same for a preview, and report what could not be undone."""
    ledger = Ledger(preview.params["state_dir"], check=True)
    way = look(host, plan, installed, preview.params, former_sources(ledger, preview.folder))
    if way.lost:
        failure = missing(way, installed)
        if preview.params["no_way_back"]:
            preview.find("warn", "way-back", "{message}: {context}".format(**failure.fields), "", "GS-429")
        else:
            preview.refuse("way-back", failure)
    if way.newer:
        text = "after a failed transaction these would stay in their new versions: " + ", ".join(way.newer)
        preview.find("info", "way-back", text)
    return way


def missing(way: WayBack, installed: Installed) -> HostFailure:
    """Return the failure for a transaction that could not be undone."""
    return HostFailure(
        "GS-429",
        "a failed transaction could not be undone",
        ", ".join(f"{name} {installed[name]}" for name in way.lost),
        "neither a repository nor a package cache has these versions any more",
        "add a repository that has them, or accept that a failure cannot be undone: gpusetup apply --no-way-back "
        "(gpusetup_no_way_back: true, gpu_packages_no_way_back)",
    )


def kept_bytes(way: WayBack, folder: str) -> int:
    """Return the bytes needed to keep the files; those on the same file system take none."""
    device = os.stat(space.existing(folder)).st_dev
    return sum(os.path.getsize(path) for path in way.files.values() if os.stat(path).st_dev != device)


def keep(way: WayBack, folder: str) -> None:
    """Add files to those that an unfinished try kept, where no package manager cleans up."""
    for path in way.files.values():
        os.makedirs(folder, 0o700, exist_ok=True)
        kept = os.path.join(folder, os.path.basename(path))
        if os.path.exists(kept):
            continue
        try:
            os.link(path, kept)
        except OSError:  # another file system
            shutil.copy2(path, kept + ".new")
            os.rename(kept + ".new", kept)
    if way.files:
        os.sync()  # a power cut must not leave them empty


def forget(folder: str) -> None:
    if os.path.isdir(folder):
        shutil.rmtree(folder)


def _shelf(state_dir: str) -> str:
    """Return the folder with the files of installed packages that came from a folder of this host."""
    return os.path.join(state_dir, "packages")


def shelve(host: planning.Manager, installed: Installed, state_dir: str) -> None:
    """Keep the files of these packages that came from a folder of this host, such as a bundle: the next bundle may
    replace it, and no cache has them. They are hard links, which take no space; on another file system nothing is kept.
    Files that users other than root can change are not kept, because installing from here skips the check against the
    repository's list.
    """
    walked = (found for folder in sources.folders() for found in os.walk(folder))
    there = {name: os.path.join(base, name) for base, _folders, names in walked for name in names}
    shelf = _shelf(state_dir)
    new = shelf + ".new"
    if os.path.isdir(new) and not os.path.isdir(shelf):  # an interrupted call was about to rename it
        os.rename(new, shelf)
    forget(new)
    os.makedirs(new, 0o700)
    for wish in (packages.listed(*item) for item in installed.items()):
        short = dict(wish, version=wish["version"].rpartition(":")[2])
        for name, other in zip(host.file_names(wish), host.file_names(short)):
            known = [there[word] for word in (name, name.replace("%3a", ":"), other) if word in there]
            known = [path for path in known if not changeable(path)]
            with contextlib.suppress(OSError):
                os.link([*known, os.path.join(shelf, name)][0], os.path.join(new, name))
    forget(shelf)
    if os.listdir(new):
        os.rename(new, shelf)
    else:
        os.rmdir(new)


def restore(host: planning.Manager, before: Installed, folder: str, log: Callable[[str], None]) -> List[str]:
    """Bring a host back to its packages, in one transaction or in as many as work; return those that are not available.

    What came meanwhile is removed last, and only if a host that had a driver keeps one.
    """
    _mend(host, before, log)
    lacking = _lacking(host, before)
    wishes = {name: _wish(host, name, version, folder) for name, version in lacking.items()}
    offered = host.offered(sorted({packages.key(wish) for wish in wishes.values()}))
    had = [name for name, wish in wishes.items() if "file" in wish or _is_offered(wish, offered)]
    for step in _steps({name: lacking[name] for name in had}):
        left = [name for name in step if name in _lacking(host, before)]
        if left:
            came = _came(host, before) if len(left) == len(lacking) else []
            _bring(host, [wishes[name] for name in left], came, before, log)
    came = _came(host, before)
    if came and _may_all_go(host, came, before, log):
        host.purge(came)
    _mend(host, before, log)
    return [name for name in lacking if name not in had]


def _lacking(host: planning.Manager, before: Installed) -> Installed:
    """Return the packages that are gone or in another version, with their version before."""
    change = packages.difference(before, host.installed())
    return dict(change["removed"], **{name: old for name, (old, _new) in change["moved"].items()})


def _came(host: planning.Manager, before: Installed) -> List[str]:
    return sorted(packages.difference(before, host.installed())["installed"])


def _steps(had: Installed) -> List[List[str]]:
    """Return what to try together: all, then packages of one version, like a driver's parts, then each alone."""
    groups: Dict[str, List[str]] = {}
    for name, version in sorted(had.items()):
        groups.setdefault(versions.upstream(version), []).append(name)
    several = sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)
    return [sorted(had), *several, *([name] for name in sorted(had))]


def _bring(
    host: planning.Manager, wishes: List[Wish], gone: List[str], before: Installed, log: Callable[[str], None]
) -> None:
    """Install packages as they were, unless others that were there, or the only driver, would be removed or changed."""
    try:
        plan = planning.plan_for(host, wishes, gone, host.installed())
    except HostFailure as failure:
        log("rollback: " + failure.text())
        return
    moved = {name: new for kind in ("upgrade", "downgrade") for name, (_old, new) in plan[kind].items()}
    worse = [name for name in plan["remove"] if name in before]
    worse += [name for name, new in moved.items() if name in before and not versions.fits(new, before[name])]
    if _drivers(plan["remove"]) and not any(is_driver(wish["name"]) for wish in wishes):
        worse += sorted(plan["remove"])
    if worse:
        names = ", ".join(packages.key(wish) for wish in wishes)
        log(f"rollback: left out {names}, for which these would go or move: {', '.join(worse)}")
    else:
        host.transact(wishes, gone)


def _may_all_go(host: planning.Manager, came: List[str], before: Installed, log: Callable[[str], None]) -> bool:
    """Return whether the new packages can go: nothing of before goes with them, and no driver without one of before."""
    there = host.installed()
    back = {name: version for name, version in there.items() if before.get(name) == version}
    if _drivers(before) and not _drivers(back) and _drivers({name: there[name] for name in came}):
        log("rollback: no driver of before is there, so this one stays")
        return False
    try:
        along = sorted(set(host.simulate([], came)["remove"]) & set(before))
    except HostFailure as failure:
        log("rollback: " + failure.text())
        return False
    if along:
        log("rollback: with what came these would go: " + ", ".join(along))
    return not along


def _drivers(some: Installed) -> List[str]:
    return [name for name, version in some.items() if is_driver(packages.listed(name, version)["name"])]


def _is_offered(wish: Wish, offered: Offers) -> bool:
    return any(versions.fits(item["version"], wish["version"]) for item in offered.get(packages.key(wish), []))


def _wish(host: planning.Manager, name: str, version: str, folder: str) -> Wish:
    wish = packages.listed(name, version)
    kept = [path for path in (os.path.join(folder, file) for file in host.file_names(wish)) if os.path.isfile(path)]
    return dict(wish, file=kept[0]) if kept else wish


def _mend(host: planning.Manager, before: Installed, log: Callable[[str], None]) -> None:
    """Finish half-installed packages without removing any that was there before."""
    try:
        host.repair(lambda names: sorted(name for name in names if name in before))
    except HostFailure as failure:
        log("repair: " + failure.text())
