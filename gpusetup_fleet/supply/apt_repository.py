"""A flat, signed apt repository; and what apt would install on an empty machine."""

import datetime as dt
import gzip
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import msgspec

from gpusetup.bootstrap.bundle import replaced
from gpusetup.content import host_code
from gpusetup.drive.runner import Finished, run
from gpusetup.errors import BadInputError, PreflightError, UnreachableError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import by_id, codename_of
from gpusetup.model.package import Package, Source
from gpusetup.model.record import Arch
from gpusetup.model.variables import RoleVariables
from gpusetup_fleet.supply.fetching import Pool, Wanted
from gpusetup_fleet.supply.root import Entry, Extras, Root
from gpusetup_fleet.supply.signing import Signer

_PLACE = re.compile(r"^Filename: .*$", re.MULTILINE)
_FIELD = re.compile(r"^([A-Za-z0-9-]+): (.*)$", re.MULTILINE)
_PLAIN = "/+~:@"
"""Characters that are not percent-encoded in the path of a URL."""


def read(place: Path) -> list[Entry]:
    """Return the packages of a repository; none if it does not exist."""
    index = place / "Packages"
    return entries_of(index.read_text("utf-8", "replace"), "") if index.is_file() else []


def extras_in(_place: Path, _signer: Signer) -> Extras:
    """Return no extras: an apt repository has none."""
    return Extras()


def entries_of(text: str, url: str) -> list[Entry]:
    """Read a Packages file."""
    found = []
    for stanza in text.strip().split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        if {"Package", "Version", "Filename", "Size", "SHA256"} <= set(fields):
            address = f"{url.rstrip('/')}/{quote(fields['Filename'].removeprefix('./').lstrip('/'), safe=_PLAIN)}"
            arch = fields.get("Architecture", "all")
            version = fields["Version"].partition(":")[2] or fields["Version"]  # some servers do not accept the colon
            name = f"{fields['Package']}_{version}_{arch}.deb"
            file = Wanted(address, name, int(fields["Size"]), fields["SHA256"])
            found.append(Entry(fields["Package"], fields["Version"], file, arch=arch, stanza=stanza.strip("\n")))
    return found


def prove(_paths: Iterable[Path], _extras: Extras) -> None:
    """Do nothing: apt verified the index, which has the digests."""


def publish(place: Path, entries: Iterable[Entry], pool: Pool, signer: Signer, _extras: Extras) -> None:
    """Write the repository in one step."""
    with replaced(place) as new:
        described = []
        for entry in sorted(entries, key=lambda entry: entry.file):
            pool.lay(entry.file.sha256, new / entry.file.name)
            described.append(_PLACE.sub(f"Filename: ./{entry.file.name}", entry.stanza))
        packages = ("\n\n".join(described) + "\n").encode()
        (new / "Packages").write_bytes(packages)
        (new / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
        (new / "Release").write_text(_release(new, ("Packages", "Packages.gz")))
        signer.clear(new / "Release", new / "InRelease")
        (new / signer.key_file).write_bytes(signer.public())


def _release(folder: Path, names: tuple[str, ...]) -> str:
    lines = [
        "Origin: gpusetup", "Label: gpusetup bundle",
        f"Date: {dt.datetime.now(tz=dt.timezone.utc):%a, %d %b %Y %H:%M:%S +0000}", "SHA256:",
    ]  # fmt: skip
    for name in names:
        raw = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(raw).hexdigest()} {len(raw)} {name}")
    return "\n".join(lines) + "\n"


_DEBIAN = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_LINES = {
    "debian": (
        ("http://deb.debian.org/debian", "{codename} {codename}-updates", "main contrib non-free non-free-firmware"),
        ("http://deb.debian.org/debian-security", "{codename}-security", "main contrib non-free non-free-firmware"),
    ),
    "ubuntu": (
        ("{ubuntu}", "{codename} {codename}-updates", "main restricted universe multiverse"),
        ("{security}", "{codename}-security", "main restricted universe multiverse"),
    ),
}


def archive_of(system: str, arch: Arch) -> tuple[str, ...]:
    """Return the lines of sources.list for a release."""
    family, keyring = ("debian", _DEBIAN) if system.startswith("debian") else ("ubuntu", _UBUNTU)
    codename = codename_of(by_id(matrix(), system))
    if codename is None:
        raise BadInputError(
            "GS-764", f"gpusetup knows no archive of {system}", path="--os",
            hint="name its archives: --archive 'deb [signed-by=FILE] URL SUITE COMPONENTS'",
        )  # fmt: skip
    ports = "http://ports.ubuntu.com/ubuntu-ports"
    places = {
        "ubuntu": ports if arch == "aarch64" else "http://archive.ubuntu.com/ubuntu",
        "security": ports if arch == "aarch64" else "http://security.ubuntu.com/ubuntu",
        "codename": codename,
    }
    return tuple(
        f"deb [signed-by={keyring}] {url.format(**places)} {suite} {components}"
        for url, suites, components in _LINES[family]
        for suite in suites.format(**places).split()
    )


_URI = re.compile(r"^'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})$", re.MULTILINE)
_DEADLINE = 600.0
_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


