"""Compare the record of the last apply with the host's present state, and name what repairs each difference."""

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from . import driver, mig, names, versions

Facts = Dict[str, Any]
Record = Dict[str, Any]
REMOVAL = "removal"
"""The entry that a removal keeps open until it ends."""


class Difference(NamedTuple):
    """A deviation from what the last apply left.

    `mend` is "apply", "remove", "reboot" (where that suffices), or "hand" (no command repairs it: see `hint`).
    """

    id: str
    what: str
    was: str
    now: str
    mend: str = "apply"
    hint: str = ""


def differences(facts: Facts, record: Record) -> List[Difference]:
    """Return every deviation from what the last apply left, given the probe's facts and the host's record."""
    apply, begun = _part(record, "apply"), list(unfinished(facts, record))
    if any(item.mend == "remove" for item in begun):
        return begun
    if apply and not apply.get("finished"):
        started = "apply {} began and has not finished".format(apply.get("id"))
        return [Difference("apply", "the last apply", "finished", started), *begun]
    parts = (
        unfinished,
        _packages,
        _holds,
        files,
        _module,
        _libraries,
        _nouveau,
        _fabric,
        _services,
        monitoring_units,
        desktop_units,
        _default_cuda,
        _description,
        _mig,
        _python,
        _environments,
        waits,
    )
    return [found for part in parts for found in part(facts, record)]


