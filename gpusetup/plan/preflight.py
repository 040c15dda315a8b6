"""Refusals before anything changes: of the host, of its driver, by the site's policy, from a preview."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Offers, Wanted, working_driver
from gpusetup.components.judge import Judged
from gpusetup.components.record import record_of
from gpusetup.components.vgpu import guest_refusals, vgpu_refusal
from gpusetup.errors import Exit, GpuSetupError, NoStackError, references, shipped
from gpusetup.matrix.gpus import instances, plain_type
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.systems import is_jetson
from gpusetup.model.facts import Failure, HostFacts, Packages
from gpusetup.model.plan import HostPlan, PackageSet, Preview, Refusal
from gpusetup.model.request import Policy, Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import DriverChoice, Resolution, Stack
from gpusetup.model.tables import KernelPairsFile
from gpusetup.resolve.policy import TITLES, breaches
from gpusetup.versions import cuda_minor, named_exactly, nv


def refusal_of(error: GpuSetupError, note: str = "") -> Refusal:
    """Return an error as the refusal of one host; `note`, if given, replaces the error's own."""
    return Refusal(
        reference=error.reference,
        message=error.message,
        note=note or error.note,
        hint=error.hint,
        source=error.link,
        exit=int(error.exit),
    )


def refusal_not_seen(failure: Failure) -> Refusal:
    """Return the refusal of a host whose facts could not be read."""
    return Refusal(reference=failure.reference, message=failure.message, hint=failure.hint, exit=failure.exit)


def findings(answer: Preview) -> tuple[Refusal, ...]:
    """Return the refusals among a preview's findings."""
    return tuple(
        Refusal(
            reference=item.reference or "GS-329",
            message=item.text,
            hint=item.hint or _hint(item.text),
            exit=int(Exit.UNREACHABLE) if item.id == "repository" else int(Exit.REFUSED),
        )
        for item in answer.findings
        if item.level == "refuse"
    )


def _hint(text: str) -> str:
    if "nothing provides dkms" in text:
        return (
            "dkms comes from EPEL: dnf install epel-release on the host, or name a mirror of it in "
            "gpusetup_extra_sources; a RHEL needs its subscription for CodeReady Builder too"
        )
    return "" if not text else "nothing was changed; the repositories conflict with the installed packages"


Guest = Literal["wsl", "container", "jetson"]
"""Machines that use a driver from elsewhere."""

_WORDS = json.loads(shipped("plan/data/hosts.json"))
_DRIVER_GUESTS: dict[Guest, list[str]] = _WORDS["guests"]
_ORIGINS: dict[str, str] = _WORDS["origins"]


_TAKES_A_KEY = "3.0.4"
"""The first DKMS whose settings can name the signing key."""
_CHOOSE = "gpusetup apply    (without --recorded it chooses what the policy allows)"
NO_GPU = "no NVIDIA GPU on PCI: nothing to do"
_ROOM_TO_LOOK = 64 << 20


def host_refusals(facts: HostFacts) -> Iterator[Refusal]:
    """Yield refusals that hold for any wish: a damaged package database, a read-only or full file system."""
    problems = [text for text in facts.packages.problems if "dpkg was interrupted" not in text]
    # What an unfinished apply of ours left so is for its next transaction.
    broken = [text for text in problems if "must be reinstalled" in text and record_of(facts).unfinished is None]
    if broken:
        names = " ".join(text.partition(" ")[0] for text in broken)
        yield Refusal(
            reference="GS-320",
            message="the package database is damaged: " + "; ".join(broken[:3]),
            note="an earlier installation was interrupted",
            hint=references()["GS-320"]["fix"].replace("PACKAGES, those that the message names", names),
        )
    for place in ("/", "/usr", "/var"):
        disk = facts.disks.get(place)
        if disk is not None and not disk.writable:
            yield Refusal(
                reference="GS-321",
                message=f"{place} cannot be written",
                note="it is mounted read-only, or failing",
                hint=f"check it with: findmnt {place}; dmesg | tail",
            )
        elif disk is not None and disk.free < _ROOM_TO_LOOK:
            yield Refusal(
                reference="GS-332",
                message=f"{place} is full: {disk.free >> 20} MB are free",
                note="not even the package lists fit; nothing was changed",
                hint="free some space, for example: apt-get clean; journalctl --vacuum-size=100M",
            )
            return


