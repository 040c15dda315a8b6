"""What an apply left against what the host is now, and what mends each difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.lifecycle import Difference, Mend
from gpusetup.plan.judge import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.model.facts import HostFacts

__all__ = ["applied_id", "differences", "file_differences"]

_ENABLED = {"enabled", "enabled-runtime", "static", "alias", "generated", "indirect"}
_NOUVEAU_FILE = "/etc/modprobe.d/gpusetup-nouveau.conf"


def applied_id(facts: HostFacts) -> str:
    """Return the id of the apply on record, nothing when there is none."""
    return str(_part(facts.state or {}, "apply").get("id") or "")


def differences(facts: HostFacts) -> tuple[Difference, ...]:
    """Return everything that is no longer as the last apply left it."""
    record = facts.state or {}
    apply = _part(record, "apply")
    if apply and not apply.get("finished"):
        started = f"apply {apply.get('id')} began and has not finished"
        return (_difference("apply", "the last apply", "finished", started, "apply"),)
    found = [
        *_packages(facts, record),
        *_holds(facts, record),
        *file_differences(facts),
        *_module(facts, record),
        *_nouveau(facts, record),
        *_fabric(facts, record),
        *_services(facts, record),
        *_python(facts, record),
    ]
    return tuple(found)


def file_differences(facts: HostFacts) -> Iterator[Difference]:
    """Yield the recorded files that somebody else changed since."""
    for path, entry in sorted(_part(facts.state or {}, "files").items()):
        if not isinstance(entry, dict) or "now" not in entry:
            continue
        now, wanted = entry["now"], entry.get("sha256") if entry.get("present", True) else None
        if now == wanted:
            continue
        became = "missing" if now is None else "changed" if wanted is not None else "there again"
        was = "taken away" if wanted is None else "as gpusetup wrote it"
        yield _difference(f"file-{path}", path, was, became, "apply")


def _difference(identity: str, what: str, was: str, now: str, mend: Mend) -> Difference:
    return Difference(id=identity, what=what, was=was, now=now, mend=mend)


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _packages(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    """The packages asked for, and those that were held because they belong to them."""
    brought = _part(record, "brought")
    closure = {name: brought[name] for name in record.get("holds") or () if name in brought}
    for name, version in sorted((closure | _part(record, "packages")).items()):
        recorded = versions.bare(str(version))
        now = versions.version_of(facts.packages.installed, name, recorded)
        if now != recorded:
            yield _difference(f"package-{name}", f"package {name}", recorded, now or "not installed", "apply")
    for problem in facts.packages.problems:
        yield _difference("packages", "the package database", "sound", problem, "apply")


def _holds(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    for name in record.get("holds") or ():
        if name not in facts.packages.held and name in facts.packages.installed:
            yield _difference(f"hold-{name}", f"hold of {name}", "held", "free to move", "apply")


def _module(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    """The module on disk for each kernel that counts, the one that is loaded, the libraries beside them."""
    expect = _part(record, "expect")
    version, flavour = expect.get("driver_version"), expect.get("driver_module")
    if not version:
        return
    on_disk = True
    for release in expect.get("kernels") or (facts.kernel.next,):
        kernel = next((item for item in facts.kernel.installed if item.release == release), None)
        module = kernel.nvidia if kernel is not None else None
        now = f"{module.version} ({module.flavour or 'unknown'})" if module is not None else "there is none"
        if module is None or module.version != version or (flavour and module.flavour not in {None, flavour}):
            on_disk = False
            what = f"nvidia module for kernel {release}, which boots next"
            yield _difference(f"module-{release}", what, f"{version} ({flavour or 'any'})", now, "apply")
    driver = facts.driver
    loaded = driver.loaded if driver is not None else None
    if loaded is None:
        yield _difference("loaded", "nvidia module in the kernel", version, "none is loaded", _after(on_disk))
    elif loaded.version != version or (flavour and loaded.flavour not in {None, flavour}):
        now = f"{loaded.version} ({loaded.flavour or 'unknown'})"
        yield _difference("loaded", "nvidia module in the kernel", f"{version} ({flavour})", now, _after(on_disk))
    if driver is not None and driver.library is not None and driver.library != version:
        yield _difference("library", "the driver's libraries", version, driver.library, "apply")


def _after(on_disk: bool) -> Mend:
    """What is on disk needs a boot; what is not must be installed first."""
    return "reboot" if on_disk else "apply"


def _nouveau(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    if _NOUVEAU_FILE not in _part(record, "files"):
        return
    images = [item for item in facts.nouveau.initramfs if item.kernel == facts.kernel.next]
    for image in images:
        if image.nouveau and image.blacklist is False:
            yield _difference("nouveau-initramfs", image.path, "keeps nouveau out", "would start nouveau", "apply")
    if not facts.nouveau.blacklisted:
        yield _difference("nouveau-blacklist", "nouveau", "blacklisted", "free to load", "apply")
    if facts.nouveau.loaded:
        yield _difference("nouveau-loaded", "nouveau", "not loaded", "loaded: it holds the GPU", "reboot")


def _fabric(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    """Fabric Manager starts only beside exactly its own version of the driver."""
    version = _part(record, "expect").get("driver_version")
    known = _part(record, "packages")
    for name, installed in sorted(facts.packages.installed.items()):
        if (
            version
            and "fabricmanager" in name
            and name not in known
            and versions.upstream(installed) not in {"", version}
        ):
            yield _difference(f"fabric-{name}", f"package {name}", f"{version}, as the driver", installed, "apply")


def _services(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    seen = {service.unit: service for service in facts.services.values()}
    for unit, wanted in sorted(_part(record, "services").items()):
        service = seen.get(unit)
        if not isinstance(wanted, dict) or not wanted.get("enabled"):
            continue
        if service is None:
            yield _difference(f"service-{unit}", unit, "enabled", "there is no such unit", "apply")
        elif service.enabled is not None and service.enabled not in _ENABLED:
            yield _difference(f"service-{unit}", unit, "enabled", service.enabled, "apply")
        elif service.active == "failed" and not facts.simulated:  # no daemon can open a simulated GPU
            yield _difference(f"service-{unit}", unit, "running", "failed", "apply")


def _python(facts: HostFacts, record: dict[str, Any]) -> Iterator[Difference]:
    expect = _part(_part(record, "expect"), "python")
    path = str(expect.get("path") or "")
    if not path or expect.get("adopted"):
        return
    have = next((item for item in facts.pythons if item.path in {f"{path}/bin/python", f"{path}/bin/python3"}), None)
    if have is None:
        yield _difference("python", f"the environment {path}", "installed", "missing", "apply")
        return
    now = {_canonical(name): version for name, version in have.packages.items()}
    for name, version in sorted(_part(expect, "packages").items()):
        if now.get(_canonical(name), version) != version:
            what = f"{name} in {path}"
            yield _difference(f"python-{name}", what, str(version), now[_canonical(name)], "apply")


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
