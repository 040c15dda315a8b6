"""What package managers share; what dnf and zypper share because rpm manages the packages."""

import glob
import os
import re
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from ..gpu_judge import versions
from ..gpu_probe.packages import lock_holder
from . import packages, process
from .failure import HostFailure
from .packages import Installed, Plan, Wish

Offers = Dict[str, List[Dict[str, Any]]]
"""{name: [{"version", "size", "transitional", "source"}]}"""
Tell = Optional[Callable[..., None]]
Log = Optional[Callable[[str], None]]
MayGo = Callable[[Iterable[str]], List[str]]
"""Returns those of some packages that nobody allowed to be removed."""
Answer = TypeVar("Answer")
_LOCKED = re.compile(
    r"(?<!cache lock: )Could not get lock|another process using it|locked by another process"
    r"|Another transaction is in progress|transaction lock on .*Resource temporarily unavailable"
)
"""What apt, dpkg and rpm print when they give up because another program has taken their lock."""
_LOCKED_FOR, _PAUSE = 600, 3.0
_NEVRA = "%{NAME}\\t%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"


class PackageManager:
    """One host's package manager."""

    name = ""
    caches: Tuple[str, ...] = ()
    """Where downloaded package files stay."""

    def __init__(self, network: Optional[Dict[str, Any]] = None, tell: Tell = None, log: Log = None) -> None:
        self.env = process.environment(network)
        self.ca_file: str = (network or {}).get("ca_file") or ""
        self.tell = tell or (lambda *_words: None)
        self.log = log
        self.said = ""  # why the last simulation left something out

    def close(self) -> None:
        """Delete temporary files of one transaction."""

    def patiently(self, run: Callable[[], Answer]) -> Answer:
        """Return a command's answer. While another program has the lock that it needs, run it again: an upgrade that
        waited for our transaction takes the lock when that ends.
        """
        until = time.monotonic() + _LOCKED_FOR
        while True:
            answer = run()
            if not _LOCKED.search(str(answer)) or time.monotonic() > until:
                return answer
            self.tell("lock", "waiting for another program that uses the package manager")
            time.sleep(_PAUSE)

    def archive(self, wish: Wish, *more: str) -> str:
        """Return the file of an exact package version in a cache or one of these folders, empty if there is none."""
        for folder in (*self.caches, *more):
            for name in self.file_names(wish):
                for path in sorted(glob.glob(os.path.join(folder, glob.escape(name)))):
                    return path
        return ""

    def file_names(self, _wish: Wish) -> List[str]:
        """Return the possible names of a package's file."""
        raise NotImplementedError

    def of_database(self, *argv: str) -> str:
        """Return what dpkg or rpm lists; rpm skips damaged entries with a mere error, and a lost list is empty."""
        code, text, error = process.output(argv, self.env)
        if code or not text.strip() or "error:" in error:
            dpkg = "cp /var/lib/dpkg/status-old /var/lib/dpkg/status (older ones: zcat /var/backups/dpkg.status.*.gz)"
            hint = "rpm --rebuilddb" if argv[0] == "rpm" else dpkg
            raise HostFailure("GS-462", f"{argv[0]} does not answer: {error.strip() or 'it lists nothing'}", hint=hint)
        return text

    def edited_settings(self, _names: Iterable[str]) -> List[str]:
        """Return no file: rpm keeps edited settings beside as .rpmsave."""
        return []

    def can_hold(self) -> bool:
        return True

    def needed_to_hold(self) -> List[str]:
        """Return the packages without which packages cannot be held."""
        return []

    def offered(self, _names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        """Return {name, or name:arch: [{"version", "from"}]}, newest first."""
        raise NotImplementedError

    def ever_offered(self, names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        """Do the same as `offered`, including module streams that are not enabled."""
        return self.offered(names)

    def matching(self, _patterns: Sequence[str]) -> Offers:
        """Return every offered version of the packages whose names match globs, newest first."""
        raise NotImplementedError

    def enabled_stream(self, _module: str) -> Optional[str]:
        """Refuse module streams: only dnf has them."""
        raise HostFailure("GS-461", f"module streams were requested, but this host uses {self.name}")

    def automatic_upgrades(self, _names: Iterable[str]) -> Dict[str, str]:
        """Return no file: automatic upgrades by dnf and zypper respect locks."""
        return {}


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
        text = self.of_database("rpm", "-qa", "--qf", _NEVRA)
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


def wait_until_free(seconds: float, tell: Callable[..., None]) -> None:
    """Wait until no other program uses the package manager, and name it meanwhile; fail on timeout."""
    deadline = time.monotonic() + seconds
    while True:
        found = lock_holder()
        if not found:
            return
        who = "process {pid} ({command})".format(**found)
        if time.monotonic() > deadline:
            raise HostFailure(
                "GS-453", "another program uses the package manager", who, f"waited {int(seconds)} s",
                "wait for it (automatic upgrades at first boot take minutes), then run the same command again",
            )  # fmt: skip
        tell("lock", "waiting for the package manager, used by " + who)
        time.sleep(1)