def maintenance_refusal(facts: HostFacts, settings: Settings) -> Refusal | None:
    """Return the refusal of a host for which its cloud has announced maintenance; None for all other hosts."""
    events = facts.virtualisation.events
    if not events or settings.despite_maintenance:
        return None
    return Refusal(
        reference="GS-359",
        message="the cloud announces " + "; ".join(map(str, events)),
        note="it could cut the installation; nothing was changed",
        hint="run this command again when the maintenance is over; or change the host now: add --despite-maintenance",
    )


def cloud_notes(facts: HostFacts, matrix: Matrix) -> Iterator[str]:
    """Yield warnings: announced maintenance, and fewer GPUs than the machine type has."""
    if facts.virtualisation.events:
        yield "the cloud announces " + "; ".join(map(str, facts.virtualisation.events))
    found = instances(matrix).get(plain_type(facts.virtualisation.machine_type))
    if found is not None and len(facts.gpus) < found.count and not facts.simulated:
        yield f"a {found.name} has {found.count} GPUs, here it has {len(facts.gpus)}"


def foreign_driver(facts: HostFacts) -> Refusal | None:
    """Return the refusal of WSL and Jetson, which get no stack at all; None for all other hosts."""
    kind = borrowed_from(facts)
    return guest_refusal(kind) if kind is not None and kind != "container" else None


def borrowed_from(facts: HostFacts) -> Guest | None:
    """Return the kind of machine if its driver comes from elsewhere; None for all other hosts."""
    if facts.simulated:
        return None
    if facts.virtualisation.driver_refused is None and is_jetson(facts.kernel.running):
        return "jetson"
    return facts.virtualisation.driver_refused


def driver_refusals(host: Judged, wanted: Wanted, offers: Offers, matrix: Matrix) -> Iterator[Refusal]:
    """Yield why the chosen driver must not be installed on this host."""
    facts, settings, choice, packages = host.facts, wanted.settings, wanted.stack.driver, wanted.packages
    if not wanted.manage_driver or choice is None or choice.installed or packages is None:
        return
    refused = borrowed_from(facts)
    if refused is not None:
        yield guest_refusal(refused)
    yield from guest_refusals(facts, settings, choice.version, matrix)
    yield from _origins(facts, settings, packages)
    if wanted.signer and judge.driver.secure_boot(host.probed):
        yield _unknown_signer(wanted.signer)
    if packages.built != "prebuilt":
        unsigned = settings.secure_boot == "refuse" and not settings.signing_key
        if unsigned and judge.driver.key_unknown(host.probed):
            yield _secure_boot(facts)
        if settings.signing_key:
            yield from _old_dkms(facts.packages, offers)
        yield from _pairs(facts, choice, packages, matrix.kernel_pairs)


def policy_refusals(
    facts: HostFacts, policy: Policy | None, matrix: Matrix, *, after: HostPlan | None = None, way: str = _CHOOSE
) -> Iterator[Refusal]:
    """Yield how a host, as it is or `after` a plan, breaks the policy; `way` is the command that mends it."""
    if policy is None:
        return
    stack = (after.stack if after is not None else None) or Stack()
    there = stack.driver or facts.driver
    kept = [part.version for part in (stack.cuda, *stack.cudas) if part is not None]
    has = [("driver", there.version if there is not None else None, way), *(("cuda", one, way) for one in kept)]
    for toolkit in facts.cuda.toolkits:
        minor = cuda_minor(toolkit.version or "")
        package = f"cuda-toolkit-{minor.replace('.', '-')}"
        if minor in map(cuda_minor, kept) or (after is not None and package in after.removals):
            continue
        remove = f"sudo {_REMOVE[facts.packages.manager or 'apt']} remove {package}"
        by_hand = remove if package in facts.packages.installed else f"sudo {toolkit.path}/bin/cuda-uninstaller"
        has.append(("cuda", toolkit.version, way if package in record_of(facts).brought else by_hand))
    for component, version, mend in has:
        for key, why in breaches(policy, matrix, component, version) if version else ():
            text = f"{TITLES[component]} {version} breaks the policy: {policy.quoted(key)}"
            yield Refusal(reference="GS-358", message=text, note=why, hint=mend)


