"""Where NVIDIA's packages for a distribution are, and what vouches for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.package import UNPROVEN, Key, KeyPackage
from gpusetup.model.plan import Refusal
from gpusetup.plan.packages.base import Context, Repository

if TYPE_CHECKING:
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.record import Arch
    from gpusetup.model.repos import RepoDirectory, ReposFile
    from gpusetup.model.settings import Settings
    from gpusetup.plan.offers import Offers

__all__ = ["context_of", "directory_of", "repository_of", "unproven"]

_LAYOUT = "/compute/cuda/repos/"


def context_of(repos: ReposFile, facts: HostFacts, settings: Settings, offers: Offers) -> Context:
    """Return all that the choice of packages looks at."""
    return Context(
        facts=facts,
        settings=settings,
        offers=offers,
        repos=repos,
        repository=repository_of(repos, facts, settings),
    )


def directory_of(repos: ReposFile, facts: HostFacts) -> RepoDirectory | None:
    """Return NVIDIA's directory for this distribution and CPU, None when there is none."""
    for directory in repos.directories:
        if facts.os.label in directory.systems and facts.arch in directory.arches:
            return directory
    return None


def repository_of(repos: ReposFile, facts: HostFacts, settings: Settings) -> Repository | None:
    """Return the repository for a host, None when the distribution's own source is used or none exists."""
    directory = directory_of(repos, facts)
    if settings.source == "distro" or directory is None:
        return None
    arch: Arch = "x86_64" if facts.arch == "x86_64" else "aarch64"
    cpu = directory.arch_directories.get(arch, repos.repository.arches[arch])
    official = repos.repository.url.format(directory=directory.directory, arch=cpu)
    url = official
    if settings.source != "nvidia":
        base = settings.source if "://" in settings.source else f"file://{settings.source}"
        url = base if _LAYOUT in base else f"{base}{_LAYOUT}{directory.directory}/{cpu}"
    others = [mirror.format(directory=directory.directory, arch=cpu) for mirror in repos.repository.mirrors]
    return Repository(
        folder=directory.directory,
        cpu=cpu,
        url=url,
        key=_key(repos, directory, settings, url),
        unproven=next(
            (f"{official}/{key.file}" for key in repos.keys if key.id == directory.key and not key.fingerprint), ""
        ),
        also=tuple(dict.fromkeys((url, official, *others))),
    )


def unproven(context: Context) -> Refusal | None:
    """Return why a repository cannot be used: nothing vouches for its key, and none is taken unseen."""
    repository = context.repository
    if repository is None or repository.key != UNPROVEN:
        return None
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


def _key(repos: ReposFile, directory: RepoDirectory, settings: Settings, url: str) -> Key:
    """Return what vouches: a site's own fingerprints, NVIDIA's for this directory, or the keyring package's digest."""
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
