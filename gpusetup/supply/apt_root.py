"""What a distribution's own resolver would install on a machine that has nothing: apt, in a folder of ours.

Nothing of this machine counts: an empty package database, the archives of the wanted release, the sources of the plan.
apt checks every signature, and says of each package its address, size and SHA-256.
"""

from __future__ import annotations

import os
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.content import host_code
from gpusetup.drive.runner import run
from gpusetup.errors import BadInputError, PreflightError, UnreachableError
from gpusetup.supply.archives import archive_of
from gpusetup.supply.fetching import Wanted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.drive.runner import Finished
    from gpusetup.model.package import Package, Pin, Source
    from gpusetup.model.record import Arch

__all__ = ["AptRoot"]

_URI = re.compile(r"^'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})$", re.MULTILINE)
_DEADLINE = 600.0
_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


class AptRoot:
    """One release of Debian or Ubuntu for one CPU; `folder` is thrown away afterwards."""

    def __init__(self, folder: Path, system: str, arch: Arch, archives: tuple[str, ...] = ()) -> None:
        if shutil.which("apt-get") is None:
            raise PreflightError(
                "GS-781", f"a bundle for {system} needs apt-get on this machine",
                hint="run it on any Debian or Ubuntu, in a container too",
            )  # fmt: skip
        self.folder, self.system = folder, system
        for name in ("etc/sources.list.d", "etc/preferences.d", "lists/partial", "cache/archives/partial", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "state/status").touch()
        lines = archives or archive_of(system, arch)
        (folder / "etc/sources.list").write_text("".join(f"{line}\n" for line in lines))
        self.options = (
            f"Dir::Etc::sourcelist={folder}/etc/sources.list",
            f"Dir::Etc::sourceparts={folder}/etc/sources.list.d",
            f"Dir::Etc::preferencesparts={folder}/etc/preferences.d",
            "Dir::Etc::preferences=/dev/null",
            f"Dir::State={folder}/state",
            f"Dir::State::lists={folder}/lists",
            f"Dir::State::status={folder}/state/status",
            f"Dir::Cache={folder}/cache",
            f"APT::Architecture={_ARCHES[arch]}",
            f"APT::Architectures={_ARCHES[arch]}",
            "APT::Install-Recommends=false",
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::GzipIndexes=false",
            "Acquire::ForceHash=SHA256",
            "Acquire::Retries=3",
        )
        self._apt: Any = host_code("gpu_host.apt").Apt({}, self.options)

    def add(self, sources: Iterable[Source], network: dict[str, Any]) -> None:
        """Trust and use the repositories of a plan, their keys proven by fingerprint as on a host."""
        known = host_code("gpu_host.sources")
        failure = host_code("gpu_host.failure").HostFailure
        layout = known.Layout(str(self.folder))
        for source in sources:
            plain = msgspec.to_builtins(source)
            try:
                known.check(plain)
                written = known.render(plain, known.key_of(plain, network), layout, [])
            except failure as error:
                raise UnreachableError(
                    error.fields["reference"], error.fields["message"], note=error.fields["note"],
                    context=error.fields["context"], hint=error.fields["hint"],
                ) from error  # fmt: skip
            for path, (text, _mode) in written.items():
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())
        parts = self.folder / "etc/apt/sources.list.d"
        for path in parts.iterdir() if parts.is_dir() else ():
            path.replace(self.folder / "etc/sources.list.d" / path.name)

    def refresh(self) -> None:
        """Fetch the lists; one that does not come, or is signed by a stranger, ends it."""
        done = self._tool("apt-get", "update")
        lines = [line for line in (done.out + done.err).splitlines() if re.match(r"(E|W|Err):", line)]
        bad = [
            line for line in lines if line.startswith(("E:", "Err:")) or re.search(r"NO_PUBKEY|not signed|GPG", line)
        ]
        if done.code or bad:
            raise UnreachableError(
                "GS-782", f"the package lists for {self.system} could not be fetched",
                note=" | ".join((bad or lines)[:4]),
                hint="is the archive's keyring installed here (debian-archive-keyring, ubuntu-archive-keyring)? "
                "name other archives with --archive 'deb [signed-by=FILE] URL SUITE COMPONENTS'",
            )  # fmt: skip

    def offers(self, patterns: tuple[str, ...]) -> dict[str, Any]:
        """Return what the repositories have of these names, as a look at a host says it."""
        found: dict[str, Any] = host_code("gpu_host.offers").look(self._apt, patterns)
        return found

    def prefer(self, pins: Iterable[Pin], driver: str) -> None:
        """Let apt choose as the plan of a host lets it choose: one driver, whole."""
        known = host_code("gpu_host.sources")
        plain = [msgspec.to_builtins(pin) for pin in pins]
        for path, (text, _mode) in known.preferences(plain, known.Layout(str(self.folder))).items():
            (self.folder / "etc/preferences.d" / Path(path).name).write_text(text)
        if driver:
            together = host_code("gpu_host.apt").Apt({}, (), together=driver)
            shutil.move(together.pins, self.folder / "etc/preferences.d" / "driver.pref")

    def closure(self, packages: Iterable[Package]) -> tuple[Wanted, ...]:
        """Return every file that a machine with nothing needs for these packages."""
        wanted = list(packages)
        names = [f"{item.name}={version}" if (version := self._version(item)) else item.name for item in wanted]
        done = self._tool("apt-get", "--print-uris", "--yes", "--no-remove", "install", *names)
        if done.code:
            raise BadInputError(
                "GS-783", f"apt finds no way to install these packages on {self.system}",
                note=" | ".join(line.strip() for line in (done.err + done.out).splitlines()[-8:] if line.strip()),
            )  # fmt: skip
        found = tuple(
            Wanted(url=url, name=name.replace("%3a", ":").replace("%3A", ":"), size=int(size), sha256=sha256)
            for url, name, size, sha256 in _URI.findall(done.out)
        )
        if done.out.count("\n'") + done.out.startswith("'") != len(found):
            raise BadInputError(
                "GS-763", f"an archive of {self.system} has packages without a SHA-256", hint="use another --archive"
            )
        return found

    def stanzas(self, files: Iterable[Wanted]) -> dict[str, str]:
        """Return what the archives' indices say of each file, by its SHA-256."""
        names = sorted({item.name.partition("_")[0] for item in files})
        done = self._tool("apt-cache", "show", "--all-versions", *names)
        found = {}
        for stanza in done.out.split("\n\n"):
            if match := re.search(r"^SHA256: ([0-9a-f]{64})$", stanza, re.MULTILINE):
                found[match[1]] = stanza.strip("\n")
        return found

    def _version(self, package: Package) -> str:
        """Return the exact version where one is meant: the newest that fits a pattern."""
        if not package.version:
            return ""
        offered = [row["version"] for row in self._apt.offered([package.name])[package.name]]
        return next((version for version in offered if fnmatchcase(version, package.version)), package.version)

    def _tool(self, program: str, *words: str) -> Finished:
        options = [piece for option in self.options for piece in ("-o", option)]
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("LC_")}, "LC_ALL": "C.UTF-8"}
        env["DEBIAN_FRONTEND"] = "noninteractive"
        return run((program, *options, *words), env=env, deadline=_DEADLINE)