_REMOVE = {"apt": "apt-get", "dnf": "dnf", "zypper": "zypper"}


def guest_refusal(kind: Guest) -> Refusal:
    """Return the refusal of a machine whose driver comes from elsewhere."""
    message, hint = _DRIVER_GUESTS[kind]
    return Refusal(reference="GS-322", message=f"cannot install a driver here: {message}", hint=hint)


def no_stack_refusal(error: GpuSetupError, facts: HostFacts, *, offered: bool) -> Refusal:
    """Return the refusal of a host that no stack fits; `offered`: only drivers in its repositories were considered."""
    none_fits, kind = isinstance(error, NoStackError), borrowed_from(facts)
    if none_fits and kind is not None:
        return replace(guest_refusal(kind), note=error.note)
    head = f"only drivers in the repositories of {facts.os.label} were considered\n  " if none_fits and offered else ""
    return refusal_of(error, head + error.note)


def homeless_refusal(names: tuple[str, ...]) -> Refusal:
    """Return the refusal of libraries that neither packages nor wheels provide here."""
    return Refusal(
        reference="GS-333",
        message=f"no source here provides {', '.join(names)} of this stack",
        note="the repositories have no packages for them, and gpusetup installs wheels only with a Python framework",
        hint="add cupy or a framework, use another gpusetup_source, or remove them from gpusetup_components",
    )


def _origins(facts: HostFacts, settings: Settings, packages: PackageSet) -> Iterator[Refusal]:
    installs = facts.driver.installs if facts.driver is not None else ()
    ours = "distribution" if settings.source == "distro" else "nvidia"
    if packages.runfile is not None:
        ours = "runfile"
    elif record_of(facts).runfile.version:
        installs = tuple(
            install for install in installs if install.origin != "runfile"
        )  # gpusetup installed it and may replace it
    wanted = {package.name for package in packages.driver}
    # gpusetup may replace packages that it installed: the record says how to undo that.
    wanted |= set(record_of(facts).brought)
    for install in installs:
        if install.origin == "runfile" == ours:
            continue  # its own installer replaces it
        if install.origin == "runfile" and not settings.replace:
            yield Refusal(
                reference="GS-324",
                message=f"a driver from a .run installer is on this host ({install.version or 'version unknown'})",
                note="packages would overwrite its files",
                hint="apply --replace first removes it with its own uninstaller, which cannot be undone. "
                "Or keep it: gpusetup uses it when it fits the request",
            )
        elif install.origin not in {ours, "runfile"} and not settings.replace:
            names = ", ".join(install.packages[:4]) + (" …" if len(install.packages) > 4 else "")
            if set(install.packages) <= wanted:
                continue
            yield Refusal(
                reference="GS-325",
                message=f"a driver from {_ORIGINS[install.origin]} is installed: {names}",
                note=f"drivers from two sources break each other, and this plan uses {_ORIGINS[ours]}",
                hint=_source_hint(install.origin),
            )


def _source_hint(origin: str) -> str:
    same = {
        "distribution": "gpusetup_source=distro keeps its source; ",
        "nvidia": "gpusetup_source=nvidia keeps its source; ",
    }
    return same.get(origin, "") + "apply --replace replaces it in one transaction"


