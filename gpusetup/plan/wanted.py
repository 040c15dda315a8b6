"""Turns a stack into the wanted state of one host: packages, services, Python requirements, components."""

import dataclasses
import json
from typing import Any

from msgspec.structs import asdict, replace

from gpusetup.components.base import Context, DriverPackages, Family, Wanted, covering, working_driver
from gpusetup.components.cuda import no_longer_wanted, not_of
from gpusetup.components.desktops import graphics_of
from gpusetup.components.driver.actions import DAEMON
from gpusetup.components.driver.modules import other_way
from gpusetup.components.driver.sources import all_sources
from gpusetup.components.fabric import imex_of
from gpusetup.components.python.environments import environment_packages, settled
from gpusetup.components.python.requirements import (
    LIBRARIES,
    Interpreter,
    adopted_requirements,
    has_python,
    interpreter_of,
    python_requirements,
    system_of,
    without_caps,
)
from gpusetup.components.record import record_of
from gpusetup.components.registry import COMPONENTS
from gpusetup.errors import PreflightError, shipped
from gpusetup.matrix.load import Matrix
from gpusetup.model.applied import Applied
from gpusetup.model.package import Origins, Package, PackageSet, Pin
from gpusetup.model.repos import Format
from gpusetup.model.settings import AppliedSettings, AppliedWanted, Settings
from gpusetup.model.stack import DriverChoice, Reason, Stack

KERNEL_PACKAGES: dict[str, list[str]] = json.loads(shipped("plan/data/kernels.json"))
"""Package manager → globs for kernels and the metapackages that bring the next one."""
_PIN_PRIORITY = 1001
"""Above 1000, apt also downgrades to the pinned version."""
_ALIKE = ("streams", "remove", "may_remove", "runfile", "keeps_kernel")
"""Fields that a driver's packages and a host's package set have in common."""


def manages_driver(context: Context, stack: Stack) -> bool:
    """Return whether gpusetup manages the driver's packages: not for somebody else's working driver that fits."""
    return stack.driver is not None and (not _kept(context, stack) or _applied_driver(context, stack) is not None)


def _applied_driver(context: Context, stack: Stack) -> AppliedWanted | None:
    """Return the apply on record that installed the driver which is kept; None for somebody else's driver."""
    if stack.driver is None or not _kept(context, stack):
        return None
    return next((lock.wanted for lock in record_of(context.facts).locks if _installs(lock, stack.driver.version)), None)


def _installs(lock: Applied, driver: str) -> bool:
    choice, wanted = lock.stack.driver if lock.stack is not None else None, lock.wanted
    ours = wanted is not None and wanted.manage_driver and wanted.packages is not None
    return ours and choice is not None and choice.version == driver


def _kept(context: Context, stack: Stack) -> bool:
    if stack.driver is None or not stack.driver.installed or other_way(context.facts, context.settings):
        return False
    return working_driver(context.facts) == stack.driver.version


def asks(settings: Settings) -> bool:
    """Return whether a component needs packages in addition to the stack's."""
    return any(component.asks(settings) for component in COMPONENTS)


def needs_packages(context: Context, family: Family, stack: Stack, matrix: Matrix) -> bool:
    """Return whether anything must be installed from a repository."""
    if manages_driver(context, stack) or family.libraries(context, stack) or asks(context.settings):
        return True
    facts = context.facts
    packages = environment_packages(facts, context.settings, context.named, matrix)
    if has_python(stack) and not context.settings.python_adopt:
        packages += interpreter_of(facts, context.settings, stack, system_of(matrix, facts)).packages
    return any(package.name not in facts.packages.installed for package in packages)


