"""Read one release from an index: a row with the data of its files and metadata, and how they were read.

Fields that no file has stay empty. It downloads the metadata, and of a wheel only the members that name its CUDA.
"""

from __future__ import annotations

import json
import re
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpusetup.bootstrap.wheels import target_environment
from tools.refresh.asking import Fault
from tools.refresh.index import File, Index, member

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Collection

_ARCHES = ("x86_64", "aarch64")
_NAMED_GLIBC = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)")
_MINORS = range(6, 17)
_SMALL = 8 << 20
"""Most bytes of a wheel's libraries that are read to find their CUDA."""


def read(index: Index, files: list[File], relevant: Collection[str], *, inside: str = "") -> dict[str, Any]:
    """Return the row of a release; `inside` names what to look up in its wheel."""
    wheels = [file for file in files if file.tags and _platforms(file)]
    row: dict[str, Any] = {
        "version": str(files[0].version),
        "date": min((file.date for file in files if file.date), default=""),
        "python": next((file.python for file in wheels or files), ""),
        "requires": {},
    }
    if all(file.yanked for file in files):
        row["yanked"] = True
    if wheels:
        row["wheels"] = _tags(wheels)
    elif not any(file.tags for file in files):
        row["sdist_only"] = True
    text = ""
    best = max(wheels, key=_preference, default=None)
    try:
        text, row["read"] = _metadata(index, best, files)
    except _Untold as error:
        row |= {"read": "file list only", "requires_unread": str(error)}
    if text:
        row |= _requirements(text, row, relevant)
    if best is not None and inside:
        with index.wheel(best) as archive:
            row |= _INSIDE[inside](archive)
    return row


class _Untold(Exception):  # noqa: N818 - it says what there is not
    """The release has no readable metadata, which its row states."""


def _platforms(file: File) -> set[str]:
    found = set()
    for tag in file.tags:
        if tag.platform == "any":
            found.add("any")
        found |= {
            arch for arch in _ARCHES if tag.platform.startswith("manylinux") and tag.platform.endswith(f"_{arch}")
        }
    return found


def _preference(file: File) -> tuple[bool, int, str]:
    """Return a sort key that prefers x86_64, then the newest Python."""
    newest = max(int(found[1]) for tag in file.tags if (found := re.search(r"3?(\d*)t?$", "0" + tag.interpreter[2:])))
    return ("x86_64" in _platforms(file), newest, file.name)


def _tags(wheels: list[File]) -> dict[str, Any]:
    tags: dict[str, set[str]] = {}
    glibc: dict[str, set[tuple[int, int]]] = {}
    for file in wheels:
        for arch in _platforms(file):
            for one in _ARCHES if arch == "any" else (arch,):
                tags.setdefault(one, set()).update(_python_tag(tag.interpreter, tag.abi) for tag in file.tags)
            lowest = min(
                (found for tag in file.tags if tag.platform.endswith(f"_{arch}") and (found := _glibc(tag.platform))),
                default=None,
            )
            if lowest:
                glibc.setdefault(arch, set()).add(lowest)
    return {
        "tags": {arch: sorted(names) for arch, names in tags.items()},
        "glibc_tag": {arch: "{}.{}".format(*max(found)) for arch, found in glibc.items()},
    }


def _python_tag(interpreter: str, abi: str) -> str:
    if abi == "abi3":
        return f"{interpreter}-abi3"
    return f"{interpreter}t" if abi == f"{interpreter}t" else interpreter


def _glibc(platform: str) -> tuple[int, int] | None:
    found = _GLIBC.match(platform)
    return (int(found[1]), int(found[2])) if found else _NAMED_GLIBC.get(platform.partition("_")[0])


def _metadata(index: Index, wheel: File | None, files: list[File]) -> tuple[str, str]:
    if wheel is None:
        source = next((file for file in files if not file.tags), None)
        if source is None:
            raise _Untold("no wheel for Linux")
        text = index.sdist_metadata(source)
        if not _settled(text):
            raise _Untold("sdist only")
        return text, "sdist PKG-INFO"
    if wheel.sidecar is not False:
        try:
            return index.sidecar(wheel), "pep658"
        except Fault as error:
            if not error.missing:
                raise
    return index.wheel_metadata(wheel), "range"


def _settled(text: str) -> bool:
    """Return whether a source archive lists its requirements; if not, its build may still add some."""
    said = HeaderParser().parsestr(text)
    dynamic = {str(name).strip().lower() for name in said.get_all("Dynamic") or ()}
    static = Version(said["Metadata-Version"]) >= Version("2.2") and "requires-dist" not in dynamic
    return static or bool(said.get_all("Requires-Dist"))