def _secure_boot(facts: HostFacts) -> Refusal:
    firmware, usual = judge.firmware, facts.os.id == "ubuntu"
    key = next((key.path for key in facts.firmware.signing_keys), firmware.UBUNTU_KEY if usual else firmware.DKMS_KEY)
    return Refusal(
        reference="GS-326",
        message="Secure Boot is on, and the key that signs modules built here is not enrolled",
        note="the kernel would reject the module after the reboot (Key was rejected by service)",
        hint="gpusetup_secure_boot=enroll installs, stages the enrolment and waits for the reboot at the console. "
        f"By hand, on the host: mokutil --import {key} (choose a one-time password), reboot, at the console choose "
        "Enroll MOK and type that password, then repeat this command. Or take signed modules where the "
        "distribution has them: gpusetup_source=distro on Ubuntu",
    )


def _old_dkms(packages: Packages, offers: Offers) -> Iterator[Refusal]:
    there = packages.installed.get("dkms")
    version = next((text for text in [there, *offers.versions("dkms")] if text), "")
    release = judge.versions.upstream(version)
    if release and nv(release) < nv(_TAKES_A_KEY):
        yield Refusal(
            reference="GS-357",
            message=f"DKMS {release} cannot sign with the site's key (gpusetup_signing_key): it takes none "
            f"before {_TAKES_A_KEY}",
            note="it would sign with its own key, or not at all",
            hint="on Ubuntu leave gpusetup_signing_key unset and put the site's key and certificate to "
            f"{judge.firmware.UBUNTU_PRIVATE_KEY} and {judge.firmware.UBUNTU_KEY}, which such a DKMS uses. "
            f"Elsewhere install DKMS {_TAKES_A_KEY} or newer first",
        )


def _unknown_signer(signer: str) -> Refusal:
    return Refusal(
        reference="GS-351",
        message=f"Secure Boot is on, and the prebuilt modules are signed by {signer}, whose key firmware does not "
        "trust by default",
        note="the kernel would reject them after the reboot (Loading of module with unavailable key is rejected)",
        hint="use gpusetup_module=dkms with gpusetup_secure_boot=enroll: DKMS signs with a key that you enrol once",
    )


def _pairs(facts: HostFacts, choice: DriverChoice, packages: PackageSet, pairs: KernelPairsFile) -> Iterator[Refusal]:
    release = facts.kernel.next
    match = re.match(r"\d+(?:\.\d+)*", release)
    if match is None:
        return
    kernel = nv(match.group())
    versions = {package.version for package in packages.driver}
    for pair in pairs.pairs:
        if (
            named_exactly(f"=={pair.driver}.*", choice.version)
            and pair.module in {"any", choice.module}
            and (not pair.systems or facts.os.label in pair.systems)
            and (not pair.package or pair.package in versions)
            and kernel >= nv(pair.kernel_from)
            and (not pair.kernel_below or kernel < nv(pair.kernel_below))
        ):
            what = pair.package or choice.version
            yield Refusal(
                reference="GS-327",
                message=f"driver {what} ({choice.module} module) does not build for kernel {release}",
                note=f"known failure: {pair.symptom}",
                hint=pair.way_out,
                source=", ".join(pair.sources),
                exit=int(Exit.REFUSED),
            )


def apply_refused(facts: HostFacts, matrix: Matrix, resolve: Callable[[Request, Matrix], Resolution]) -> Refusal | None:
    """Return why apply would install no driver here, whatever is asked for; None if it may."""
    if facts.simulated or working_driver(facts) is not None:
        return None
    kind = borrowed_from(facts)
    if kind is not None:
        return guest_refusal(kind)
    if facts.vgpu_guest:
        return vgpu_refusal()
    gpus = tuple(sorted({gpu.pci_id for gpu in facts.gpus}))
    try:
        resolve(Request(requirements=(Requirement(component="driver"),), gpus=gpus), matrix)
    except NoStackError as error:
        return refusal_of(error)
    return None