def wanted_of(context: Context, family: Family | None, stack: Stack, matrix: Matrix) -> Wanted:
    """Return the wanted state of a host; raise if a component cannot be installed."""
    settings = context.settings
    managed, applied = manages_driver(context, stack), _applied_driver(context, stack)
    packages = None
    persistence, signer = False, ""
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    manager = family.manager if family is not None else context.facts.packages.manager or "apt"
    brought = {item.name: item.wants(context, manager, stack, matrix) for item in COMPONENTS}
    if family is not None:
        own: dict[str, Any] = {name: item.packages for name, item in brought.items() if item.packages}
        packages = PackageSet(manager=family.manager, **own)
        driver: DriverPackages | None = None
        pins: tuple[Pin, ...] = ()
        if applied is not None and applied.packages is not None and stack.driver is not None:
            driver, pins = _as_applied(context, family, stack.driver, applied, applied.packages), applied.packages.pins
        elif managed and stack.driver is not None:
            driver = family.driver(context, stack.driver)
            pins = (
                (Pin(packages=driver.hold, version=f"{stack.driver.version}*", priority=_PIN_PRIORITY),)
                if family.manager == "apt" and driver.hold
                else ()
            )
        if driver is not None:
            notes, persistence = driver.notes, driver.persistence and settings.persistence
            signer, reasons = driver.signer, _built_reasons(driver)
            packages = replace(
                packages,
                driver=driver.packages,
                prerequisites=_lacking(context, driver.prerequisites),
                pins=pins,
                **{name: getattr(driver, name) for name in ("fabric", "hold", "built", *_ALIKE)},
            )
        if stack.driver is not None and driver is None and settings.imex is not None:
            # Somebody else's driver is kept; IMEX of its version is added.
            packages = replace(packages, fabric=imex_of(context, stack.driver, _form(family)))
        packages = replace(packages, **asdict(family.libraries(context, stack)))
        roots = packages.cuda_roots
        gone = no_longer_wanted(context.facts, roots)
        packages = replace(
            packages,
            remove=(*not_of(packages.remove, roots), *gone),
            may_remove=(*not_of(packages.may_remove, roots), *gone),
        )
    if stack.cudas and (packages is None or len(packages.cuda_roots) < 2):
        raise _not_as_packages(stack)
    wheels = tuple(name for name in LIBRARIES if packages is None or not getattr(packages, name))
    interpreter = Interpreter()
    if has_python(stack) and not settings.python_adopt:
        interpreter = interpreter_of(context.facts, settings, stack, system_of(matrix, context.facts))
    requirements = _requirements(context, stack, matrix, wheels, interpreter)
    if packages is not None and family is not None:
        of_named = environment_packages(context.facts, settings, context.named, matrix)
        packages = replace(packages, python=tuple(dict.fromkeys((*interpreter.packages, *of_named))))
        # Only what gpusetup installs is held; the owner of another driver decides about its holds.
        beside = (*packages.libraries(), *packages.fabric)
        ours = packages.hold if managed else tuple(package.name for package in beside)
        keeps = settings.hold_kernel or packages.keeps_kernel
        kernel = tuple(KERNEL_PACKAGES[family.manager]) if keeps else ()
        exporters = tuple(package.name for package in packages.monitoring if package.version)
        hold = (*ours, *exporters, *kernel)
        origins = _origins(context, family, applied.packages if applied is not None else None)
        packages = replace(packages, hold=hold, **asdict(origins))
        packages = packages if packages.wanted() or packages.runfile else None
    wanted = Wanted(
        stack=stack,
        packages=packages,
        settings=settings,
        manage_driver=managed,
        requirements=requirements,
        interpreter=interpreter.path,
        adopted=requirements if settings.python_adopt else (),
        services=_services(context, packages, stack.driver, persistence=persistence),
        signer=signer,
        reasons=(*reasons, *(reason for item in brought.values() for reason in item.reasons)),
        parts={name: item.wish for name, item in brought.items() if item.wish},
        homeless=() if has_python(stack) else tuple(name for name in wheels if getattr(stack, name) is not None),
    )
    told = (note for item in COMPONENTS for note in (*brought[item.name].notes, *item.notes(context, wanted)))
    return dataclasses.replace(wanted, notes=(*notes, *told))


def _form(family: Family) -> Format:
    return "deb" if family.manager == "apt" else "rpm"


def _not_as_packages(stack: Stack) -> PreflightError:
    toolkits = ", ".join(choice.version for choice in (stack.cuda, *stack.cudas) if choice is not None)
    return PreflightError(
        "GS-333",
        f"CUDA {toolkits} can be installed side by side only as packages, and here they would be wheels",
        note="a distribution's own source has one toolkit, and an environment holds one",
        hint="use NVIDIA's repository (gpusetup_source=nvidia) without gpusetup_cuda_from=wheels, or ask for one CUDA",
    )


def _as_applied(
    context: Context, family: Family, choice: DriverChoice, wanted: AppliedWanted, applied: PackageSet
) -> DriverPackages:
    """Return the driver's packages from the last apply, with those that wishes since then need or need no more.

    Whether the kernel is held follows from today's settings.
    """
    units = {service.unit.removesuffix(".service") for service in context.facts.services.values()}
    fabric = {package.name for package in applied.fabric}
    imex = (package for package in imex_of(context, choice, _form(family)) if package.name not in fabric)
    persistence = DAEMON in wanted.services or DAEMON in units
    kept, added = applied.driver, tuple[Package, ...]()
    if context.settings.persistence != persistence and applied.runfile is None:  # it was otherwise at the last apply
        on, off = (
            family.driver(dataclasses.replace(context, settings=replace(context.settings, persistence=way)), choice)
            for way in (True, False)
        )
        of_daemon = [package for package in on.packages if package not in off.packages]
        names = {package.name for package in of_daemon}
        kept = tuple(package for package in kept if package.name not in names)
        added = tuple(of_daemon) if context.settings.persistence else ()
    return DriverPackages(
        packages=(*kept, *added, *graphics_of(context, family.series(context, choice), choice.version, applied.driver)),
        fabric=(*applied.fabric, *imex),
        prerequisites=applied.prerequisites,
        hold=tuple(pattern for pattern in applied.hold if pattern not in KERNEL_PACKAGES[applied.manager]),
        persistence=persistence or bool(added),
        built=applied.built or "dkms",
        **{name: getattr(applied, name) for name in _ALIKE},
    )


