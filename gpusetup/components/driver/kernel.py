"""Kernel headers: for the kernel that boots next, and the metapackage for later ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.components.base import named
from gpusetup.components.judge import versions
from gpusetup.model.package import Package

if TYPE_CHECKING:
    from gpusetup.components.base import Context
    from gpusetup.model.repos import KernelPackages


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
