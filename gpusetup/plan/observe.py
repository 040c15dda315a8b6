"""What is against what should be: ordered actions with their reasons, and whether a reboot is among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.desktops import desktop_actions, server_reason
from gpusetup.components.imex import imex_actions
from gpusetup.components.judge import versions
from gpusetup.components.mig import mig_actions
from gpusetup.components.python.environments import environment_actions, environment_of, lacking
from gpusetup.components.rdma import gpudirect_actions
from gpusetup.components.record import exporter_of, lost, record_of, runtimes_given_up, unfinished
from gpusetup.components.vgpu import licence_action
from gpusetup.model.package import UNPROVEN, Package
from gpusetup.model.plan import Action, ActionKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.components.base import Wanted
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.monitoring import Exporter
    from gpusetup.model.plan import PackageSet
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import DriverChoice, Stack

__all__ = ["actions", "missing", "removals"]


def missing(packages: PackageSet, installed: dict[str, str]) -> tuple[Package, ...]:
    """Return what is not installed at its version."""
    return tuple(package for package in packages.wanted() if not satisfied(package, installed))


def satisfied(package: Package, installed: dict[str, str]) -> bool:
    """Tell whether a package is installed at the version that it must have."""
    return versions.satisfied(installed, package.name, package.version)


def removals(packages: PackageSet, installed: dict[str, str]) -> tuple[str, ...]:
    """Return installed packages that must go; one that is wanted by name never does."""
    return tuple(judge.drift.unwanted(installed, packages.remove, [package.name for package in packages.wanted()]))


def actions(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    """Yield every change, in the order in which it is made."""
    driver, probed = wanted.stack.driver, judge.probed(facts)
    if driver is not None and wanted.manage_driver:
        yield from _runfile(facts, wanted)
        yield from _nouveau(probed)
    if wanted.packages is not None:
        yield from _repositories(facts, wanted.packages)
        yield from _packages(facts, wanted, wanted.packages)
        yield from _lost(facts, wanted.packages)
        yield from _holds(facts, wanted.packages)
    if driver is not None and wanted.manage_driver:
        yield from _signing(probed, wanted)
        yield from _from_runfile(facts, wanted, probed)
        yield from _module(probed, driver, wanted.settings)
    yield from _services(facts, wanted)
    yield from _default_cuda(facts, wanted)
    yield from _python(facts, wanted)
    yield from environment_actions(facts, wanted.environments)
    yield from _containers(facts, wanted)
    yield from gpudirect_actions(facts, wanted.gpudirect)
    yield from imex_actions(facts, wanted.imex)
    yield from desktop_actions(facts, wanted.desktops)
    yield from mig_actions(facts, wanted.mig)
    yield from licence_action(facts, wanted.settings)
    yield from _monitoring(facts, wanted.monitoring)
    yield from _files(probed)
    yield from _record(facts)


def _action(kind: ActionKind, identity: str, what: str, why: str, *, reboot: bool = False) -> Action:
    return Action(id=f"{kind}-{identity}" if identity else kind, kind=kind, what=what, why=why, reboot=reboot)


def _runfile(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    for install in facts.driver.installs if facts.driver else ():
        ours = bool(record_of(facts).runfile.version)
        file = wanted.packages.runfile if wanted.packages is not None else None
        if install.origin == "runfile" and file is None and (wanted.settings.replace or ours):
            tool = install.uninstaller or "nvidia-uninstall"
            why = "packages and a .run installation overwrite each other; this step cannot be undone"
            yield _action("remove", "runfile", f"the .run driver {install.version or ''} by {tool}", why, reboot=True)


def _from_runfile(facts: HostFacts, wanted: Wanted, probed: dict[str, Any]) -> Iterator[Action]:
    file, driver = wanted.packages.runfile if wanted.packages is not None else None, wanted.stack.driver
    if file is None or driver is None:
        return
    installs = facts.driver.installs if facts.driver else ()
    there = any(install.origin == "runfile" for install in installs)
    if there and not judge.driver.module_problems(probed, judge.wish(driver)):
        return
    what = f"driver {file.version} with {driver.module} kernel modules by {file.path}"
    yield _action("install", "runfile", what, "gpusetup_source names this installer; DKMS builds the modules")


_NOUVEAU_REASONS = {
    "blacklist": "it is not blacklisted",
    "initramfs": "the initramfs of the next boot contains it",
    "loaded": "it is loaded and holds the GPU",
}


def _nouveau(probed: dict[str, Any]) -> Iterator[Action]:
    ways = [way.id for way in judge.nouveau.ways(probed)]
    if ways:
        what = "keep nouveau off the GPU: blacklist, boot argument, initramfs"
        why = "; ".join(dict.fromkeys(_NOUVEAU_REASONS[way] for way in ways))
        yield _action("nouveau", "", what, why, reboot="loaded" in ways)


def _repositories(facts: HostFacts, packages: PackageSet) -> Iterator[Action]:
    configured = {source.uri.rstrip("/") for source in facts.packages.sources}
    components = {
        (suite, component)
        for source in facts.packages.sources
        for suite in source.suites
        for component in source.components
    }
    for source in packages.sources:
        uris, key = source.uris or (), source.key or UNPROVEN
        if like := source.like_suite:
            lacking = [item for item in source.components or () if (like, item) not in components]
            if lacking:
                what = f"{like}: {' '.join(lacking)}"
                yield _action("repository", source.name, what, "the driver's packages are in these components")
        elif not any(uri.rstrip("/") in configured for uri in uris):
            prints = key.fingerprints or ("by the digest of the package that has it",)
            why = f"the packages come from here; key {prints[0]}"
            yield _action("repository", source.name, ", ".join(uris), why)


def _packages(facts: HostFacts, wanted: Wanted, packages: PackageSet) -> Iterator[Action]:
    installed = facts.packages.installed
    gone = removals(packages, installed)
    if gone:
        yield _action("remove", "packages", " ".join(gone), "they conflict with the packages to install")
    stack = wanted.stack
    groups: tuple[tuple[str, tuple[Package, ...], str], ...] = (
        ("prerequisites", packages.prerequisites, "the module is built for the kernel that boots next"),
        ("driver", packages.driver, _driver_reason(facts, stack.driver, packages)),
        (
            "fabric",
            packages.fabric,
            "this machine has NVSwitches; fabric manager must match the driver's version exactly",
        ),
        ("cuda", packages.cuda, "the toolkit of the stack"),
        ("cudnn", packages.cudnn, "cuDNN of the stack"),
        ("nccl", packages.nccl, "NCCL of the stack, built for its CUDA"),
        ("containers", packages.containers, "containers need it to use the GPU"),
        ("rdma", packages.rdma, "RDMA and GPUDirect, as gpusetup_rdma, gpusetup_gdrcopy and gpusetup_gds ask for it"),
        ("monitoring", packages.monitoring, wanted.monitoring.why if wanted.monitoring else ""),
        ("desktops", packages.desktops, server_reason(packages.desktops)),
        ("python", packages.python, _python_reason(stack, wanted.interpreter)),
    )
    for name, group, why in groups:
        lacking = [package for package in group if not satisfied(package, installed)]
        if lacking:
            kind = _kind(lacking, installed)
            yield _action(kind, name, " ".join(str(package) for package in lacking), why)


def _lost(facts: HostFacts, packages: PackageSet) -> Iterator[Action]:
    """What belongs to the packages on record and was taken away since; a driver that moves brings its own."""
    wishes = {package.name: package.version for package in packages.wanted()}
    lost = judge.drift.missing(facts.packages.installed, judge.record(facts), wishes)
    if lost:
        what = " ".join(f"{name}={version}" for name, version in lost.items())
        yield _action("install", "lost", what, "it came with the driver and has been removed")


def _kind(packages: Iterable[Package], installed: dict[str, str]) -> ActionKind:
    moved = [package for package in packages if package.name in installed and package.version]
    if not moved:
        return "install"
    from gpusetup.versions import nv

    old, new = versions.upstream(installed[moved[0].name]), versions.upstream(moved[0].version)
    return "downgrade" if old and new and nv(new) < nv(old) else "upgrade"


def _driver_reason(facts: HostFacts, driver: DriverChoice | None, packages: PackageSet) -> str:
    if driver is None:
        return ""
    now = facts.driver.version if facts.driver is not None else None
    built = "prebuilt " if packages.built == "prebuilt" else ""
    text = f"driver {driver.version} with {built}{driver.module} kernel modules"
    return f"{text}, replacing {now}" if now and now != driver.version else text


def _python_reason(stack: Stack, interpreter: str) -> str:
    if not interpreter or stack.python is None:
        return "an environment is made with it"
    return f"the distribution's own Python {stack.python.version}: its base Python is too old for this stack"


def _holds(facts: HostFacts, packages: PackageSet) -> Iterator[Action]:
    installed, held = facts.packages.installed, set(facts.packages.held)
    libraries = {package.name for package in packages.libraries()}
    named = {package.name for package in (*packages.driver, *packages.fabric)}
    exporters = {package.name for package in packages.monitoring}
    named |= {name for name in libraries | exporters if versions.matches(name, packages.hold)}
    recorded = {name for name in record_of(facts).holds if name in installed}
    wanted = {package.name for package in packages.wanted()}
    obsolete = {name for name in recorded - wanted if not versions.matches(name, packages.hold)}
    kernel = {name for name in installed if _is_kernel(name) and versions.matches(name, packages.hold)}
    why = "an unattended upgrade must not move libraries under a loaded module"
    if (named | recorded) - obsolete - kernel - held:
        if packages.driver:
            yield _action("hold", "driver", "the driver and everything that belongs to it", why)
        else:
            yield _action("hold", "libraries", " ".join(sorted(libraries)), "an unattended upgrade must not move them")
    if kernel - held:
        yield _action("hold", "kernel", "the kernel and the package that updates it", _kernel_reason(packages))
    if obsolete & held:
        yield _action("hold", "release", f"no longer {' '.join(sorted(obsolete & held))}", "nothing needs it now")


def _kernel_reason(packages: PackageSet) -> str:
    if packages.keeps_kernel:
        return "no package would bring prebuilt modules for the next kernel"
    return "gpusetup_hold_kernel asks for it"


def _is_kernel(name: str) -> bool:
    return name.startswith(("linux-", "kernel")) and "nvidia" not in name


def _signing(probed: dict[str, Any], wanted: Wanted) -> Iterator[Action]:
    if wanted.settings.secure_boot != "enroll" or wanted.prebuilt or not judge.driver.key_unknown(probed):
        return
    what = f"enrol the key that signs the module ({wanted.settings.signing_certificate or 'DKMS makes it'})"
    why = "Secure Boot is on and the firmware does not trust this key; confirm it at the console during the next boot"
    yield _action("module", "enrol", what, why, reboot=True)


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
        yield _action("module", "build", what, f"the kernel that boots next needs its module; {have}")
    reasons = judge.driver.reboot_reasons(probed, wish)
    free = judge.driver.obstacle(judge.driver.built(probed, wish), wish) is None
    if reasons and settings.reload == "never":
        yield _action("reboot", "", "reboot", "; ".join((*reasons, "gpusetup_reload is never")), reboot=True)
    elif reasons and free:  # only the kernel itself says whether it takes the module
        why = "; ".join((*reasons, "reboots only if the kernel cannot load the module now"))
        yield _action("module", "load", f"nvidia {choice.version}", why, reboot=True)
    elif reasons:
        yield _action("reboot", "", "reboot", "; ".join(reasons), reboot=True)


def _services(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    seen = {service.unit.removesuffix(".service"): service for service in facts.services.values()}
    for name in wanted.services:
        service = seen.get(name)
        if service is None or service.enabled not in judge.names.ENABLED:
            why = "GPUs stay initialised between programs" if "persistence" in name else "the NVLink fabric needs it"
            yield _action("service", name, f"enable {name}", why)


def _python(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    if not wanted.requirements or wanted.adopted:
        return
    have = environment_of(facts, wanted.settings)
    wish = wanted.stack.python.version if wanted.stack.python is not None else None
    other = have is not None and wish is not None and have.version != ".".join(wish.split(".")[:2])
    lines = wanted.requirements
    todo = [line for line in lines if not line.startswith("-")] if other else lacking(lines, facts, wanted.settings)
    if todo:
        what = " ".join(line.partition(" --hash")[0] for line in todo)
        where = wanted.settings.python_path
        yield _action("python", "packages", f"{what} in {where}", "the GPU frameworks of the stack")


def _default_cuda(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    """Among several toolkits the first is the default, and the others keep their own places."""
    packages = wanted.packages
    if packages is None or len(packages.cuda_roots) < 2:
        return
    path = next(root.path for root in packages.cuda_roots if root.version == packages.cuda_default)
    if facts.cuda.default != path:
        others = ", ".join(root.path for root in packages.cuda_roots if root.path != path)
        yield _action(
            "service", "cuda-default", f"/usr/local/cuda is {path}", f"it was named first; beside it: {others}"
        )


def _containers(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    gone = runtimes_given_up(facts, wanted.settings)
    if gone:
        why = "gpusetup_containers names them no more"
        yield _action("container", "given-up", f"settings of {', '.join(gone)} as before", why)
    lacking = [name for name in wanted.settings.containers if name not in facts.containers.configured]
    if lacking:
        yield _action("container", "runtimes", ", ".join(lacking), "these runtimes are not configured for the GPU yet")
    if wanted.settings.containers and judge.drift.described_otherwise(judge.probed(facts)):
        was = ", ".join(facts.containers.cdi_drivers)
        why = f"it describes driver {was}, but another one is loaded: containers would not start"
        yield _action("container", "cdi", "describe the GPUs to container runtimes again (CDI)", why)


def _monitoring(facts: HostFacts, wanted: Exporter | None) -> Iterator[Action]:
    """What exports the figures is set up, changed, or taken away; a unit of it that is off is switched on."""
    before = exporter_of(facts)
    if wanted is None:
        if before is not None:
            yield _action("monitoring", "none", f"no longer {before.kind}", "gpusetup_monitoring asks for it no more")
        return
    where = f" on {wanted.listen}" if wanted.listen else f", a file in {wanted.folder}"
    what = f"{wanted.kind}{f' {wanted.dcgm}' if wanted.dcgm else ''}{where}"
    if before is None or replace(before, why="") != replace(wanted, why=""):
        yield _action("monitoring", "exporter", what, wanted.why)
        return
    off = [item.what for item in judge.drift.monitoring_units(judge.probed(facts), judge.record(facts))]
    if off:
        yield _action("monitoring", "exporter", what, f"{', '.join(off)} is not running")


def _files(probed: dict[str, Any]) -> Iterator[Action]:
    """What an earlier apply wrote and somebody else changed since."""
    for found in judge.drift.files(probed, probed["state"] or {}):
        identity = found.what.strip("/").replace("/", "-")
        yield _action("file", identity, found.what, f"it is {found.now}, and was {found.was}")


def _record(facts: HostFacts) -> Iterator[Action]:
    """A host is as wanted only when its record says so too."""
    begun = unfinished(facts)
    if begun is not None:
        what = "finish the interrupted apply, verify it and record it"
        yield _action("record", "unfinished", what, f"apply {begun.id} began and has not finished")
    elif found := list(judge.drift.unfinished({}, judge.record(facts))):
        what = "finish what was begun: " + ", ".join(item.what for item in found)
        yield _action("record", "open", what, "; ".join(f"{item.what}: {item.now}" for item in found))
    elif reason := lost(facts):
        yield _action("record", "lost", "start a new record of what gpusetup does here", reason)
    for left in judge.drift.waits(judge.probed(facts), judge.record(facts)):
        yield _action("record", left.id, "what the last apply left waiting", left.what)