def _built_reasons(driver: DriverPackages) -> tuple[Reason, ...]:
    """Return how the kernel modules are built and why, and why the kernel is held if it is."""
    if not driver.why:
        return ()
    way = "prebuilt kernel modules" if driver.built == "prebuilt" else "kernel modules by DKMS"
    found = [Reason(component="driver", rule="module-built", text=f"{way}: {driver.why}")]
    if driver.keeps_kernel:
        text = "the kernel is held: no package would bring prebuilt modules for the next one"
        found.append(Reason(component="driver", rule="module-kernel-held", text=text))
    return tuple(found)


def _origins(context: Context, family: Family, applied: PackageSet | None) -> Origins:
    """Return the sources of this plan and those that a kept driver of gpusetup came from."""
    origins = all_sources(context, family)
    if applied is None:
        return origins
    named = {source.name: source for source in (*applied.sources, *origins.sources)}
    enable = dict.fromkeys((*applied.enable, *origins.enable))
    return replace(origins, sources=tuple(named.values()), enable=tuple(enable))


def _lacking(context: Context, prerequisites: tuple[Package, ...]) -> tuple[Package, ...]:
    """Return the prerequisites without those present: headers of older kernels often leave the repositories.

    The metapackage is kept: without it the next kernel would have no headers. What an apply on record asked for is kept
    too: the same command must ask for the same while that apply is under way, and later.
    """
    target, ours = context.facts.kernel.target, record_of(context.facts).requested
    there = context.facts.packages.installed
    headers = target is not None and target.headers
    return tuple(
        package
        for package in prerequisites
        if package.name in ours
        or not ((package.name in there and not package.version) or (headers and _is_headers(context, package)))
    )


def _is_headers(context: Context, package: Package) -> bool:
    return package.name.endswith(context.facts.kernel.next) or (
        package.name.startswith("kernel") and bool(package.version)
    )


def _requirements(
    context: Context, stack: Stack, matrix: Matrix, wheels: tuple[str, ...], interpreter: Interpreter
) -> tuple[str, ...]:
    if not has_python(stack):
        return ()
    if context.settings.python_adopt:
        return adopted_requirements(context.facts, context.settings, stack)
    lines = python_requirements(stack, matrix, wheels=wheels)
    if context.settings.hashed:
        return _hashed(context, lines, interpreter.version)
    return settled(lines, context.facts, context.settings)


def _hashed(context: Context, lines: tuple[str, ...], there: str) -> tuple[str, ...]:
    """Return the hashed lines of a lock for these lines; raise if it has none for this host."""
    wanted = without_caps(lines)  # the kept driver may differ from the lock's
    found = next((item for item in context.settings.hashed if without_caps(item.lines) == wanted), None)
    if found is None:
        raise PreflightError(
            "GS-347",
            "the hashes in the lock do not match the Python packages of this host: " + ", ".join(lines),
            note="the lock has hashes for CUDA libraries as packages only, or as wheels only",
        )
    if context.facts.arch != found.arch or (there and there.split(".")[:2] != found.python.split(".")):
        raise PreflightError(
            "GS-348",
            f"the lock has hashes for Python {found.python} on {found.arch}; this host has {there or 'another one'} "
            f"on {context.facts.arch}",
        )
    return found.hashed


def _services(
    context: Context, packages: PackageSet | None, driver: DriverChoice | None, *, persistence: bool
) -> tuple[str, ...]:
    services = []
    if persistence:
        services.append(DAEMON)
    if packages is not None and packages.fabric and context.facts.nvswitch is not None:
        form = "deb" if packages.manager == "apt" else "rpm"
        rows = [row for row in context.repos.fabric if row.format == form]
        row = next(covering(rows, int(driver.branch)), rows[-1]) if driver is not None else rows[-1]
        services.append(row.service.removesuffix(".service"))
    return tuple(services)


def packed(wanted: Wanted) -> AppliedWanted:
    """Return the part of the wanted state that the host's lock keeps."""
    parts = {item.kept: wanted.parts.get(item.name, item.none) for item in COMPONENTS if item.kept}
    kept = {name: getattr(wanted, name) for name in AppliedWanted.__struct_fields__ if name not in parts}
    of_settings = {name: getattr(wanted.settings, name) for name in AppliedSettings.__struct_fields__}
    return AppliedWanted(**kept | parts | {"settings": AppliedSettings(**of_settings)})


def unpacked(lock: Applied, settings: Settings) -> Wanted:
    """Return the wanted state from a repeatable lock and today's settings."""
    kept = {name: getattr(lock.wanted, name) for name in AppliedWanted.__struct_fields__}
    own = kept.pop("settings")
    settings = replace(settings, **{name: getattr(own, name) for name in AppliedSettings.__struct_fields__})
    wishes = {item.name: kept.pop(item.kept) for item in COMPONENTS if item.kept}
    parts = {name: wish for name, wish in wishes.items() if wish}
    return Wanted(stack=lock.stack or Stack(), settings=settings, parts=parts, **kept)
