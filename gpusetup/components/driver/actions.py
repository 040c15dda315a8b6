"""The driver component: actions for nouveau, `.run` installations, kernel modules, signing keys and services."""

import re
from collections.abc import Iterator
from typing import Any, get_args

from msgspec import UNSET

from gpusetup.components import judge
from gpusetup.components.base import Component, Context, Group, Wanted, action
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import choice, path, wrong, yes
from gpusetup.components.record import record_of
from gpusetup.model.facts import HostFacts
from gpusetup.model.plan import Action
from gpusetup.model.settings import DriverOptions, ModuleWay, ReloadPolicy, Settings
from gpusetup.model.stack import DriverChoice


def _first(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the removals that must precede the package transaction."""
    if wanted.stack.driver is not None and wanted.manage_driver:
        yield from _old_runfile(host.facts, wanted)
        yield from _nouveau(host.probed)


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    driver = wanted.stack.driver
    if driver is not None and wanted.manage_driver:
        yield from _signing(host.probed, wanted)
        yield from _from_runfile(host.facts, wanted, host.probed)
        yield from _module(host.probed, driver, wanted.settings)
        yield from _changed_options(host.facts, wanted.settings.driver_options)
    yield from _services(host.facts, wanted)


def _old_runfile(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    for install in facts.driver.installs if facts.driver else ():
        ours = bool(record_of(facts).runfile.version)
        file = wanted.packages.runfile if wanted.packages is not None else None
        if install.origin == "runfile" and file is None and (wanted.settings.replace or ours):
            tool = install.uninstaller or "nvidia-uninstall"
            why = "packages and a .run installation overwrite each other; this step cannot be undone"
            yield action("remove", "runfile", f"the .run driver {install.version or ''} by {tool}", why, reboot=True)


def _from_runfile(facts: HostFacts, wanted: Wanted, probed: dict[str, Any]) -> Iterator[Action]:
    file, driver = wanted.packages.runfile if wanted.packages is not None else None, wanted.stack.driver
    if file is None or driver is None:
        return
    installs = facts.driver.installs if facts.driver else ()
    there = any(install.origin == "runfile" for install in installs)
    if there and not judge.driver.module_problems(probed, judge.wish(driver)):
        return
    what = f"driver {file.version} with {driver.module} kernel modules by {file.path}"
    yield action("install", "runfile", what, "gpusetup_source names this installer; DKMS builds the modules")


_NOUVEAU_REASONS = {
    "blacklist": "it is not blacklisted",
    "initramfs": "the initramfs of the next boot contains it",
    "loaded": "it is loaded and holds the GPU",
}


def _nouveau(probed: dict[str, Any]) -> Iterator[Action]:
    ways = [way.id for way in judge.driver.nouveau_ways(probed)]
    if ways:
        what = "keep nouveau off the GPU: blacklist, boot argument, initramfs"
        why = "; ".join(dict.fromkeys(_NOUVEAU_REASONS[way] for way in ways))
        yield action("nouveau", "", what, why, reboot="loaded" in ways)


def _signing(probed: dict[str, Any], wanted: Wanted) -> Iterator[Action]:
    if wanted.settings.secure_boot != "enroll" or wanted.prebuilt or not judge.driver.key_unknown(probed):
        return
    what = f"enrol the key that signs the module ({wanted.settings.signing_certificate or 'DKMS makes it'})"
    why = "Secure Boot is on and the firmware does not trust this key; confirm it at the console during the next boot"
    yield action("module", "enrol", what, why, reboot=True)


def _module(probed: dict[str, Any], choice: DriverChoice, settings: Settings) -> Iterator[Action]:
    wish = judge.wish(choice)
    for kernel in judge.driver.module_problems(probed, wish):
        found = judge.driver.module_of(probed, kernel)
        have = (
            "none is installed"
            if found is None
            else f"{found['version']} ({found['flavour'] or 'unknown'}) is installed"
        )
        what = f"nvidia {choice.version} ({choice.module}) for kernel {kernel}"
        yield action("module", "build", what, f"the kernel that boots next needs its module; {have}")
    reasons = judge.driver.reboot_reasons(probed, wish)
    free = judge.driver.obstacle(judge.driver.built(probed, wish), wish) is None
    if reasons and settings.reload == "never":
        yield action("reboot", "", "reboot", "; ".join((*reasons, "gpusetup_reload is never")), reboot=True)
    elif reasons and free:  # only the kernel itself says whether it takes the module
        why = "; ".join((*reasons, "reboots only if the kernel cannot load the module now"))
        yield action("module", "load", f"nvidia {choice.version}", why, reboot=True)
    elif reasons:
        yield action("reboot", "", "reboot", "; ".join(reasons), reboot=True)


def _changed_options(facts: HostFacts, options: DriverOptions) -> Iterator[Action]:
    """Yield the action for module options that differ from those of the latest lock."""
    lock = next(iter(record_of(facts).locks), None)
    if options != (lock.wanted.settings.driver_options if lock is not None and lock.wanted is not None else {}):
        what = ", ".join(f"{name}={value}" for name, value in options.items()) or "none"
        why = "set by gpusetup_driver_options; reboots only if the module cannot be loaded again now"
        yield action("module", "options", f"options of nvidia: {what}", why, reboot=True)


def _notes(_context: Context, wanted: Wanted) -> Iterator[str]:
    if wanted.settings.driver_options and not wanted.manage_driver:
        yield "gpusetup_driver_options has no effect: gpusetup did not install this driver"


DAEMON = "nvidia-persistenced"
_PACKAGES_OF_DAEMON = ("nvidia-persistenced*", "nvidia-compute-utils", "nvidia-compute-utils-[0-9]*")


def _gives_up(facts: HostFacts, wanted: Wanted) -> bool:
    """Return whether the persistence daemon is ours, and no setting asks for it or this driver comes without it."""
    ours = f"{DAEMON}.service" in record_of(facts).services and DAEMON not in wanted.services
    return ours and (wanted.manage_driver or not wanted.settings.persistence)


def _services(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    seen = {service.unit.removesuffix(".service"): service for service in facts.services.values()}
    if _gives_up(facts, wanted):
        why = "this driver comes without it" if wanted.settings.persistence else "gpusetup_persistence is no longer set"
        yield action("service", f"{DAEMON}-given-up", f"{DAEMON} as before", why)
    for name in wanted.services:
        service = seen.get(name)
        if service is None or service.enabled not in judge.names.ENABLED:
            why = "GPUs stay initialised between programs" if "persistence" in name else "the NVLink fabric needs it"
            yield action("service", name, f"enable {name}", why)


def _why(host: Judged, wanted: Wanted) -> str:
    facts, driver, packages = host.facts, wanted.stack.driver, wanted.packages
    if driver is None or packages is None:
        return ""
    now = facts.driver.version if facts.driver is not None else None
    built = "prebuilt " if packages.built == "prebuilt" else ""
    text = f"driver {driver.version} with {built}{driver.module} kernel modules"
    return f"{text}, replacing {now}" if now and now != driver.version else text


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    settings, driver = wanted.settings, wanted.stack.driver
    fabric = tuple(name for name in wanted.services if "fabricmanager" in name)
    services = {
        "gpu_fabric_services": fabric,
        "gpu_persistence_services": tuple(name for name in wanted.services if name not in fabric),
        "gpu_persistence_give_up": _gives_up(facts, wanted) or UNSET,
    }
    if driver is None or not wanted.manage_driver:
        return services
    runfile = wanted.packages.runfile if wanted.packages is not None else None
    return {
        **services,
        "gpu_nouveau_blacklist": True,
        "gpu_driver_version": driver.version,
        "gpu_driver_module": driver.module,
        "gpu_driver_reload": settings.reload == "idle",
        "gpu_driver_options": settings.driver_options,
        "gpu_driver_replace_runfile": settings.replace or bool(record_of(facts).runfile.version),
        "gpu_driver_enroll_key": settings.secure_boot == "enroll" and not wanted.prebuilt,
        "gpu_driver_signing_key": settings.signing_key,
        "gpu_driver_signing_certificate": settings.signing_certificate,
        "gpu_driver_runfile": runfile.path if runfile is not None else UNSET,
        "gpu_driver_runfile_sha256": (runfile.sha256 or UNSET) if runfile is not None else UNSET,
    }


def _way(value: Any, label: str) -> str:
    if str(value) in {"open", "proprietary"}:
        wanted = ", ".join(get_args(ModuleWay))
        raise wrong(label, value, f"one of: {wanted}. Open or proprietary follows from the GPU and the driver")
    return str(choice(*get_args(ModuleWay))(value, label))


def _options(value: Any, label: str) -> DriverOptions:
    if not isinstance(value, dict) or not all(
        re.fullmatch(r"NVreg_[A-Za-z0-9]+", str(name))
        and isinstance(item, str | int | float)
        and re.fullmatch(r"[\w.,:;=/-]*", str(item))
        for name, item in value.items()
    ):
        raise wrong(label, value, "a mapping of NVreg_… names to plain values")
    return value


DRIVER = Component(
    name="driver",
    settings={
        "reload": choice(*get_args(ReloadPolicy)),
        "module": _way,
        "secure_boot": choice("refuse", "enroll"),
        "signing_key": path,
        "signing_certificate": path,
        "persistence": yes,
        "hold_kernel": yes,
        "driver_options": _options,
    },
    packages={
        "prerequisites": Group("the module is built for the kernel that boots next"),
        "driver": Group(_why, "gpu_driver_packages", leaves=_PACKAGES_OF_DAEMON),
        "fabric": Group(
            "this machine has NVSwitches; fabric manager must match the driver's version exactly", "gpu_fabric_packages"
        ),
    },
    notes=_notes,
    first=_first,
    actions=_actions,
    variables=_variables,
)
