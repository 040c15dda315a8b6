"""What dnf and zypper share because rpm manages the packages."""

import os
from typing import Dict, List

from ..gpu_judge import versions
from . import packages, process
from .failure import HostFailure
from .manager import MayGo, PackageManager
from .packages import Installed, Plan, Wish

_NEVRA = "%{NAME}\\t%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"


def listed(name: str, arch: str, native: str) -> str:
    """Return the name under which a package set lists a package."""
    return name if arch in (native, "noarch") else f"{name}:{arch}"


def note_removal(plan: Plan, name: str, version: str) -> None:
    """Add a removed package to a plan; several versions of one package each get their own name."""
    going = plan["remove"]
    if name in going:
        other = going.pop(name)
        going[versions.one_of_several(name, other)] = other
        name = versions.one_of_several(name, version)
    going[name] = version


class Rpm(PackageManager):
    """A host whose packages are in rpm's database."""

    def installed(self) -> Installed:
        """Return {name: version}; "name:arch" for a foreign architecture, "name-version" for packages that are
        installed in several versions, such as kernels.
        """
        code, text, error = process.output(["rpm", "-qa", "--qf", _NEVRA], self.env)
        if code:
            raise HostFailure("GS-462", f"rpm does not answer: {error.strip()}")
        rows = [line.split("\t") for line in text.splitlines() if line.count("\t") == 2]
        native = self.architecture()
        several: Dict[str, List[str]] = {}
        for name, version, arch in rows:
            if name != "gpg-pubkey":
                several.setdefault(listed(name, arch, native), []).append(version)
        found = {}
        for name, there in several.items():
            for version in there:
                found[name if len(there) == 1 else versions.one_of_several(name, version)] = version
        return found

    def damaged(self) -> Dict[str, str]:
        """Return nothing: rpm has no half-installed state; a damaged database makes `installed` fail."""
        return {}

    def repair(self, _may_go: MayGo) -> Dict[str, str]:
        """Return nothing: rpm has no state to repair; the next transaction reports an interrupted one."""
        return {}

    def architecture(self) -> str:
        return os.uname()[4]

    def file_names(self, wish: Wish) -> List[str]:
        """Return the possible names of a package's file, which have no epoch."""
        version = wish["version"].rpartition(":")[2]
        arches = [wish["arch"]] if wish["arch"] else [self.architecture(), "noarch"]
        return ["{}-{}.{}.rpm".format(wish["name"], version, arch) for arch in arches]

    def lock_name(self, name: str, version: str) -> str:
        """Return the name by which a package is locked, which covers all its installed architectures and versions."""
        return packages.listed(name, version)["name"]
