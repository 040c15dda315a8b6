"""The source of a host's driver: repository, signing key, package family, NVIDIA's `.run` installer; or a refusal."""

from msgspec.structs import replace

from gpusetup.components.base import Context, DriverPackages, Family, Offers, Repository, covering, repository_at
from gpusetup.components.containers import toolkit_sources
from gpusetup.components.driver.archives import DebianArchive, UbuntuArchive
from gpusetup.components.driver.modules import header_patterns, headers, unknown_kernel_note
from gpusetup.components.driver.nvidia import NvidiaRepository
from gpusetup.components.parsing import FileSource, file_source
from gpusetup.components.record import record_of
from gpusetup.components.vgpu import guest_notes
from gpusetup.errors import Exit, PreflightError
from gpusetup.model.facts import HostFacts
from gpusetup.model.facts_machine import OperatingSystem
from gpusetup.model.package import UNPROVEN, Installer, Key, KeyPackage, Manager, Origins, Package, Runfile
from gpusetup.model.plan import Refusal
from gpusetup.model.record import Arch
from gpusetup.model.repos import RepoDirectory, ReposFile
from gpusetup.model.request import DriverCandidate
from gpusetup.model.settings import Settings
from gpusetup.model.stack import DriverChoice

_BUILDER = "dkms"


class RunfileInstaller(Family):
    """An installer such as NVIDIA-Linux-x86_64-580.95.05.run."""

    key = "runfile"

    def __init__(self, file: FileSource, manager: Manager) -> None:
        self.file = file
        self._manager: Manager = manager

    @property
    def manager(self) -> Manager:
        """The host's package manager."""
        return self._manager

    def sources(self, context: Context) -> Origins:  # noqa: ARG002 - one interface for all
        """Return nothing: headers and DKMS come from the host's own repositories."""
        return Origins()

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return the names of DKMS and headers."""
        return (_BUILDER, *header_patterns(context))

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the version in the file's name, in the flavours that its branch has."""
        if context.settings.module == "prebuilt" or context.facts.arch != self.file.arch:
            return ()
        branch = int(self.file.version.partition(".")[0])
        flavours = sorted({row.module for row in covering(context.repos.drivers, branch)})
        return (DriverCandidate(version=self.file.version, modules=tuple(flavours)),)

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return DKMS and headers as prerequisites; packages of another driver are removed."""
        if context.facts.nvswitch is not None:
            raise PreflightError(
                "GS-352",
                "this machine has NVSwitches, and the .run installer has no Fabric Manager",
                note="without a Fabric Manager of exactly the driver's version CUDA does not start on this host",
            )
        return DriverPackages(
            packages=(),
            prerequisites=(*headers(context), Package(name=_BUILDER)),
            remove=packaged_drivers(context.facts) if context.settings.replace or _ours(context) else (),
            may_remove=packaged_drivers(context.facts),
            notes=(*unknown_kernel_note(context), *_unproven(context), *guest_notes(context.facts, context.settings)),
            persistence=False,
            built="dkms",
            why="a .run installer builds them on the host",
            runfile=Runfile(path=self.file.path, version=choice.version, sha256=context.settings.source_sha256),
        )


def packaged_drivers(facts: HostFacts) -> tuple[str, ...]:
    """Return the names of installed driver packages."""
    installs = facts.driver.installs if facts.driver is not None else ()
    return tuple(dict.fromkeys(name for install in installs for name in install.packages))


def _ours(context: Context) -> bool:
    brought = set(record_of(context.facts).brought)
    names = packaged_drivers(context.facts)
    return bool(names) and set(names) <= brought


def _unproven(context: Context) -> tuple[str, ...]:
    if context.settings.source_sha256:
        return ()
    return ("only its owner vouches for the .run installer: set gpusetup_source_sha256 to the publisher's digest",)


_LAYOUT = "/compute/cuda/repos/"


def context_of(repos: ReposFile, facts: HostFacts, settings: Settings, offers: Offers) -> Context:
    """Return the context in which packages are chosen."""
    return Context(
        facts=facts, settings=settings, offers=offers, repos=repos, repository=repository_of(repos, facts, settings)
    )


def directory_of(repos: ReposFile, facts: HostFacts) -> RepoDirectory | None:
    """Return NVIDIA's repository directory for this distribution and CPU; None if there is none."""
    for directory in repos.directories:
        if facts.os.label in directory.systems and facts.arch in directory.arches:
            return directory
    return None


def repository_of(repos: ReposFile, facts: HostFacts, settings: Settings) -> Repository | None:
    """Return NVIDIA's repository for a host; None for source `distro`, a `.run` file, or if none exists."""
    directory = directory_of(repos, facts)
    file = file_source(settings.source)
    if settings.source == "distro" or directory is None or (file is not None and file.kind == "runfile"):
        return None
    arch: Arch = "x86_64" if facts.arch == "x86_64" else "aarch64"
    cpu = directory.arch_directories.get(arch, repos.repository.arches[arch])
    official = repos.repository.url.format(directory=directory.directory, arch=cpu)
    url = official
    if settings.source != "nvidia":
        base = settings.source if "://" in settings.source else f"file://{settings.source}"
        url = base if _LAYOUT in base else f"{base}{_LAYOUT}{directory.directory}/{cpu}"
    installer = None
    if file is not None:
        installer = Installer(
            path=file.path,
            directory=directory.directory,
            sha256=settings.source_sha256,
            fingerprints=settings.source_fingerprints,
        )
        url = f"file:///var/lib/gpusetup/sources/{file.stem}"
    others = [mirror.format(directory=directory.directory, arch=cpu) for mirror in repos.repository.mirrors]
    return Repository(
        folder=directory.directory,
        cpu=cpu,
        url=url,
        key=_key(repos, directory, settings, url) if installer is None else UNPROVEN,
        installer=installer,
        unproven=next(
            (f"{official}/{key.file}" for key in repos.keys if key.id == directory.key and not key.fingerprint), ""
        ),
        also=tuple(dict.fromkeys((url, official, *others))) if installer is None else (url,),
    )


