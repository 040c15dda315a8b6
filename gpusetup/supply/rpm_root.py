"""What dnf or zypper would install on a machine that has nothing: of each package its address, size and SHA-256.

NVIDIA's lists are signed and proven here; most distributions sign packages alone, which are proven once they are there.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.content import host_code
from gpusetup.errors import BadInputError, PreflightError, UnreachableError
from gpusetup.supply import rpm_archives
from gpusetup.supply.entry import Beside
from gpusetup.supply.root import Root
from gpusetup.supply.rpm_repository import entries_of, modules_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.model.package import Package
    from gpusetup.model.record import Arch
    from gpusetup.model.variables import RoleVariables
    from gpusetup.supply.entry import Entry
    from gpusetup.supply.rpm_archives import Repository

__all__ = ["RpmRoot"]

Wish = dict[str, str]

_SUSE = ("sles", "opensuse")
_NEEDED = {"createrepo_c": "createrepo-c", "modifyrepo_c": "createrepo-c", "rpmkeys": "rpm"}
_HOLDING = "dnf-command(versionlock)"
_CONFIGURATION = """[main]
plugins=0
best=1
zchunk=0
skip_if_unavailable=0
install_weak_deps=0
gpgcheck=1
"""


class RpmRoot(Root):
    """One release of a distribution with dnf or zypper."""

    def __init__(
        self, folder: Path, system: str, arch: Arch, archives: tuple[str, ...] = (), *, alone: bool = False
    ) -> None:
        super().__init__(folder, system)
        self.arch = arch
        self.suse = system.startswith(_SUSE)
        self._check(lists_only=alone)
        self.layout = host_code("gpu_host.sources").Layout(str(folder))
        self.definitions = Path(self.layout.zypper_repos if self.suse else self.layout.dnf_repos)
        self.version = system.lstrip("abcdefghijklmnopqrstuvwxyz-")
        for place in (self.definitions, folder / "root", folder / "cache"):
            place.mkdir(parents=True)
        self.host = self._zypper() if self.suse else self._dnf()
        self._used: dict[str, Repository] = {}
        texts = {"releasever": self.version, "basearch": arch}
        for name in archives:
            rpm_archives.given(Path(name), self.definitions, Path(self.layout.rpm_keys), texts, {})
        if not archives and not alone:
            self.add(rpm_archives.archives_of(system, arch), {})

    def _check(self, *, lists_only: bool) -> None:
        needed = {**_NEEDED, "zypper" if self.suse else "dnf": "zypper" if self.suse else "dnf"}
        lacking = sorted({package for program, package in needed.items() if shutil.which(program) is None})
        if lacking:
            programs = " ".join(lacking)
            raise PreflightError(
                "GS-781", f"what is for {self.system} needs {', '.join(lacking)} on this machine",
                hint=f"apt-get install {programs}; elsewhere: dnf install {programs.replace('-', '_')}",
            )  # fmt: skip
        if os.geteuid() != 0 and not (self.suse or lists_only):
            raise PreflightError(
                "GS-781", "dnf finds what to install for root alone", hint="repeat the command with sudo"
            )
        if self.suse and self.arch != os.uname().machine:
            raise PreflightError(
                "GS-781", f"zypper finds what to install for this machine's CPU alone, not for {self.arch}",
                hint=f"run it on a machine with {self.arch}",
            )  # fmt: skip

    def _dnf(self) -> Any:
        configuration = self.folder / "dnf.conf"
        configuration.write_text(_CONFIGURATION)
        platform = "f" if self.system.startswith("fedora") else "el"
        options = (
            f"--config={configuration}",
            f"--installroot={self.folder}/root",
            f"--releasever={self.version}",
            f"--forcearch={self.arch}",
            f"--setopt=reposdir={self.definitions}",
            f"--setopt=cachedir={self.folder}/cache",
            f"--setopt=module_platform_id=platform:{platform}{self.version}",
        )
        host = host_code("gpu_host.dnf").Dnf({}, options)
        host.architecture = lambda: self.arch
        return host

    def _zypper(self) -> Any:
        host = host_code("gpu_host.zypper").Zypper({}, looking=str(self.folder))
        host.options += ["--root", f"{self.folder}/root"]
        return host

    def refresh(self) -> None:
        """Fetch the lists; one that does not come, or is signed by a stranger, ends it."""
        trouble = self.host.refresh()
        if trouble:
            raise UnreachableError(
                "GS-782", f"the package lists for {self.system} could not be fetched", note=" | ".join(trouble[:4]),
                hint="name other archives with --archive FILE.repo",
            )  # fmt: skip

    def prefer(self, variables: RoleVariables, driver: str) -> None:  # noqa: ARG002 - the packages have the version
        """Choose the streams that the plan of a host chooses."""
        modules = self.folder / "root/etc/dnf/modules.d"
        shutil.rmtree(modules, ignore_errors=True)
        for stream in variables.gpu_packages_streams or ():
            path = modules / f"{stream.module}.module"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f"[{stream.module}]\nname={stream.module}\nstream={stream.stream}\nprofiles=\nstate=enabled\n"
            )

    def closure(self, packages: Iterable[Package]) -> tuple[Entry, ...]:
        """Return every package that a machine with nothing needs for these."""
        wishes = [{"name": item.name, "version": item.version, "arch": item.arch} for item in packages]
        holding = [] if self.suse else self.host.repoquery([], ["--whatprovides", _HOLDING])
        wishes += [{"name": row[0], "version": "", "arch": ""} for row in holding[-1:]]
        wanted = {pair for batch in _batches(wishes) for pair in self._solved(batch)}
        found = self._described(wanted)
        lost = sorted(f"{name} {version}" for name, version in wanted - found.keys())
        if lost:
            raise BadInputError(
                "GS-783", f"{self.host.name} finds no way to install these packages on {self.system}",
                note=self.host.said or f"no list has {', '.join(lost)}",
            )  # fmt: skip
        return tuple(found[key] for key in sorted(found))

    def _solved(self, wishes: list[Wish]) -> set[tuple[str, str]]:
        """Return name and version of what one transaction would install."""
        failure = host_code("gpu_host.failure").HostFailure
        try:
            exact = host_code("gpu_host.planning").resolve(self.host, wishes)
            chosen = self.host.simulate(exact, [])["install"]
        except failure as error:
            raise BadInputError(
                "GS-783", f"{self.host.name} finds no way to install these packages on {self.system}",
                note="; ".join(part for part in (error.fields["context"], error.fields["note"]) if part),
            ) from error  # fmt: skip
        bare = host_code("gpu_judge.versions").bare
        pairs = (*chosen.items(), *((wish["name"], wish["version"]) for wish in exact))
        return {(name, bare(version)) for name, version in pairs}

    def _described(self, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
        """Return what the lists say of packages, by the names under which a transaction has them."""
        found: dict[tuple[str, str], Entry] = {}
        self._used = {}
        listed = host_code("gpu_host.rpm").listed
        for repository, place in self._lists():
            for entry in entries_of(place, repository.url):
                key = (listed(entry.name, entry.arch, self.arch), entry.version)
                if key in wanted and key not in found:
                    found[key] = entry._replace(listed=repository.listed)
                    self._used[repository.name] = repository
        return found

    def index(self, url: str) -> list[Entry]:
        """Return everything that the only repository has."""
        lists = self._lists()
        self._used = {repository.name: repository for repository, _place in lists}
        return [entry for _, place in lists for entry in entries_of(place, url, (self.arch, "noarch"))]

    def beside(self) -> Beside:
        """Return the streams of the repositories, and the keys of their packages."""
        used = list(self._used.values())
        modules = [modules_of(place) for repository, place in self._lists() if repository in used]
        keys = (path.read_bytes() for repository in used for path in repository.keys)
        return Beside("".join(text.rstrip("\n") + "\n" for text in modules if text), tuple(dict.fromkeys(keys)))

    def _lists(self) -> list[tuple[Repository, Path]]:
        """Return where the lists of each repository are, as the package manager left them."""
        found = []
        for repository in rpm_archives.repositories(self.definitions):
            pattern = f"raw/{repository.name}" if self.suse else f"{repository.name}-????????????????"
            found += [(repository, place) for place in (self.folder / "cache").glob(pattern)]
        return found


def _batches(wishes: list[Wish]) -> list[list[Wish]]:
    """Return the transactions to look at: each has one version of a package, as of a kernel's headers."""
    first = {wish["name"]: wish for wish in reversed(wishes)}
    return [list(first.values())] + [
        list({**first, wish["name"]: wish}.values()) for wish in wishes if wish not in first.values()
    ]
