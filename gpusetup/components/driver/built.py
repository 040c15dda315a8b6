"""Kernel modules that come built, or that DKMS builds on the host: which there are, which are taken, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import covering, glob, named
from gpusetup.model.plan import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.components.base import Context, Family
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.package import Built, Origins, Package
    from gpusetup.model.repos import PrebuiltModules
    from gpusetup.model.request import DriverCandidate
    from gpusetup.model.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Prebuilt:
    """Modules that come built for the kernel that boots next."""

    package: Package
    follower: str = ""
    """The package that brings those of later kernels, or keeps a kernel without any away."""
    lasting: bool = False
    """They hold for later kernels too."""
    signer: str
    trusted: bool
    stream: str = ""

    @property
    def follows(self) -> bool:
        """Whether a kernel update leaves the host with modules."""
        return self.lasting or bool(self.follower)


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What there is of one driver for one kernel: prebuilt modules, packages that DKMS builds from, or both."""

    prebuilt: Prebuilt | None
    dkms: bool
    prefers: Built
    """What is taken where both are there and nothing else decides."""


def choose(context: Context, ways: Ways) -> tuple[Built, str] | None:
    """Return which way a driver's modules come, and why; None when it does not come in the way that is asked for."""
    asked, prebuilt, kernel = context.settings.module, ways.prebuilt, context.facts.kernel.next
    if asked != "auto":
        there = prebuilt is not None if asked == "prebuilt" else ways.dkms
        return (asked, "set by gpusetup_module") if there else None
    if prebuilt is None:
        text = f"no prebuilt modules for kernel {kernel} are offered, DKMS builds them for this kernel and later ones"
        return ("dkms", text) if ways.dkms else None
    signed = f"built and signed by {prebuilt.signer}"
    if not ways.dkms:
        return "prebuilt", f"{signed}; nothing is offered that DKMS could build"
    if _key_unknown(context) and prebuilt.trusted:
        return "prebuilt", f"Secure Boot is on and no key of this host is enrolled; these are {signed}, which it trusts"
    if not prebuilt.follows:
        return "dkms", "no package would bring prebuilt modules for the next kernel, DKMS builds them for each kernel"
    if ways.prefers == "prebuilt":
        return "prebuilt", f"{signed}; nothing is compiled on the host"
    return "dkms", "DKMS builds them for each kernel; prebuilt ones are offered too (gpusetup_module=prebuilt)"


def _key_unknown(context: Context) -> bool:
    settings = context.settings
    unsigned = settings.secure_boot == "refuse" and not settings.signing_key
    return unsigned and judge.driver.key_unknown(judge.probed(context.facts))


def only_trusted(context: Context) -> bool:
    """Tell whether Secure Boot would refuse what DKMS builds here, so that drivers with signed modules come first."""
    return context.settings.module == "auto" and _key_unknown(context)


def nvidia_prebuilt(context: Context, version: str, module: str) -> Prebuilt | None:
    """Return the prebuilt modules that go with a driver from NVIDIA's repository, None where none are offered."""
    branch = version.partition(".")[0]
    for row, texts in _rows(context):
        if row.module != module or not any(covering([row], int(branch))):
            continue
        known = {**texts, "branch": branch, "version": version}
        name, offers = named(row.package, **known), context.offers
        if row.built:
            package = offers.matching(name, named(row.built, **known))
        else:
            package = offers.exact(name, version) if offers.has(name, version) else None
        if package is None:
            continue
        return Prebuilt(
            package=package,
            follower=row.next if row.next and offers.has(row.next) else "",
            lasting=row.lasting,
            signer=row.signer,
            trusted=row.trusted,
            stream=named(row.stream, **known) if row.stream else "",
        )
    return None


def prebuilt_patterns(context: Context) -> tuple[str, ...]:
    """Return globs of every name that prebuilt modules may have beside NVIDIA's repository."""
    names = []
    for row, texts in _rows(context):
        known = {**texts, "branch": "*", "version": "*"}
        names += [glob(named(row.package, **known)), *((row.next,) if row.next else ())]
    return tuple(dict.fromkeys(names))