def unproven(context: Context) -> Refusal | None:
    """Return the refusal of a repository whose key cannot be verified; None if it can."""
    repository = context.repository
    if repository is None or repository.key != UNPROVEN:
        return None
    if repository.installer is not None:
        return _of_file(context, repository.installer)
    return Refusal(
        reference="GS-338",
        message=f"the key that signs NVIDIA's repository {repository.folder} cannot be verified",
        note="NVIDIA has not published its fingerprint"
        + (f"; it is {repository.unproven}" if repository.unproven else ""),
        hint=(
            "check it through a channel you trust, then set it: gpusetup_source_fingerprints=… and gpusetup_source_key="
        )
        + (repository.unproven or "URL"),
    )


def _of_file(context: Context, installer: Installer) -> Refusal | None:
    """Return the refusal of a local repository's package for another host or without proof; None if all is well."""
    file = file_source(installer.path)
    if file is None or file.directory != installer.directory:
        return Refusal(
            reference="GS-353",
            message=f"{installer.path} is for {file.directory if file else 'an unknown distribution'}; packages for "
            f"{context.facts.os.label} are {installer.directory}",
            hint=f"use the file whose name contains -{installer.directory}-",
        )
    if context.facts.packages.manager == "zypper":
        return Refusal(
            reference="GS-353",
            message="local repositories are used with apt and dnf only",
            hint="make a mirror of its content and name that folder: gpusetup_source=/path",
        )
    if installer.sha256 or installer.fingerprints:
        return None
    return Refusal(
        reference="GS-338",
        message=f"nothing proves that {installer.path} is the file that NVIDIA published",
        note="each of these packages has a signing key of its own, whose fingerprint is unpublished",
        hint="set gpusetup_source_sha256 to the digest that the publisher names, or gpusetup_source_fingerprints",
    )


def _key(repos: ReposFile, directory: RepoDirectory, settings: Settings, url: str) -> Key:
    """Return the key: the site's fingerprints, else NVIDIA's for this directory, else the keyring package's digest."""
    if settings.source_fingerprints:
        place = settings.source_key or f"{url}/{settings.source_fingerprints[0][-8:].lower()}.pub"
        return Key.at(place, settings.source_fingerprints)
    known = next((key for key in repos.keys if key.id == directory.key), None)
    if known is not None and known.fingerprint:
        return Key(fingerprints=(known.fingerprint,), url=f"{url}/{known.file}")
    if directory.keyring_sha256:
        package = KeyPackage(
            url=f"{url}/{repos.repository.keyring_package}",
            sha256=directory.keyring_sha256,
            member=repos.repository.keyring_path.lstrip("/"),
        )
        return Key(fingerprints=(), package=package)
    return UNPROVEN


def absence(context: Context) -> Refusal:
    """Return the refusal of a host on which no packages can be installed."""
    facts, rows = context.facts, context.repos.distro_drivers
    label, by_hand = facts.os.label, "install a driver by hand; gpusetup keeps it"
    if context.settings.source == "distro":
        there = directory_of(context.repos, facts) is not None
        message = f"{facts.os.name} has no driver packages that gpusetup knows"
        note = "it knows those of " + ", ".join(sorted({name for row in rows for name in row.systems}))
        hint = "use NVIDIA's: gpusetup_source=nvidia" if there else by_hand
    else:
        own = any(label in row.systems for row in rows)
        message, note = f"NVIDIA has no repository for {label} on {facts.arch}", ""
        hint = "use the distribution's: gpusetup_source=distro" if own else by_hand
    return Refusal(reference="GS-331", message=message, note=note, hint=hint, exit=int(Exit.NO_STACK))


def family_for(context: Context) -> Family | None:
    """Return the package family of the source; None if gpusetup can install nothing from it here."""
    system, source = context.facts.os, context.settings.source
    file = file_source(source)
    if file is not None and file.kind == "runfile":
        return RunfileInstaller(file, manager_of(system))
    if source == "distro":
        if not any(system.label in row.systems for row in context.repos.distro_drivers):
            return None
        return UbuntuArchive() if system.id == "ubuntu" else DebianArchive()
    directory = directory_of(context.repos, context.facts)
    return NvidiaRepository(directory) if directory is not None else None


def manager_of(system: OperatingSystem) -> Manager:
    """Return the package manager of a distribution."""
    managers: dict[str, Manager] = {"debian": "apt", "suse": "zypper"}
    return managers.get(system.family, "dnf")


def all_sources(context: Context, family: Family) -> Origins:
    """Return all repositories: the family's, the container toolkit's and the site's additional ones."""
    origins = family.sources(context)
    extra = (
        repository_at(source.name, family.manager, source.uris or (), source.key or UNPROVEN)
        for source in context.settings.extra_sources
    )
    toolkit = toolkit_sources(context, family.manager)
    return replace(origins, sources=(*origins.sources, *toolkit, *extra))
