"""NVIDIA's repositories, for apt, dnf and zypper.

Ubuntu: names contain the branch up to 580; from 590 a pinning package selects the version. Debian: Debian's names,
without the branch. EL 8 and 9, Amazon Linux: a module stream selects the branch; later releases have plain packages.
SUSE: the generation in a name (G06, G07) covers a range of branches.
"""

from collections.abc import Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.components import cuda as libraries
from gpusetup.components.base import (
    PINNING,
    Context,
    DriverPackages,
    covering,
    driver_candidates,
    glob,
    named,
    no_names,
    repository_at,
)
from gpusetup.components.desktops import graphics_of
from gpusetup.components.driver.archives import graphics, graphics_patterns, of_other_series
from gpusetup.components.driver.modules import (
    Prebuilt,
    Ways,
    choose,
    header_patterns,
    headers,
    nvidia_prebuilt,
    only_trusted,
    prebuilt_patterns,
    refusal,
    repositories_of,
    stale_prebuilt,
    unknown_kernel_note,
)
from gpusetup.components.fabric import fabric_globs, fabric_of, held
from gpusetup.errors import PreflightError
from gpusetup.model.package import Built, Libraries, Manager, Origins, Package, Stream
from gpusetup.model.repos import DriverPackages as Row
from gpusetup.model.repos import Format, RepoDirectory
from gpusetup.model.request import DriverCandidate, LibraryCandidates, ModuleFlavour
from gpusetup.model.stack import DriverChoice, Stack

_STREAMS = "nvidia-driver"
"""The dnf module whose streams select a branch."""
_BUILDERS = {"8": "powertools", "9": "crb", "10": "crb"}
"""EL major → the repository with what dkms needs, which EL rebuilds disable by default."""


