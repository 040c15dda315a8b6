"""Compare installed package names and versions with requested ones; read the exact pins of requirements."""

import fnmatch
import re
from typing import Dict, Iterable, List, Optional

_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")
_EPOCH = re.compile(r"\d+:")


def fits(version: str, wanted: str) -> bool:
    """Return whether a version matches the wanted pattern; one without an epoch matches any epoch."""
    if not wanted:
        return True
    version, wanted = bare(version), bare(wanted)
    if not _EPOCH.match(wanted):
        version = _EPOCH.sub("", version, 1)
    return version == wanted or fnmatch.fnmatchcase(version, wanted)


def bare(version: str) -> str:
    """Return a version without the prefix `0:`, by which rpm marks a missing epoch."""
    return version[2:] if version.startswith("0:") else version


def upstream(version: str) -> str:
    """Return the vendor's version in a package version: 3:580.95.05-1.el9 gives 580.95.05."""
    match = _UPSTREAM.match(version)
    return match.group(1) if match else ""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a package name, without its architecture, matches one of the patterns."""
    plain = name.partition(":")[0]
    return any(fnmatch.fnmatchcase(plain, pattern) for pattern in patterns)


def one_of_several(name: str, version: str) -> str:
    """Return the name under which a package set lists one of several installed versions of a package."""
    return f"{name}-{bare(version)}"


def stem(name: str, version: str) -> str:
    """Return the plain name of a package that is listed as one of several versions, else an empty text."""
    end = one_of_several("", version)
    return name[: -len(end)] if name.endswith(end) else ""


def places(installed: Dict[str, str], name: str, version: str) -> List[str]:
    """Return the names under which a package set now lists a recorded package.

    Further versions may have been installed beside it (as with kernel headers), or removed so that only one is left.
    """
    if name in installed:
        return [name]
    several = [found for found, there in installed.items() if found == one_of_several(name, there)]
    plain = stem(name, version)
    alone = plain in installed and bare(installed[plain]) == bare(version)
    return several or ([plain] if alone else [])


def recorded_as(record: Dict[str, str], name: str, version: str) -> Optional[str]:
    """Return the name under which a record holds a listed package, None if it does not."""
    known = (name, one_of_several(name, version), stem(name, version))
    return next((one for one in known if one in record), None)


def version_of(installed: Dict[str, str], name: str, wanted: str = "") -> Optional[str]:
    """Return the installed version, None without one; of several (rpm keeps kernels side by side) a wanted one."""
    if name in installed:
        return installed[name]
    several = sorted(version for found, version in installed.items() if found == one_of_several(name, version))
    fitting = [version for version in several if fits(version, wanted)]
    return (fitting or several)[-1] if several else None


def satisfied(installed: Dict[str, str], name: str, wanted: str = "") -> bool:
    version = version_of(installed, name, wanted)
    return version is not None and fits(version, wanted)


_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)")


def pins(lines: Iterable[str]) -> Dict[str, str]:
    """Return {normalised name: version} of the `==` pins without environment markers."""
    found = {}
    for line in lines:
        match = _PIN.match(line.strip())
        if match and ";" not in line:
            found[python_name(match.group(1))] = match.group(2)
    return found


def python_name(name: str) -> str:
    """Return a Python package's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