def _requirements(text: str, row: dict[str, Any], relevant: Collection[str]) -> dict[str, Any]:
    said = HeaderParser().parsestr(text)
    python = str(said.get("Requires-Python") or row["python"])
    try:
        allowed = SpecifierSet(python.replace(" ", ""), prereleases=True)
        asked = [Requirement(line) for line in said.get_all("Requires-Dist") or ()]
    except (InvalidSpecifier, InvalidRequirement) as error:
        raise Fault(f"its metadata has a requirement that cannot be read: {error}"[:300]) from error
    fitting = [minor for minor in reversed(_MINORS) if f"3.{minor}.39" in allowed] or [max(_MINORS)]
    places = [target_environment(f"3.{minor}", "x86_64") for minor in fitting]
    extras: dict[str, dict[str, str]] = {}
    plain = _asked(asked, places, "", relevant)
    for extra in said.get_all("Provides-Extra") or ():
        more = _asked(asked, places, extra, relevant)
        if own := {name: text for name, text in more.items() if plain.get(name) != text}:
            extras[canonicalize_name(extra)] = own
    return {"python": python, "requires": plain} | ({"extras": extras} if extras else {})


def _asked(
    asked: list[Requirement], places: list[dict[str, str]], extra: str, relevant: Collection[str]
) -> dict[str, str]:
    """Return the requirements on Linux on x86_64: for each name those of the newest Python that needs it."""
    found: dict[str, SpecifierSet] = {}
    for place in places:
        here: dict[str, SpecifierSet] = {}
        for item in asked:
            name = canonicalize_name(item.name)
            if name in relevant and (item.marker is None or item.marker.evaluate(place | {"extra": extra})):
                here[name] = here.get(name, SpecifierSet()) & item.specifier
        found = here | found
    return {name: str(specifier) or "any" for name, specifier in sorted(found.items())}


# --- inside a wheel -------------------------------------------------------------------------------------------------


def _assigned(path: str, name: str, key: str) -> Callable[[zipfile.ZipFile], dict[str, Any]]:
    """Return the string that a module in the wheel assigns to a name."""

    def look(archive: zipfile.ZipFile) -> dict[str, Any]:
        if path not in archive.namelist():
            return {}
        text = member(archive, path).decode("utf-8", "replace")
        found = re.search(rf"""^\s*"?{name}"?\s*(?::[^=\n]*)?[=:].*?(["'])(\d+\.\d+)\1""", text, re.MULTILINE)
        return {key: found[2]} if found else {}

    return look


def _xformers(archive: zipfile.ZipFile) -> dict[str, Any]:
    path = "xformers/cpp_lib.json"
    if path not in archive.namelist():
        return {}
    try:
        about = json.loads(member(archive, path))
        number, listed = int(about["version"]["cuda"]), about["env"].get("TORCH_CUDA_ARCH_LIST")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fault(f"{path} in the wheel cannot be read: {error!r}") from error
    return {"build": {"cuda": f"{number // 100}.{number % 100}", "arch_list": listed}}


def _named_by_cuda(archive: zipfile.ZipFile) -> dict[str, Any]:
    found = {
        match[1] for name in archive.namelist() if (match := re.search(r"/libbitsandbytes_(cuda\d{3})\.so$", name))
    }
    return {"cuda_libs": sorted(found)} if found else {}


def _linked(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the CUDA libraries that the wheel's smallest libraries link to; large ones are not read."""
    libraries = [item for item in archive.infolist() if re.search(r"\.so(\.\d+)*$", item.filename) and item.file_size]
    found, left = set[bytes](), _SMALL
    for item in sorted(libraries, key=lambda item: item.file_size):
        left -= item.file_size
        if left < 0:
            break
        found |= {
            bytes(name)
            for name in re.findall(rb"lib(?:cudart|cublas|cublasLt)\.so\.1[0-9]", member(archive, item.filename))
        }
    return {"sonames": sorted(name.decode() for name in found)} if found else {}


def _vllm(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return vLLM's stated CUDA; for releases without one, the CUDA that it is linked with."""
    return _assigned("vllm/envs.py", "VLLM_MAIN_CUDA_VERSION", "cuda_main")(archive) or _linked(archive)


_INSIDE: dict[str, Callable[[zipfile.ZipFile], dict[str, Any]]] = {
    "vllm": _vllm,
    "onnxruntime": _assigned("onnxruntime/capi/build_and_package_info.py", "cuda_version", "cuda_version"),
    "xformers": _xformers,
    "bitsandbytes": _named_by_cuda,
    "libraries": _linked,
}
