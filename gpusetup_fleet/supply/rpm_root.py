"""What dnf or zypper would install on an empty machine: URL, size and SHA-256 of each package.

NVIDIA's lists are signed and verified here; most distributions sign packages only, which are verified after download.
"""

import configparser
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gpusetup.content import host_code
from gpusetup.errors import BadInputError, PreflightError, UnreachableError, reason
from gpusetup.model.package import Key, Package, Source
from gpusetup.model.record import Arch
from gpusetup.model.variables import RoleVariables
from gpusetup_fleet.supply.root import Entry, Extras, Root
from gpusetup_fleet.supply.rpm_repository import entries_of, modules_of


class _Archives(Struct, frozen=True):
    """Archives of distributions that differ only in the part of their address."""

    of: tuple[str, ...]
    parts: tuple[str, ...]
    url: str
    key: str
    fingerprints: dict[str, tuple[str, ...]]
    """The distribution's version → fingerprints of its keys."""


_BUILDERS = {"8": "PowerTools"}


@cache
def _archives() -> tuple[_Archives, ...]:
    return msgspec.json.decode((Path(__file__).parent / "data/archives.json").read_bytes(), type=tuple[_Archives, ...])


def archives_of(system: str, arch: Arch) -> list[Source]:
    """Return the archives of a release; their packages are signed, their lists are not."""
    match = re.fullmatch(r"([a-z-]+?)(\d+)", system)
    name, version = match.groups() if match else (system, "")
    texts = {"version": version, "arch": arch, "builders": _BUILDERS.get(version, "CRB")}
    known = (archive for archive in _archives() if name in archive.of and version in archive.fingerprints)
    found = [
        Source(
            name=f"archive-{number}", kind="dnf", uris=(archive.url.replace("{part}", part).format(**texts),),
            key=Key.at(archive.key.format(**texts), archive.fingerprints[version]), gpgcheck=True, repo_gpgcheck=False,
        )
        for number, (archive, part) in enumerate((archive, part) for archive in known for part in archive.parts)
    ]  # fmt: skip
    if not found:
        raise _unknown(system)
    return found


def _unknown(system: str) -> BadInputError:
    return BadInputError(
        "GS-764", f"gpusetup knows no archive of {system}", path="--os",
        hint="name its archives: --archive FILE.repo, with baseurl= and gpgkey= as in a host's /etc/yum.repos.d",
    )  # fmt: skip


class Repository(NamedTuple):
    """One repository of a folder of definitions."""

    name: str
    url: str
    keys: tuple[Path, ...]
    signed: bool
    """Whether its packages are signed."""
    listed: bool = False
    """Whether only its list is signed."""


def repositories(folder: Path) -> list[Repository]:
    """Read the .repo files of a folder; repositories with signed packages come first."""
    found = []
    for path in sorted(folder.glob("*.repo")):
        for name, fields in _sections(path):
            keys = tuple(Path(word.removeprefix("file://")) for word in fields.get("gpgkey", "").split())
            signed = fields.get("pkg_gpgcheck", fields.get("gpgcheck", "1")) == "1"
            listed = not signed and fields.get("repo_gpgcheck") == "1"
            found.append(Repository(name, fields["baseurl"].split()[0], keys, signed, listed))
    return sorted(found, key=lambda repository: not repository.signed)