def unfinished(_facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield changes that were begun and not completed: an interruption or a failed command left the entry open."""
    for name, entry in sorted(_part(record, "open").items()):
        if isinstance(entry, dict):
            began = f"to {entry.get('aim') or 'change'}, begun at {entry.get('since')} and not finished"
            mend = "remove" if name.startswith(REMOVAL + ":") else "apply"
            yield Difference("open-" + name, str(entry.get("what") or name), "finished", began, mend)


def files(_facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield recorded files that someone else has changed; files whose current content was not read are skipped."""
    for path, entry in sorted(_part(record, "files").items()):
        if not isinstance(entry, dict) or "now" not in entry:
            continue
        now, wanted = entry["now"], entry.get("sha256") if entry.get("present", True) else None
        modes = (entry.get("mode_now"), entry.get("mode")) if entry.get("original") is None else (None, None)
        if now == wanted and (None in modes or modes[0] == modes[1]):
            continue
        became = "missing" if now is None else "changed" if wanted is not None else "there again"
        became = became if now != wanted else "of mode {:o}, not {:o}".format(*modes)
        # For a file that no apply writes, the record holds the command that does.
        hint = str(entry.get("hint") or "")
        was = "removed" if wanted is None else "as gpusetup wrote it"
        yield Difference("file-" + path, path, was, became, "hand" if hint else "apply", hint)


def closure(record: Record) -> Dict[str, str]:
    """Return the packages whose versions must not change: those requested, and the held ones that belong to them."""
    brought = _part(record, "brought")
    held = {name: brought[name] for name in record.get("holds") or () if name in brought}
    return {name: versions.bare(str(version)) for name, version in dict(held, **_part(record, "packages")).items()}


def lost(installed: Dict[str, str], record: Record) -> Dict[str, str]:
    """Return the recorded packages that are no longer installed, with their recorded versions."""
    return {
        name: version
        for name, version in sorted(closure(record).items())
        if versions.version_of(installed, name, version) is None
    }


def missing(installed: Dict[str, str], record: Record, wishes: Dict[str, str]) -> Dict[str, str]:
    """Return recorded packages that were removed since and must be requested again along with the wishes.

    Empty where a wish changes a recorded version: its related packages then follow in other versions.
    """
    recorded = _part(record, "packages")
    if any(not versions.fits(str(version), wishes.get(name, "")) for name, version in recorded.items()):
        return {}
    kept = {name.partition(":")[0] for name in wishes}
    return {name: version for name, version in lost(installed, record).items() if name.partition(":")[0] not in kept}


def unwanted(installed: Dict[str, str], patterns: Iterable[str], kept: Iterable[str]) -> List[str]:
    """Return the installed packages to remove: those that match a pattern and are not requested by name."""
    named, globs = {name.partition(":")[0] for name in kept}, list(patterns)
    return sorted(name for name in installed if name.partition(":")[0] not in named and versions.matches(name, globs))


def _packages(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield packages in other versions; of a database that cannot be read only that."""
    installed, free = facts["packages"]["installed"], record.get("free") or ()
    unreadable = facts["packages"]["problems"] and not installed
    for name, version in () if unreadable else sorted(closure(record).items()):
        now = versions.version_of(installed, name, version)
        if now is None or (name not in free and versions.bare(now) != version):
            yield Difference("package-" + name, "package " + name, version, now or "not installed")
    for problem in facts["packages"]["problems"]:
        yield Difference("packages", "the package database", "sound", problem)


def _holds(facts: Facts, record: Record) -> Iterator[Difference]:
    packages = facts["packages"]
    for name in record.get("holds") or ():
        if name not in packages["held"] and name in packages["installed"]:
            yield Difference("hold-" + name, "hold of " + name, "held", "free to move")


def wish_of(record: Record) -> driver.Wish:
    """Return the driver that the last apply recorded as expected."""
    expect = _part(record, "expect")
    kernels: Tuple[str, ...] = tuple(expect.get("kernels") or ())
    return driver.Wish(expect.get("driver_version") or "", expect.get("driver_module") or "", kernels)


def _module(facts: Facts, record: Record) -> Iterator[Difference]:
    """Check the module on disk for each relevant kernel, the loaded module, and which kernel runs."""
    wish = wish_of(record)
    if not wish.version:
        return
    wanted = "{} ({})".format(wish.version, wish.flavour or "any")
    problems = driver.module_problems(facts, wish)
    for kernel in sorted(problems):
        found = driver.module_of(facts, kernel)
        now = "there is none" if found is None else _module_text(found)
        yield Difference("module-" + kernel, f"nvidia module for kernel {kernel}, which boots next", wanted, now)
    mend = "apply" if problems else "reboot"
    if driver.loaded_problem(facts, wish):
        runs = driver.loaded(facts)
        now = "none is loaded" if runs is None else _module_text(runs)
        yield Difference("loaded", "nvidia module in the kernel", wanted, now, mend)
    running, count = facts["kernel"]["running"], driver.kernels(facts, wish)
    if running not in count and driver.module_of(facts, running) is None:
        yield Difference("kernel", "the kernel that runs", " or ".join(count), running, mend)


def _libraries(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield libraries of another driver version; an apply repairs this only if it also changes packages."""
    version = wish_of(record).version
    others = driver.other_libraries(facts, version) if version else []
    if not others:
        return
    what, now = "the driver's libraries", ", ".join(others)
    packages = _part(_part(_part(record, "lock"), "wanted"), "packages")
    going = unwanted(facts["packages"]["installed"], packages.get("remove") or (), _part(record, "packages"))
    if going or any(_packages(facts, record)):
        yield Difference("library", what, version, now)
        return
    known = (facts["driver"] or {}).get("library_files") or {}
    paths = sorted(path for path, found in known.items() if found in others)
    hint = "ask dpkg -S or rpm -qf what brought it, remove that package, or the file that none did; then run ldconfig"
    yield Difference("library", what, version, ", ".join(paths) or now, "hand", hint)


def _module_text(module: Dict[str, Any]) -> str:
    return "{} ({})".format(module.get("version"), module.get("flavour") or "unknown")


def _nouveau(facts: Facts, record: Record) -> Iterator[Difference]:
    if names.NOUVEAU_FILE not in _part(record, "files"):
        return
    was = {"blacklist": "blacklisted", "initramfs": "keeps nouveau out", "loaded": "not loaded"}
    for way in driver.nouveau_ways(facts, wish_of(record).kernels):
        mend = "reboot" if way.id == "loaded" else "apply"
        yield Difference("nouveau-" + way.id, way.what, was[way.id], way.now, mend)


def _fabric(facts: Facts, record: Record) -> Iterator[Difference]:
    version, known = wish_of(record).version, closure(record)
    for name, installed in sorted(facts["packages"]["installed"].items()):
        ours = versions.upstream(installed)
        if version and "fabricmanager" in name.replace("-", "") and name not in known and ours not in ("", version):
            yield Difference("fabric-" + name, "package " + name, version + ", as the driver", installed)


def _services(facts: Facts, record: Record) -> Iterator[Difference]:
    seen = {service["unit"]: service for service in facts["services"].values()}
    for unit, wanted in sorted(_part(record, "services").items()):
        if not isinstance(wanted, dict) or not wanted.get("enabled"):
            continue
        service = seen.get(unit)
        if service is None:
            yield Difference("service-" + unit, unit, "enabled", "there is no such unit")
        elif service["enabled"] is not None and service["enabled"] not in names.ENABLED:
            yield Difference("service-" + unit, unit, "enabled", service["enabled"])
        elif service["active"] == "failed" and not facts["simulated"]:  # no daemon can open a simulated GPU
            yield Difference("service-" + unit, unit, "running", "failed")


def monitoring_units(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield monitoring units that are not running: a daemon that exited cleanly exports nothing either."""
    yield from _stopped(facts, sorted(set(_part(record, "services")) & set(names.MONITORING_UNITS)), "monitoring-")


def desktop_units(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield desktop units that are not running."""
    ours = (unit for unit in sorted(_part(record, "services")) if unit.startswith(names.DESKTOP_UNITS))
    yield from _stopped(facts, ours, "desktop-")


def _stopped(facts: Facts, units: Iterable[str], kind: str) -> Iterator[Difference]:
    seen = {service["unit"]: service for service in facts["services"].values()}
    for unit in units:
        service = seen.get(unit)
        if service is not None and service["active"] not in (None, "active", "activating", "failed"):
            yield Difference(kind + unit, unit, "running", service["active"])


def _default_cuda(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield a default CUDA toolkit that someone else changed: `files` does not see it, alternatives manage the link."""
    packages = _part(_part(_part(record, "lock"), "wanted"), "packages")
    roots = {root.get("version"): root.get("path") for root in packages.get("cuda_roots") or ()}
    wanted, now = roots.get(packages.get("cuda_default")), _part(facts, "cuda").get("default")
    if len(roots) > 1 and wanted and now != wanted:
        yield Difference("cuda-default", "/usr/local/cuda", str(wanted), str(now or "nothing"))


def described_otherwise(facts: Facts) -> bool:
    """Return whether the CDI files name other driver versions than the loaded one."""
    told, runs = _part(facts, "containers").get("cdi_drivers"), driver.loaded(facts)
    return bool(told and runs and runs["version"] not in told)


def _description(facts: Facts, record: Record) -> Iterator[Difference]:
    units = [unit for unit in _part(record, "services") if "cdi" in unit]
    if units and described_otherwise(facts):
        told, runs = facts["containers"]["cdi_drivers"], driver.loaded(facts)
        what = "the description of the GPUs for containers (CDI)"
        yield Difference("cdi", what, "driver " + str(runs and runs["version"]), "driver " + ", ".join(told))


def _mig(facts: Facts, record: Record) -> Iterator[Difference]:
    cut = _part(_part(record, "mig"), "wanted")
    gpus = {gpu["address"]: gpu for gpu in facts["gpus"]} if cut else {}
    for address, wanted in sorted(cut.items()):
        gpu = gpus.get(address)
        now = mig.of_facts(gpu) if gpu is not None else None
        layout = mig.asked(wanted, (gpu["slices"] or {}).get("profiles")) if gpu is not None else None
        if now is None or layout is None or mig.same(now, layout):
            continue
        waits = gpu is not None and gpu["mig_pending"] not in (None, gpu["mig"]) and now["enabled"] != layout["enabled"]
        was, mend = mig.text_of(layout), "reboot" if waits else "apply"
        yield Difference("mig-" + address, "MIG layout of " + address, was, mig.text_of(now), mend)


def _python(facts: Facts, record: Record) -> Iterator[Difference]:
    expect = _part(_part(record, "expect"), "python")
    path = str(expect.get("path") or "")
    if expect.get("now") and not expect.get("unwanted"):
        yield Difference("python", "the environment " + path, "as it was installed", expect["now"])
        return
    if not path or expect.get("adopted") or expect.get("unwanted"):
        return
    interpreters = (path + "/bin/python", path + "/bin/python3")
    have = next((item for item in facts["pythons"] if item["path"] in interpreters), None)
    if have is None:
        yield Difference("python", "the environment " + path, "installed", "missing")
        return
    now = {versions.python_name(name): version for name, version in have["packages"].items()}
    for name, version in sorted(_part(expect, "packages").items()):
        found = now.get(versions.python_name(name), version)
        if found != version:
            yield Difference("python-" + name, f"{name} in {path}", str(version), found)


def _environments(_facts: Facts, record: Record) -> Iterator[Difference]:
    for entry in _part(record, "expect").get("environments") or ():
        if entry.get("now"):
            path = str(entry.get("path"))
            yield Difference("python:" + path, "the environment " + path, "as it was installed", entry["now"])


def waits(facts: Facts, record: Record) -> Iterator[Difference]:
    """Yield changes of the last apply that still wait for a restart or reboot; a reboot since then settles them."""
    kept = _part(record, "waits")
    if kept and kept.get("boot") == _part(facts, "boot").get("id"):
        for part, texts in sorted(_part(kept, "what").items()):
            for number, text in enumerate(texts):
                yield Difference(f"waits-{part}-{number}", text, "in effect", "it waits")


def _part(record: Record, name: str) -> Dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