_OTHER = "name other archives with --archive 'deb [signed-by=FILE] URL SUITE COMPONENTS'"
_KEYRING = f"is the archive's keyring installed here (debian-archive-keyring, ubuntu-archive-keyring)? {_OTHER}"
_EXPIRED = f"its signing key has expired: take the key's new version from whoever publishes the archive; {_OTHER}"


class AptRoot(Root):
    """One release of Debian or Ubuntu."""

    def begin(self, archives: tuple[str, ...]) -> None:
        """Give the package manager an empty database, and the archives."""
        folder, arch = self.folder, _ARCHES[self.arch]
        if shutil.which("apt-get") is None:
            raise PreflightError(
                "GS-781", f"a bundle for {self.system} needs apt-get on this machine",
                hint="run it on any Debian or Ubuntu, in a container too",
            )  # fmt: skip
        for name in ("etc/sources.list.d", "etc/preferences.d", "lists/partial", "cache/archives/partial", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "state/status").touch()
        lines = archives or archive_of(self.system, self.arch)
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
            "Dir::Cache::pkgcache=pkgcache.bin",  # images switch it off: each question reads all lists then
            f"APT::Architecture={arch}",
            f"APT::Architectures={arch}",
            "APT::Install-Recommends=false",
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::GzipIndexes=false",
            "Acquire::ForceHash=SHA256",
            "Acquire::Retries=3",
        )
        self.host = host_code("gpu_host.apt").Apt({}, options=self.options)

    def add(self, sources: Iterable[Source]) -> None:
        """Configure the repositories of a plan in the folder that apt reads here."""
        super().add(sources)
        parts = self.folder / "etc/apt/sources.list.d"
        for path in parts.iterdir() if parts.is_dir() else ():
            path.replace(self.folder / "etc/sources.list.d" / path.name)

    def refresh(self) -> None:
        """Fetch the package lists; raise if one is missing or has no trusted signature."""
        done = self._tool("apt-get", "update")
        lines = [line for line in (done.out + done.err).splitlines() if re.match(r"(E|W|Err):", line)]
        bad = [
            line for line in lines if line.startswith(("E:", "Err:")) or re.search(r"NO_PUBKEY|not signed|GPG", line)
        ]
        if done.code or bad:
            raise UnreachableError(
                "GS-782", f"the package lists for {self.system} could not be fetched",
                note=" | ".join((bad or lines)[:4]),
                hint=_EXPIRED if "EXPKEYSIG" in done.out + done.err else _KEYRING,
            )  # fmt: skip

    def prefer(self, variables: RoleVariables, driver: str) -> None:
        """Write the pins of a host's plan, and those that keep one driver version together."""
        for former in (self.folder / "etc/preferences.d").iterdir():
            former.unlink()
        known = host_code("gpu_host.sources")
        plain = [msgspec.to_builtins(pin) for pin in variables.gpu_repo_pins or ()]
        for path, (text, _mode) in known.preferences(plain, known.Layout(str(self.folder))).items():
            (self.folder / "etc/preferences.d" / Path(path).name).write_text(text)
        if driver:
            together = host_code("gpu_host.apt").Apt({}, together=driver)
            shutil.move(together.pins, self.folder / "etc/preferences.d" / "driver.pref")

    def closure(self, packages: Iterable[Package]) -> tuple[Entry, ...]:
        """Return these packages with all their dependencies, for an empty machine."""
        wanted = list(packages)
        # All names in one query: with pins each query takes a second.
        offered = self.host.offered([item.name for item in wanted if item.version])
        names = [item.name + _exactly(item, offered) for item in wanted]
        done = self._tool("apt-get", "--print-uris", "--yes", "--no-remove", "install", *names)
        if done.code:
            raise BadInputError(
                "GS-783", f"apt finds no way to install these packages on {self.system}",
                note=" | ".join(line.strip() for line in (done.err + done.out).splitlines()[-8:] if line.strip()),
            )  # fmt: skip
        found = _URI.findall(done.out)
        if done.out.count("\n'") + done.out.startswith("'") != len(found):
            raise BadInputError(
                "GS-763", f"an archive of {self.system} has packages without a SHA-256", hint="use another --archive"
            )
        # The output above has the URLs, the archives' indices have the rest.
        names = sorted({name.partition("_")[0] for _url, name, _size, _sha256 in found})
        told = entries_of(self._tool("apt-cache", "show", "--all-versions", *names).out, "")
        by_digest = {entry.file.sha256: entry for entry in told}
        return tuple(
            by_digest[sha256]._replace(file=by_digest[sha256].file._replace(url=url))
            for url, _name, _size, sha256 in found
        )

    def _tool(self, program: str, *words: str) -> Finished:
        options = [piece for option in self.options for piece in ("-o", option)]
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("LC_")}, "LC_ALL": "C.UTF-8"}
        env["DEBIAN_FRONTEND"] = "noninteractive"
        return run((program, *options, *words), env=env, deadline=_DEADLINE)


def _exactly(package: Package, offered: dict[str, list[dict[str, str]]]) -> str:
    """Return `=` and the newest offered version that fits the pattern; empty without a pattern."""
    if not package.version:
        return ""
    found = (row["version"] for row in offered[package.name] if fnmatchcase(row["version"], package.version))
    return f"={next(found, package.version)}"