def _sections(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    text = configparser.ConfigParser(interpolation=None, strict=False)
    text.read_string(path.read_text("utf-8", "replace"))
    for name in text.sections():
        if text[name].getboolean("enabled", True):
            yield name, dict(text[name])


def add_definitions(path: Path, folder: Path, keys: Path, texts: dict[str, str]) -> None:
    """Add the repositories of a .repo file that the user names, with their keys."""
    try:
        sections = list(_sections(path))
    except (OSError, configparser.Error, ValueError) as error:
        raise BadInputError(
            "GS-764", f"{path} cannot be read as a .repo file: {reason(error)}", path="--archive",
            hint="--archive FILE.repo, as in a host's /etc/yum.repos.d",
        ) from error  # fmt: skip
    if not sections:
        raise BadInputError("GS-764", f"no repository of {path} is enabled", path="--archive", hint="set enabled=1")
    for name, written in sections:
        fields = dict(written)
        for variable, value in texts.items():
            fields = {key: text.replace(f"${variable}", value) for key, text in fields.items()}
        if not fields.get("baseurl") or not fields.get("gpgkey"):
            raise BadInputError(
                "GS-764", f"[{name}] of {path} has no baseurl= or no gpgkey=", path="--archive",
                hint="name one address of the archive, not a list of mirrors, and the key of its packages",
            )  # fmt: skip
        named = []
        for number, url in enumerate(fields["gpgkey"].split()):
            target = keys / f"{name}-{number}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_key(url))
            named.append(f"file://{target}")
        folder.mkdir(parents=True, exist_ok=True)
        listed = fields.get("repo_gpgcheck", "0")
        (folder / f"{name}.repo").write_text(
            f"[{name}]\nname={name}\nbaseurl={fields['baseurl'].split()[0]}\nenabled=1\ngpgcheck=1\n"
            f"repo_gpgcheck={listed}\ngpgkey={' '.join(named)}\ntype=rpm-md\n"
        )


def _key(url: str) -> bytes:
    failure = host_code("gpu_host.failure").HostFailure
    known = host_code("gpu_host.openpgp")
    try:
        raw = host_code("gpu_host.download").fetch(url, {})
        armored: bytes = known.armored(raw)
    except failure as error:
        raise UnreachableError(
            error.fields["reference"], error.fields["message"], context=url, note=error.fields["note"]
        ) from error
    except known.BadKey as error:
        raise BadInputError("GS-764", f"{url} cannot be read as a key: {error}", path="--archive") from error
    return armored


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

    def begin(self, archives: tuple[str, ...]) -> None:
        """Give the package manager an empty database, and the archives."""
        self.suse = self.system.startswith(_SUSE)
        self._check()
        self.layout = host_code("gpu_host.sources").Layout(str(self.folder))
        self.definitions = Path(self.layout.zypper_repos if self.suse else self.layout.dnf_repos)
        self.version = self.system.lstrip("abcdefghijklmnopqrstuvwxyz-")
        for place in (self.definitions, self.folder / "root", self.folder / "cache"):
            place.mkdir(parents=True)
        self.host = self._zypper() if self.suse else self._dnf()
        self._used: dict[str, Repository] = {}
        texts = {"releasever": self.version, "basearch": self.arch}
        for name in archives:
            add_definitions(Path(name), self.definitions, Path(self.layout.rpm_keys), texts)
        if not archives:
            self.add(archives_of(self.system, self.arch))

    def _check(self) -> None:
        needed = {**_NEEDED, "zypper" if self.suse else "dnf": "zypper" if self.suse else "dnf"}
        lacking = sorted({package for program, package in needed.items() if shutil.which(program) is None})
        if lacking:
            programs = " ".join(lacking)
            raise PreflightError(
                "GS-781", f"a bundle for {self.system} needs {', '.join(lacking)} on this machine",
                hint=f"apt-get install {programs}; elsewhere: dnf install {programs.replace('-', '_')}",
            )  # fmt: skip
        if os.geteuid() != 0 and not self.suse:
            raise PreflightError(
                "GS-781", "dnf resolves the packages only as root", hint="repeat the command with sudo"
            )
        if self.suse and self.arch != os.uname().machine:
            raise PreflightError(
                "GS-781", f"zypper resolves packages only for this machine's CPU, not for {self.arch}",
                hint=f"run it on a machine with {self.arch}",
            )  # fmt: skip

    def _dnf(self) -> Any:
        configuration = self.folder / "dnf.conf"
        configuration.write_text(_CONFIGURATION)
        platform = "f" if self.system.startswith("fedora") else "el"
        options = (
            f"--config={configuration}", f"--installroot={self.folder}/root", f"--releasever={self.version}",
            f"--forcearch={self.arch}", f"--setopt=reposdir={self.definitions}",
            f"--setopt=cachedir={self.folder}/cache",
            f"--setopt=module_platform_id=platform:{platform}{self.version}",
        )  # fmt: skip
        host = host_code("gpu_host.dnf").Dnf({}, options=options)
        host.architecture = lambda: self.arch
        return host

    def _zypper(self) -> Any:
        host = host_code("gpu_host.zypper").Zypper({}, looking=str(self.folder))
        host.options += ["--root", f"{self.folder}/root"]
        return host

    def refresh(self) -> None:
        """Fetch the package lists; raise if one is missing or has no trusted signature."""
        trouble = self.host.refresh()
        if trouble:
            raise UnreachableError(
                "GS-782", f"the package lists for {self.system} could not be fetched", note=" | ".join(trouble[:4])
            )

    def prefer(self, variables: RoleVariables, driver: str) -> None:  # noqa: ARG002 - the packages have the version
        """Enable the module streams of a host's plan."""
        modules = self.folder / "root/etc/dnf/modules.d"
        shutil.rmtree(modules, ignore_errors=True)
        for stream in variables.gpu_packages_streams or ():
            path = modules / f"{stream.module}.module"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f"[{stream.module}]\nname={stream.module}\nstream={stream.stream}\nprofiles=\nstate=enabled\n"
            )

    def closure(self, packages: Iterable[Package]) -> tuple[Entry, ...]:
        """Return these packages with all their dependencies, for an empty machine."""
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
        """Return name and version of each package that one transaction would install."""
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
        """Return the list entries of packages, by name and version in a transaction."""
        found: dict[tuple[str, str], Entry] = {}
        self._used = {}
        listed = host_code("gpu_host.package_manager").listed
        for repository, place in self._lists():
            for entry in entries_of(place, repository.url):
                key = (listed(entry.name, entry.arch, self.arch), entry.version)
                if key in wanted and key not in found:
                    found[key] = entry._replace(listed=repository.listed)
                    self._used[repository.name] = repository
        return found

    def extras(self) -> Extras:
        """Return the module streams of the repositories, and the keys of their packages."""
        used = list(self._used.values())
        modules = [modules_of(place) for repository, place in self._lists() if repository in used]
        keys = (path.read_bytes() for repository in used for path in repository.keys)
        return Extras("".join(text.rstrip("\n") + "\n" for text in modules if text), tuple(dict.fromkeys(keys)))

    def _lists(self) -> list[tuple[Repository, Path]]:
        """Return each repository with the folder where the package manager put its lists."""
        found = []
        for repository in repositories(self.definitions):
            pattern = f"raw/{repository.name}" if self.suse else f"{repository.name}-????????????????"
            found += [(repository, place) for place in (self.folder / "cache").glob(pattern)]
        return found


def _batches(wishes: list[Wish]) -> list[list[Wish]]:
    """Return the transactions to solve: each has one version of a package, such as headers of one kernel."""
    first = {wish["name"]: wish for wish in reversed(wishes)}
    return [list(first.values())] + [
        list({**first, wish["name"]: wish}.values()) for wish in wishes if wish not in first.values()
    ]
