"""Package names and versions: does what is installed fit what is asked for?"""

import fnmatch
import re
from typing import Dict, Iterable, List, Optional

_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")
_EPOCH = re.compile(r"\d+:")


def fits(version: str, wanted: str) -> bool:
    """Say whether a version is the wanted one, in which `*` stands for anything; a wish without an epoch takes any
    epoch.
    """
    if not wanted:
        return True
    version, wanted = bare(version), bare(wanted)
    if not _EPOCH.match(wanted):
        version = _EPOCH.sub("", version, 1)
    return version == wanted or fnmatch.fnmatchcase(version, wanted)


def bare(version: str) -> str:
    """Return a version without rpm's way to say that it has no epoch."""
    return version[2:] if version.startswith("0:") else version


def upstream(version: str) -> str:
    """Return the vendor's version inside a package's: 3:580.95.05-1.el9 is 580.95.05, 535.309.01-0+deb12u1 is
    535.309.01.
    """
    match = _UPSTREAM.match(version)
    return match.group(1) if match else ""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Say whether a package name, its architecture left out, fits one of the patterns."""
    plain = name.partition(":")[0]
    return any(fnmatch.fnmatchcase(plain, pattern) for pattern in patterns)


def one_of_several(name: str, version: str) -> str:
    """Return the name under which a package set lists one version of a package that is there more than once."""
    return f"{name}-{bare(version)}"


def stem(name: str, version: str) -> str:
    """Return a package's own name where a package set lists it as one of several, else nothing."""
    end = one_of_several("", version)
    return name[: -len(end)] if name.endswith(end) else ""


def places(installed: Dict[str, str], name: str, version: str) -> List[str]:
    """Return the names under which a package set lists a recorded package now: versions that came beside its own
    (kernels' headers do) followed it, and where others went its own is listed by the plain name.
    """
    if name in installed:
        return [name]
    several = [found for found, there in installed.items() if found == one_of_several(name, there)]
    plain = stem(name, version)
    alone = plain in installed and bare(installed[plain]) == bare(version)
    return several or ([plain] if alone else [])


def recorded_as(record: Dict[str, str], name: str, version: str) -> Optional[str]:
    """Return the name under which a record has what a package set lists."""
    known = (name, one_of_several(name, version), stem(name, version))
    return next((one for one in known if one in record), None)


def version_of(installed: Dict[str, str], name: str, wanted: str = "") -> Optional[str]:
    """Return the installed version, None when there is none; of several (rpm keeps kernels side by side) the wanted one
    first.
    """
    if name in installed:
        return installed[name]
    several = sorted(version for found, version in installed.items() if found == one_of_several(name, version))
    fitting = [version for version in several if fits(version, wanted)]
    return (fitting or several)[-1] if several else None


def satisfied(installed: Dict[str, str], name: str, wanted: str = "") -> bool:
    """Say whether a package is installed in the wanted version."""
    version = version_of(installed, name, wanted)
    return version is not None and fits(version, wanted)