def stale_prebuilt(context: Context, version: str = "") -> tuple[str, ...]:
    """Return the installed packages of prebuilt modules that are of another driver; all of them without a version."""
    rows = [row for row in context.repos.prebuilt if context.facts.os.label in row.systems]
    globs = [glob(row.package, "[0-9]*") for row in rows if not row.built]
    plugins = [row.next for row in rows if row.next and not version]
    names = (name for name in context.facts.packages.installed if judge.versions.matches(name, [*globs, *plugins]))
    return tuple(sorted(name for name in names if not version or f"-{version}-" not in name))


def repositories_of(context: Context) -> tuple[str, ...]:
    """Return the distribution's own repositories to switch on for prebuilt modules, where they are asked for."""
    if context.settings.module != "prebuilt":
        return ()
    return tuple(dict.fromkeys(row.enable for row, _texts in _rows(context) if row.enable))


def seen_through_streams(context: Context, origins: Origins) -> Origins:
    """Return the sources of a look; prebuilt modules are in streams that are off, and must be seen all the same."""
    if context.settings.module != "prebuilt" or not any(row.stream for row, _texts in _rows(context)):
        return origins
    return replace(origins, sources=tuple(replace(source, module_hotfixes=True) for source in origins.sources))


def _rows(context: Context) -> Iterator[tuple[PrebuiltModules, dict[str, str]]]:
    facts = context.facts
    for row in context.repos.prebuilt:
        if facts.os.label not in row.systems or row.arch not in {None, facts.arch}:
            continue
        match = re.fullmatch(row.release, facts.kernel.next)
        if match is not None:
            yield row, match.groupdict()


def refusal(context: Context, family: Family) -> Refusal | None:
    """Return why no driver's modules come in the way that is asked for; None when nothing is asked for."""
    asked, facts = context.settings.module, context.facts
    if asked == "auto":
        return None
    if asked == "dkms":
        return Refusal(
            reference="GS-350",
            message=f"gpusetup_module=dkms: no driver that fits is offered as a package that DKMS builds for "
            f"{facts.os.label}",
            note="the repositories have prebuilt modules only, or none",
            hint="use gpusetup_module=auto, or another gpusetup_source",
        )
    others = "the kernel that boots next has none" if family.has_prebuilt(context) else "no publisher makes them for it"
    return Refusal(
        reference="GS-350",
        message=f"gpusetup_module=prebuilt: no prebuilt modules are offered for kernel {facts.kernel.next} of "
        f"{facts.os.label}",
        note=f"{others}; without modules for its kernel the host would lose the GPU at the next boot",
        hint=_way_out(context),
    )


def no_way(context: Context, family: Family, candidates: tuple[DriverCandidate, ...] | None) -> Refusal | None:
    """Return why kernel modules cannot come in the way that is asked for: nobody makes them, or none are offered."""
    settings = context.settings
    if settings.module == "auto" or (found_built(context.facts) == settings.module and not settings.upgrade):
        return None
    never = settings.module == "prebuilt" and not family.has_prebuilt(context)
    return refusal(context, family) if never or candidates == () else None


def _way_out(context: Context) -> str:
    system = context.facts.os
    ways = ["use gpusetup_module=auto or dkms, which builds them on the host"]
    if system.id == "ubuntu" and context.settings.source != "distro":
        ways.insert(0, "Ubuntu's own archive has them: gpusetup_source=distro")
    if system.id == "rhel":
        ways.insert(0, "boot a kernel that the repository has modules for: dnf list 'kmod-nvidia*'")
    return "; or ".join(ways)


def found_built(facts: HostFacts) -> Built | None:
    """Tell how the modules of the kernel that boots next came to be; None when there are none."""
    target = facts.kernel.target
    module = target.nvidia if target is not None else None
    if module is None:
        return None
    here = (item for item in facts.dkms if item.kernel == facts.kernel.next and item.module.startswith("nvidia"))
    return "dkms" if any(item.version == module.version for item in here) else "prebuilt"


def other_way(facts: HostFacts, settings: Settings) -> bool:
    """Tell whether the host's modules came in another way than is asked for: then its driver is not as wanted."""
    found = found_built(facts)
    return settings.module != "auto" and found is not None and found != settings.module
