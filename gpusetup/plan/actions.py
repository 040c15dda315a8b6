"""Compares a host with its wanted state: ordered actions with their reasons, and the variables of the roles."""

from collections.abc import Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Wanted, action
from gpusetup.components.cuda import no_longer_wanted
from gpusetup.components.judge import Judged, versions
from gpusetup.components.record import record_of
from gpusetup.components.registry import COMPONENTS, GROUPS
from gpusetup.model.applied import Applied
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import UNPROVEN, Origins, Package, PackageSet
from gpusetup.model.plan import Action, ActionKind
from gpusetup.model.variables import RoleVariables
from gpusetup.versions import nv


def missing(packages: PackageSet, installed: dict[str, str]) -> tuple[Package, ...]:
    """Return the wanted packages that are not installed at their version."""
    return tuple(package for package in packages.wanted() if not satisfied(package, installed))


def lacks_packages(facts: HostFacts, lock: Applied) -> bool:
    """Return whether packages of a lock are missing: then the stack is chosen again from today's offers."""
    packages = lock.wanted.packages if lock.wanted is not None else None
    return packages is not None and bool(missing(packages, facts.packages.installed))


def satisfied(package: Package, installed: dict[str, str]) -> bool:
    """Return whether a package is installed at its wanted version."""
    return versions.satisfied(installed, package.name, package.version)


def removals(packages: PackageSet, installed: dict[str, str]) -> tuple[str, ...]:
    """Return the installed packages to remove; a package that is wanted by name is never among them."""
    return tuple(judge.drift.unwanted(installed, packages.remove, [package.name for package in packages.wanted()]))


def without_leftovers(facts: HostFacts, packages: PackageSet | None) -> PackageSet | None:
    """Return the packages with removals of `leftovers` added.

    The lock does not contain these removals: a package that a person installs later under such a name is theirs.
    """
    gone = leftovers(facts, packages)
    if not gone:
        return packages
    found = packages or PackageSet(manager=facts.packages.manager or "apt")
    return replace(found, remove=(*found.remove, *gone), may_remove=(*found.may_remove, *gone))


def leftovers(facts: HostFacts, packages: PackageSet | None) -> tuple[str, ...]:
    """Return the packages that gpusetup installed for a component which no setting asks for any more."""
    kept = {package.name for package in packages.wanted()} if packages is not None else set()
    before = [lock.wanted.packages for lock in record_of(facts).locks if lock.wanted and lock.wanted.packages]
    names: set[str] = set()
    for name, group in GROUPS.items():
        some = packages is not None and bool(getattr(packages, name))
        goes = "*" in group.leaves or (some and not _among(kept, group.leaves))
        there = (package.name for past in before for package in getattr(past, name))
        names |= _among(there, group.leaves if goes else ())
    return tuple(sorted((names & set(record_of(facts).brought)) - kept))


def _among(names: Iterable[str], globs: tuple[str, ...]) -> set[str]:
    return {name for name in names if versions.matches(name, globs)}


def actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield all actions in the order in which apply performs them."""
    for component in COMPONENTS:
        yield from component.first(host, wanted)
    if wanted.packages is not None:
        yield from _repositories(host.facts, wanted.packages)
        yield from _packages(host, wanted, wanted.packages)
        yield from _lost(host, wanted.packages)
        yield from _holds(host.facts, wanted.packages)
    rest = [found for component in COMPONENTS for found in component.actions(host, wanted)]
    rest += [*_files(host), *_record(host)]
    if rest and wanted.packages is None:  # without packages, an apply for anything else releases all holds
        yield from _holds(host.facts, PackageSet(manager=host.facts.packages.manager or "apt"))
    yield from rest


def _repositories(facts: HostFacts, packages: PackageSet) -> Iterator[Action]:
    configured = {source.uri.rstrip("/") for source in facts.packages.sources}
    components = {
        (suite, component)
        for source in facts.packages.sources
        for suite in source.suites
        for component in source.components
    }
    for name in packages.enable:
        if name in facts.packages.disabled:
            yield action("repository", name, f"enable {name}", "packages that the driver needs are in this repository")
    for source in packages.sources:
        uris, key = source.uris or (), source.key or UNPROVEN
        if like := source.like_suite:
            lacking = [item for item in source.components or () if (like, item) not in components]
            if lacking:
                what = f"{like}: {' '.join(lacking)}"
                yield action("repository", source.name, what, "the driver's packages are in these components")
        elif not any(uri.rstrip("/") in configured for uri in uris):
            prints = key.fingerprints or ("by the digest of the package that has it",)
            why = f"the packages come from here; key {prints[0]}"
            yield action("repository", source.name, ", ".join(uris), why)
    if (theirs := _replaced(facts, packages)) and (
        missing(packages, facts.packages.installed) or removals(packages, facts.packages.installed)
    ):
        why = "gpusetup writes its own entry with this address and a verified key; two entries could clash"
        yield action("repository", "replaced", f"disable the entries in {', '.join(theirs)}", why)


def _replaced(facts: HostFacts, packages: PackageSet) -> list[str]:
    """Return the host's own files with entries for an address that gpusetup's sources replace."""
    prefixes, record = tuple(address.rstrip("/") for address in packages.replace), record_of(facts).files
    found = {source.file for source in facts.packages.sources if source.uri.startswith(prefixes)}
    ours = [f"/{source.name}." for source in packages.sources]
    return sorted(path for path in found if path not in record and not any(name in path for name in ours))


def _packages(host: Judged, wanted: Wanted, packages: PackageSet) -> Iterator[Action]:
    installed = host.facts.packages.installed
    gone = removals(packages, installed)
    unasked = {*leftovers(host.facts, packages), *no_longer_wanted(host.facts, packages.cuda_roots)}
    if others := [name for name in gone if name not in unasked]:
        yield action("remove", "packages", " ".join(others), "they conflict with the packages to install")
    if left := [name for name in gone if name in unasked]:
        yield action("remove", "unasked", " ".join(left), "gpusetup installed them, and no setting asks for them now")
    for name in PackageSet.__struct_fields__:
        group = getattr(packages, name) if name in GROUPS else ()
        lacking = [package for package in group if not satisfied(package, installed)]
        if lacking:
            kind, why = _kind(lacking, installed), GROUPS[name].why
            reason = why if isinstance(why, str) else why(host, wanted)
            yield action(kind, name, " ".join(map(str, lacking)), reason)


def _lost(host: Judged, packages: PackageSet) -> Iterator[Action]:
    """Yield the reinstallation of recorded packages that somebody removed; a driver that moves brings its own."""
    wishes = {package.name: package.version for package in packages.wanted()}
    lost = judge.drift.missing(host.facts.packages.installed, host.record, wishes)
    if lost:
        what = " ".join(f"{name}={version}" for name, version in lost.items())
        yield action("install", "lost", what, "it came with the driver and has been removed")


def _kind(packages: Iterable[Package], installed: dict[str, str]) -> ActionKind:
    moved = [package for package in packages if package.name in installed and package.version]
    if not moved:
        return "install"
    old, new = versions.upstream(installed[moved[0].name]), versions.upstream(moved[0].version)
    return "downgrade" if old and new and nv(new) < nv(old) else "upgrade"


def _holds(facts: HostFacts, packages: PackageSet) -> Iterator[Action]:
    installed, held = facts.packages.installed, set(facts.packages.held)
    named = {package.name for package in (*packages.driver, *packages.fabric)}
    more = {package.name for package in (*packages.libraries(), *packages.monitoring)}
    named |= {name for name in more if versions.matches(name, packages.hold)}
    recorded = {name for name in record_of(facts).holds if name in installed}
    wanted = {package.name for package in packages.wanted()}
    obsolete = {name for name in recorded - wanted if not versions.matches(name, packages.hold)}
    kernel = {name for name in installed if name.startswith(("linux-", "kernel")) and "nvidia" not in name}
    kernel = {name for name in kernel if versions.matches(name, packages.hold)}
    why = "an unattended upgrade must not move libraries under a loaded module"
    if free := (named | recorded) - obsolete - kernel - held:
        if packages.driver:
            yield action("hold", "driver", "the driver and everything that belongs to it", why)
        else:
            yield action("hold", "libraries", " ".join(sorted(free)), "an unattended upgrade must not move them")
    if kernel - held:
        alone = "no package would bring prebuilt modules for the next kernel"
        kept = alone if packages.keeps_kernel else "set by gpusetup_hold_kernel"
        yield action("hold", "kernel", "the kernel and the package that updates it", kept)
    if obsolete & held:
        yield action("hold", "release", f"no longer {' '.join(sorted(obsolete & held))}", "nothing needs it now")


def _files(host: Judged) -> Iterator[Action]:
    """Yield the files of an earlier apply that somebody else changed since."""
    for found in judge.drift.files(host.probed, host.record):
        identity = found.what.strip("/").replace("/", "-")
        yield action("file", identity, found.what, f"it is {found.now}, and was {found.was}")


def _record(host: Judged) -> Iterator[Action]:
    """Yield what the record leaves open: an unfinished apply, a lost record, changes that wait."""
    facts = host.facts
    begun = record_of(facts).unfinished
    if begun is not None:
        what = "finish the interrupted apply, verify it and record it"
        yield action("record", "unfinished", what, f"apply {begun.id} began and has not finished")
    elif found := list(judge.drift.unfinished({}, host.record)):
        what = "settle what was interrupted: " + ", ".join(item.what for item in found)
        yield action("record", "open", what, "; ".join(f"{item.what}: {item.now}" for item in found))
    elif reason := facts.record_lost:
        yield action("record", "lost", "start a new record of gpusetup's changes", reason)
    for left in judge.drift.waits(host.probed, host.record):
        yield action("record", left.id, "left pending by the last apply", left.what)


def for_manager(facts: HostFacts) -> RoleVariables:
    """Return the variables for every play on a host: its package manager."""
    return RoleVariables(gpu_package_manager=facts.packages.manager or "apt")


def role_variables(facts: HostFacts, wanted: Wanted) -> RoleVariables:
    """Return all role variables of one host."""
    told = {name: value for item in COMPONENTS for name, value in item.variables(facts, wanted).items()}
    variables = for_manager(facts) if wanted.packages is None else _package_variables(wanted.packages)
    return replace(variables, gpu_packages_no_way_back=wanted.settings.no_way_back or UNSET, **told)


def question_variables(facts: HostFacts, origins: Origins, patterns: tuple[str, ...]) -> RoleVariables:
    """Return the variables of a preview that only reads the offers of the wanted repositories."""
    return replace(
        for_manager(facts),
        gpu_repo_sources=origins.sources,
        gpu_repo_enable=origins.enable,
        gpu_repo_replace=origins.replace,
        gpu_preflight_candidates=patterns,
    )


def _package_variables(packages: PackageSet) -> RoleVariables:
    return RoleVariables(
        gpu_package_manager=packages.manager,
        gpu_repo_sources=packages.sources,
        gpu_repo_enable=packages.enable,
        gpu_repo_replace=packages.replace,
        gpu_repo_pins=packages.pins,
        gpu_packages_streams=packages.streams,
        gpu_packages_prerequisites=packages.prerequisites + packages.python,
        gpu_packages_remove=packages.remove,
        gpu_packages_may_remove=packages.may_remove,
        gpu_packages_hold=packages.hold,
        gpu_cuda_packages=packages.libraries(),
        gpu_cuda_roots=packages.cuda_roots,
        gpu_cuda_default=packages.cuda_default,
        **{group.variable: getattr(packages, name) for name, group in GROUPS.items() if group.variable},
    )
