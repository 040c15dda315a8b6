"""Turn rows of package metadata into the matrix's data, one file for each package.

A row has the index's data of a release; `tools.refresh.reading` makes it. A field that no row has stays empty, and
every release states how it was read.
"""

from __future__ import annotations

import re
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tools.refresh.known_packages import PACKAGES

_MINORS = range(6, 16)
_NAMED_ALONE = re.compile(r"cp3([0-9]+)(t?)")
_FROM = re.compile(r"(?:cp|py)3([0-9]*)(?:-abi3)?")
_SONAME = re.compile(r"lib(?:cudart|cublas|cublasLt)\.so\.(1[0-9])")
_PLACEHOLDER = re.compile(r"0\.0\.0.*|0\.0\.1\.?dev.*")
_ARCHES = ("x86_64", "aarch64")
_UNWANTED = ("numpy", "setuptools")


def assemble(
    name: str, rows: list[dict[str, Any]], kernels: dict[str, list[dict[str, Any]]], *, title: str, seen: str
) -> dict[str, Any]:
    """Return a package's file."""
    about = PACKAGES[name] | {"name": name}
    found: dict[str, Any] = {
        "schema": "gpusetup/matrix-package/1",
        "date": seen,
        "name": name,
        "sources": {
            "index": {
                "title": title,
                "publisher": "Python Package Index",
                "url": f"https://pypi.org/project/{name}/",
                "seen": seen,
            }
        },
        "releases": [_release(row, about, kernels) for row in rows],
    }
    if "documented" in about:
        found["sources"]["documented"] = about["documented"] | {"seen": seen}
    return found | {field: about[field] for field in ("needs", "build") if field in about}


def _release(row: dict[str, Any], about: dict[str, Any], kernels: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    version, wheels = Version(row["version"]), row.get("wheels") or {}
    asked, whole = dict(row["requires"]), about.get("whole", "")
    if whole and "torch" not in asked and whole in (row.get("extras") or {}):
        asked |= row["extras"][whole]  # without this extra the release cannot work
    else:
        whole = ""
    requires = {_plain(name): _specifier(text) for name, text in asked.items() if _plain(name) not in _UNWANTED}
    requires.pop(about["name"], None)
    found: dict[str, Any] = {
        "version": row["version"],
        "date": row["date"],
        "kind": _kind(row),
        "read": row["read"],
        "sources": ["index"],
        "confidence": "vendor",
        "pythons": pythons_of(row),
        "requires": requires,
    }
    if wheels.get("glibc_tag"):
        found["glibc"] = {arch: text for arch, text in wheels["glibc_tag"].items() if arch in _ARCHES}
    extras = [name for name in about.get("extras", ()) if _plain(name) in (row.get("extras") or {})]
    found |= {"extras": [whole] if whole else extras} if whole or extras else {}
    for extra in extras:
        asked = row["extras"][_plain(extra)].items()
        requires |= {_plain(name): _specifier(text) for name, text in asked if name.startswith("nvidia-cudnn-cu")}
    cuda, linked = _cuda(row, about)
    for field, joined in (("names_major", True), ("brings_major", False)):
        for major in ("12", "13") if field in about else ():
            if f"{about[field]}-cu{major}" in requires:
                cuda, linked = (major,), joined
    for kernel, rows in kernels.items():
        pinned = requires.get(kernel, "").removeprefix("==")
        cuda, linked = next((_cuda(item, {}) for item in rows if item["version"] == pinned), (cuda, linked))
    if "opens" in about and version >= Version(about["opens"][0]):
        cuda, linked, found["adds"] = (about["opens"][1],), False, [about["opens"][2]]
        found["adds"] += [
            pin for low, high, pin in about.get("opens_too", ()) if Version(low) <= version <= Version(high)
        ]
    found |= {"cuda": list(cuda)} if cuda else {}
    found |= {"linked": True} if linked else {}
    for low, high, capability in about.get("cc_min", ()):
        if version >= Version(low) and (not high or version <= Version(high)):
            found["cc_min"] = capability
            found |= {"driver_min": about["driver_min"]} if "driver_min" in about else {}
            found["sources"] = ["index", "documented"] if "documented" in about else ["index"]
    for low, high, torch, *why in about.get("torch", ()):  # what a document says and the wheel does not
        if Version(low) <= version <= Version(high):
            requires.setdefault("torch", torch)
            found["sources"] = ["index", "documented"]
            found |= {"confidence": "inferred", "note": why[0]} if why else {}
    build = row.get("build") or {}
    if build.get("arch_list"):
        found["code"] = _code(build["arch_list"])
    if row.get("yanked"):
        found["yanked"] = True
    if row.get("requires_unread"):
        found["note"] = f"its requirements were not read: {row['requires_unread']}"
    return found


def _kind(row: dict[str, Any]) -> str:
    if _PLACEHOLDER.fullmatch(row["version"]):
        return "placeholder"
    return "source" if row.get("sdist_only") else "wheel"


def _plain(name: str) -> str:
    return name.partition("[")[0].lower().replace("_", "-")


def _specifier(text: str) -> str:
    """Return the requirement without its marker; the first of several is the one for Linux on x86_64."""
    return text.partition(" | ")[0].partition(";")[0].strip()


def pythons_of(row: dict[str, Any]) -> dict[str, list[str]]:
    """Return the Pythons that a release supports, by CPU."""
    wheels = row.get("wheels") or {}
    allowed = SpecifierSet((row["python"] or "").replace(" ", ""), prereleases=True)
    platforms = wheels.get("platforms", ["any"])
    tags = wheels.get("tags") or {
        arch: wheels.get("python", ["py3"])
        for arch in _ARCHES
        if "any" in platforms or f"linux_{arch}" in platforms
    }  # fmt: skip
    fitting = {
        arch: [
            f"3.{minor}{free}"
            for minor in _MINORS
            for free in ("", "t")
            if any(_takes(tag, minor, free) for tag in names) and f"3.{minor}.39" in allowed
        ]
        for arch, names in tags.items()
    }
    return {arch: fitting[arch] for arch in _ARCHES if fitting.get(arch)}


def _takes(tag: str, minor: int, free: str) -> bool:
    alone = _NAMED_ALONE.fullmatch(tag)
    if alone is not None:
        return (int(alone[1]), alone[2]) == (minor, free)
    match = _FROM.fullmatch(tag)
    return match is not None and not free and minor >= int(match[1] or 0)


def _cuda(row: dict[str, Any], about: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the measured CUDA of a wheel, and whether the wheel is linked with it."""
    majors = sorted({match[1] for text in row.get("sonames", ()) if (match := _SONAME.fullmatch(text))})
    if row.get("cuda_libs"):
        numbers = [text.removeprefix("cuda") for text in row["cuda_libs"]]
        return tuple(f"{text[:-1]}.{text[-1]}" for text in numbers), False
    told = row.get("cuda_main") or row.get("cuda_version") or (row.get("build") or {}).get("cuda")
    if told:
        return (str(told),), True
    last, major = about.get("until") or ("", about.get("major"))
    if major and (not last or Version(row["version"]) <= Version(last)):
        return (major,), True
    return tuple(majors), bool(majors)


def _code(text: str) -> dict[str, Any]:
    """Return the targets and the PTX of a TORCH_CUDA_ARCH_LIST."""
    words = text.split()
    plain = dict.fromkeys(word.removesuffix("+PTX") for word in words)
    ptx = [word.removesuffix("+PTX") for word in words if word.endswith("+PTX")]
    return {"targets": list(plain), "ptx": ptx}
