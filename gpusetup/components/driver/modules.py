"""Kernel modules, prebuilt or built on the host by DKMS: which are offered and chosen, why; kernel headers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from gpusetup.components import judge
from gpusetup.components.base import Context, Family, covering, glob, named
from gpusetup.components.judge import versions
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Built, Origins, Package
from gpusetup.model.plan import Refusal
from gpusetup.model.repos import KernelPackages, PrebuiltModules
from gpusetup.model.request import DriverCandidate
from gpusetup.model.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Prebuilt:
    """Prebuilt modules for the kernel that boots next."""

    package: Package
    follower: str = ""
    """A package that brings the modules of later kernels, or blocks kernels without them."""
    lasting: bool = False
    """Whether these modules work with later kernels too."""
    signer: str
    trusted: bool
    stream: str = ""

    @property
    def follows(self) -> bool:
        """Whether the host still has modules after a kernel update."""
        return self.lasting or bool(self.follower)


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What is offered for one driver and kernel: prebuilt modules, packages for DKMS, or both."""

    prebuilt: Prebuilt | None
    dkms: bool
    prefers: Built
    """The choice when both are offered and nothing else decides."""


def choose(context: Context, ways: Ways) -> tuple[Built, str] | None:
    """Return how a driver's modules are built, and why; None if not possible in the way that is asked for."""
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
    """Return whether Secure Boot would refuse DKMS modules, so that only drivers with signed modules count."""
    return context.settings.module == "auto" and _key_unknown(context)


def nvidia_prebuilt(context: Context, version: str, module: str) -> Prebuilt | None:
    """Return the prebuilt modules for a driver from NVIDIA's repository; None if not offered."""
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
    """Return globs for all package names that prebuilt modules of this host may have."""
    names = []
    for row, texts in _rows(context):
        known = {**texts, "branch": "*", "version": "*"}
        names += [glob(named(row.package, **known)), *((row.next,) if row.next else ())]
    return tuple(dict.fromkeys(names))


def stale_prebuilt(context: Context, version: str = "") -> tuple[str, ...]:
    """Return installed packages of prebuilt modules for other versions than this; without a version, all of them."""
    rows = [row for row in context.repos.prebuilt if context.facts.os.label in row.systems]
    globs = [glob(row.package, "[0-9]*") for row in rows if not row.built]
    plugins = [row.next for row in rows if row.next and not version]
    names = (name for name in context.facts.packages.installed if judge.versions.matches(name, [*globs, *plugins]))
    return tuple(sorted(name for name in names if not version or f"-{version}-" not in name))


def repositories_of(context: Context) -> tuple[str, ...]:
    """Return the distribution's repositories to enable for prebuilt modules; () unless `module` is `prebuilt`."""
    if context.settings.module != "prebuilt":
        return ()
    return tuple(dict.fromkeys(row.enable for row, _texts in _rows(context) if row.enable))


def seen_through_streams(context: Context, origins: Origins) -> Origins:
    """Return sources that also show packages in disabled module streams, where prebuilt modules are."""
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
    """Return the refusal of a module way that no driver has here; None for `auto`."""
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
    """Return the refusal if modules of the way that is asked for do not exist or are not offered; else None."""
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
    """Return whether the next kernel's modules are prebuilt or from DKMS; None if it has none."""
    target = facts.kernel.target
    module = target.nvidia if target is not None else None
    if module is None:
        return None
    here = (item for item in facts.dkms if item.kernel == facts.kernel.next and item.module.startswith("nvidia"))
    return "dkms" if any(item.version == module.version for item in here) else "prebuilt"


def other_way(facts: HostFacts, settings: Settings) -> bool:
    """Return whether the host's modules were built in another way than is asked for, so that its driver must change."""
    found = found_built(facts)
    return settings.module != "auto" and found is not None and found != settings.module


def headers(context: Context) -> tuple[Package, ...]:
    """Return the headers of the kernel that boots next, and the metapackage that brings those of later kernels."""
    found = _row(context)
    if found is None:
        return ()
    row, texts = found
    version = named(row.version, **texts)
    names = [named(name, **texts) for name in (row.package, *row.beside)]
    packages = [Package(name=name, version=version) for name in names]
    following = _following(context, row, texts)
    if following:
        packages.append(Package(name=following, version=version))
    return tuple(packages)


def header_patterns(context: Context) -> tuple[str, ...]:
    """Return all package names that `headers` may choose."""
    found = _row(context)
    if found is None:
        return ()
    row, texts = found
    names = [named(name, **texts) for name in (row.package, *row.beside, *row.next)]
    return tuple(dict.fromkeys((*names, *_header_metapackages(context, texts.get("flavour", "")))))


def flavour_of(context: Context) -> str:
    """Return the suffix of this host's kernel metapackages: `generic`, `generic-hwe-24.04`, `aws`."""
    found = _row(context)
    if found is None:
        return ""
    flavour = found[1].get("flavour", "")
    mine = _header_metapackages(context, flavour)
    return mine[0].removeprefix("linux-headers-") if mine else flavour


def unknown_kernel_note(context: Context) -> tuple[str, ...]:
    """Return a note if the matrix knows no header package for this kernel."""
    if _row(context) is not None:
        return ()
    text = f"no known package has the headers of kernel {context.facts.kernel.next}: "
    return (text + "install them by hand, now and for later kernels",)


def _row(context: Context) -> tuple[KernelPackages, dict[str, str]] | None:
    system, release = context.facts.os, context.facts.kernel.next
    for row in context.repos.kernels:
        if system.id not in row.systems or row.arch not in {None, context.facts.arch}:
            continue
        match = re.fullmatch(row.release, release)
        if match is not None:
            return row, {**match.groupdict(), "kernel": release, "os": system.version_id}
    return None


def _following(context: Context, row: KernelPackages, texts: dict[str, str]) -> str:
    """Return the header metapackage that matches an installed image metapackage, else one of this kernel's line."""
    offers = context.offers
    mine = _header_metapackages(context, texts.get("flavour", ""))
    if mine:
        return next((name for name in mine if not offers.known or offers.has(name)), "")
    version = named(row.version, **texts)
    for name in dict.fromkeys(named(text, **texts) for text in row.next):
        offered = offers.versions(name)
        line = texts.get("minor", "")
        if any(versions.fits(item, version) if version else item.startswith(f"{line}.") for item in offered):
            return name
    return ""


def _header_metapackages(context: Context, flavour: str) -> list[str]:
    """Return the header metapackages for the installed image metapackages, which bring the next kernel."""
    found = []
    for name, package in context.facts.packages.installed.items():
        match = re.fullmatch(r"linux-image-([a-z][a-z0-9.-]*)", name)
        if match and package and _same_flavour(match.group(1), flavour):
            found.append(f"linux-headers-{match.group(1)}")
    return sorted(found, key=lambda name: (len(name), name), reverse=True)


def _same_flavour(meta: str, flavour: str) -> bool:
    """Return whether an image metapackage is of a flavour: `generic-hwe-24.04` is of `generic`, `aws-6.8` of `aws`."""
    rest = meta.removeprefix(flavour) if flavour and meta.startswith(flavour) else None
    return rest is not None and re.fullmatch(r"(?:-(?:hwe|lts|edge|\d+\.\d+))*", rest) is not None