class NvidiaRepository:
    """compute/cuda/repos/ubuntuNNNN, debianNN, rhelN, amzn2023, fedoraNN, …."""

    def __init__(self, directory: RepoDirectory) -> None:
        self.family = directory.family
        self.form: Format = "deb" if directory.family in {"ubuntu", "debian"} else "rpm"
        self.key = f"nvidia-{directory.family}"
        self.manager: Manager = "apt" if self.form == "deb" else "zypper" if self.family == "suse" else "dnf"

    def sources(self, context: Context) -> Origins:
        """Return NVIDIA's repository or its mirror, and the distribution's repositories to enable."""
        origins = _origins(context, self.manager)
        origins = replace(origins, enable=(*origins.enable, *repositories_of(context)))
        system = context.facts.os
        if system.id in {"rocky", "almalinux", "centos", "ol"}:
            name = _BUILDERS.get(system.version_id.partition(".")[0])
            packages = context.facts.packages
            if name and (name in packages.disabled or any(name in source.suites for source in packages.sources)):
                return replace(origins, enable=(*origins.enable, name))
        return origins

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return globs for kernel modules, user space, fabric, libraries and headers."""
        groups = [
            group
            for row in self._rows(context)
            for group in (row.packages, row.compute_only, row.optional, (row.persistence,), row.pinning)
        ]
        names = [glob(name) for group in groups for name in group if name]
        return tuple(
            dict.fromkeys(
                (
                    *names,
                    *(
                        glob(name)
                        for row in context.repos.fabric
                        if row.format == self.form
                        for name in (row.fabric_manager, row.nscq, row.imex, row.nvsdm)
                        if name
                    ),
                    *libraries.patterns(context, self.form),
                    *header_patterns(context),
                    *prebuilt_patterns(context),
                    "dkms",
                    *(graphics_patterns(context) if self.family == "ubuntu" else ()),
                )
            )
        )

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the versions with modules and user space; None if an unselected stream may hide all of them."""
        offers = context.offers
        if not offers.known:
            return None
        found: dict[str, set[ModuleFlavour]] = {}
        signed: dict[str, set[ModuleFlavour]] = {}
        for row in self._rows(context):
            for version, ways in self._offered(context, row):
                chosen = choose(context, ways)
                if chosen is not None:
                    found.setdefault(version, set()).add(row.module)
                if chosen is not None and chosen[0] == "prebuilt":
                    signed.setdefault(version, set()).add(row.module)
        asked = context.settings.module == "prebuilt"
        hidden = not found and not asked and any(row.stream for row in self._rows(context))
        return None if hidden else driver_candidates(signed if signed and only_trusted(context) else found)

    def _offered(self, context: Context, row: Row) -> Iterator[tuple[str, Ways]]:
        """Yield each version whose user space this row offers, with the ways to get its modules."""
        offers = context.offers
        for pattern in row.compute_only[-1:]:
            for name in offers.names(glob(pattern)):
                for version in offers.upstreams(name):
                    branch = version.partition(".")[0]
                    names = [named(item, branch=branch) for item in row.compute_only]
                    fits = names[-1] == name and any(covering([row], int(branch)))
                    if fits and _offered(context, names[1:], version):
                        yield version, self._ways(context, row, names[0], version)

    def _ways(self, context: Context, row: Row, module: str, version: str) -> Ways:
        return Ways(
            prebuilt=nvidia_prebuilt(context, version, row.module),
            dkms=context.offers.has(module, version),
            prefers="dkms",
        )

    def _built(self, context: Context, row: Row, module: str, version: str) -> tuple[Built, str, Prebuilt | None]:
        """Return how the modules are built, why, and the prebuilt ones; DKMS while offers are unknown."""
        ways = self._ways(context, row, module, version)
        chosen = choose(context, ways)
        why_not = refusal(context, self)
        if chosen is None and why_not is not None and context.settings.module == "prebuilt":
            raise PreflightError(why_not.reference, why_not.message, note=why_not.note, hint=why_not.hint)
        built, why = chosen or ("dkms", "")
        return built, why, ways.prebuilt if built == "prebuilt" else None

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return the compute packages without a desktop; the metapackage while offers are unknown."""
        offers, version = context.offers, choice.version
        row, other = self._row(context, choice), self._other(context, choice)
        texts = {"branch": choice.branch, "version": version}
        names = _filled(row.compute_only, texts)
        daemon = row.persistence if context.settings.persistence else ""
        more = _filled((*row.optional, *filter(None, (daemon,))), texts)
        if not offers.known and (row.optional or not names):
            names, more = _filled(row.packages, texts), []
        certain = not offers.known or bool(row.stream)
        names += [name for name in more if certain or offers.has(name, version)]
        built, why, prebuilt = self._built(context, row, names[0], version) if names else ("dkms", "", None)
        here = names[:1]
        if prebuilt is not None:
            names = names[1:]
        packages = [offers.exact(name, version) for name in names]
        if prebuilt is not None:
            more_names = (prebuilt.follower,) if prebuilt.follower else ()
            packages = [prebuilt.package, *(Package(name=name) for name in more_names), *packages]
        stream = prebuilt.stream if prebuilt is not None and prebuilt.stream else row.stream
        suffix = self.series(context, choice)
        if self.family == "ubuntu":
            packages += graphics(context, suffix, version)
        packages += graphics_of(context, suffix, version, packages)
        pinning = _filled(row.pinning, texts)
        if pinning:
            packages.insert(0, Package(name=next((name for name in pinning if offers.has(name)), pinning[0])))
        fabric = fabric_of(context, choice, self.form)
        stack = held(context.repos, "nvidia", self.family)
        return DriverPackages(
            packages=tuple(packages),
            prerequisites=headers(context) if prebuilt is None else (),
            fabric=fabric,
            streams=(Stream(module=_STREAMS, stream=named(stream, **texts)),) if stream else (),
            remove=tuple(
                dict.fromkeys(
                    (
                        *(name for name in other if name not in names),
                        *(here if prebuilt is not None else ()),
                        *stale_prebuilt(context, version if prebuilt is not None else ""),
                        *_filled(row.foreign, texts),
                        *(of_other_series(context, suffix) if self.family == "ubuntu" else ()),
                        *((PINNING,) if self.manager == "apt" else ()),
                        *fabric_globs(context, self.form),
                    )
                )
            ),
            may_remove=stack,
            hold=stack,
            notes=unknown_kernel_note(context) if prebuilt is None else (),
            built=built,
            why=why,
            signer=prebuilt.signer if prebuilt is not None and not prebuilt.trusted else "",
            keeps_kernel=prebuilt is not None and not prebuilt.follows,
        )

    def series(self, context: Context, choice: DriverChoice) -> str:
        """Return the suffix of names that contain the branch."""
        rows = (row for row in covering(self._rows(context), int(choice.branch)) if row.module == choice.module)
        return f"-{choice.branch}" if any("{branch}" in name for row in rows for name in row.compute_only) else ""

    def has_prebuilt(self, context: Context) -> bool:
        """Return whether the matrix has prebuilt modules for this system, for any kernel."""
        return any(context.facts.os.label in row.systems for row in context.repos.prebuilt)

    def library_candidates(self, context: Context) -> tuple[LibraryCandidates, ...]:
        """Return the offered builds of toolkit, cuDNN and NCCL."""
        return libraries.offered(context, self.form)

    def libraries(self, context: Context, stack: Stack) -> Libraries:
        """Return toolkit, cuDNN and NCCL as packages."""
        return libraries.wanted(context, stack, self.form)

    def _rows(self, context: Context) -> Iterator[Row]:
        return (row for row in context.repos.drivers if row.family == self.family)

    def _row(self, context: Context, choice: DriverChoice) -> Row:
        rows = [row for row in covering(self._rows(context), int(choice.branch)) if row.module == choice.module]
        if not rows:
            raise no_names(context, choice, "NVIDIA's repository")
        return rows[0]

    def _other(self, context: Context, choice: DriverChoice) -> list[str]:
        """Return the packages of the other module flavour, which the same transaction removes."""
        rows = [row for row in covering(self._rows(context), int(choice.branch)) if row.module != choice.module]
        texts = {"branch": choice.branch, "version": choice.version}
        # User space is common to both flavours; the module, and packages that depend on it, differ.
        names = [(*row.compute_only[:1], *row.optional[:1], *row.flavoured, *row.packages) for row in rows]
        return [name for group in names for name in _filled(group, texts)]


def _filled(templates: Iterable[str], texts: dict[str, str]) -> list[str]:
    return [named(template, **texts) for template in templates]


def _offered(context: Context, names: Iterable[str], version: str) -> bool:
    return all(context.offers.has(name, version) for name in names)


def _origins(context: Context, manager: Manager) -> Origins:
    """Return the repository for this distribution and CPU, from NVIDIA, a mirror with its layout or a local package."""
    repository = context.repository
    if repository is None:
        return Origins()
    name = f"cuda-{repository.folder}" if manager == "apt" else f"cuda-{repository.folder}-{repository.cpu}"
    source = repository_at(name, manager, (repository.url,), repository.key)
    if repository.installer is not None:
        name = f"{name}-local"
        source = replace(source, name=name, installer=repository.installer, key=UNSET)
    if manager != "apt":
        source = replace(source, description="NVIDIA CUDA repository", module_hotfixes=False, exclude=(), priority=0)
    return Origins(sources=(source,), replace=repository.also)
