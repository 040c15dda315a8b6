"""CUDA toolkit, cuDNN and NCCL as packages from NVIDIA's repositories, and the default among several toolkits."""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from gpusetup.components.base import Component, Context, Group, Wanted, action, candidates, glob, named
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import choice, yes
from gpusetup.components.record import record_of
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import CudaRoot, Libraries, Package
from gpusetup.model.plan import Action
from gpusetup.model.repos import Format, LibraryPackages
from gpusetup.model.request import LibraryCandidates
from gpusetup.model.stack import Stack
from gpusetup.versions import cuda_minor, nv

Library = Literal["cuda", "cudnn", "nccl"]
_BUILT = re.compile(r"(?P<version>\d+(?:\.\d+)*)-[^+]*[+.]cuda(?P<major>\d+)\.")
"""2.27.3-1+cuda12.9: the release, and the CUDA it was built for."""


def patterns(context: Context, form: Format) -> tuple[str, ...]:
    """Return globs for the package names of all libraries."""
    rows = [row for row in context.repos.libraries if row.format == form]
    return tuple(dict.fromkeys(glob(name) for row in rows for name in (*row.packages, *row.dev_packages)))


def offered(context: Context, form: Format) -> tuple[LibraryCandidates, ...]:
    """Return the offered builds of toolkit, cuDNN and NCCL; () if they come as wheels or offers are unknown."""
    if not context.offers.known or not _as_packages(context, form):
        return ()
    return candidates(
        cuda=[(version, version.partition(".")[0]) for version, _major in _builds(context, form, "cuda")],
        cudnn=list(_builds(context, form, "cudnn")),
        nccl=list(_builds(context, form, "nccl")),
    )


def wanted(context: Context, stack: Stack, form: Format) -> Libraries:
    """Return toolkit, cuDNN and NCCL of the stack as packages; none if they come as wheels."""
    if not _as_packages(context, form) or stack.cuda is None:
        return Libraries()
    toolkits = [stack.cuda.version, *(other.version for other in stack.cudas)]
    minors = [cuda_minor(version) for version in toolkits]
    cudnn, nccl = stack.cudnn, stack.nccl
    return Libraries(
        cuda=tuple(item for version in toolkits for item in _packages(context, form, "cuda", version, version)),
        cuda_roots=tuple(CudaRoot(version=minor, path=f"/usr/local/cuda-{minor}") for minor in minors),
        cuda_default=minors[0],
        cudnn=_packages(context, form, "cudnn", cudnn.version, cudnn.cuda)
        if cudnn is not None and _in_repository(context, form, "cudnn")
        else (),
        nccl=_packages(context, form, "nccl", nccl.version, nccl.cuda)
        if nccl is not None and _in_repository(context, form, "nccl")
        else (),
    )


def no_longer_wanted(facts: HostFacts, roots: tuple[CudaRoot, ...]) -> tuple[str, ...]:
    """Return the packages that gpusetup installed for one of several toolkits which is no longer asked for."""
    past = [lock.wanted.packages.cuda_roots for lock in record_of(facts).locks if lock.wanted and lock.wanted.packages]
    now = {root.version for root in roots}
    before = {root.version for beside in past if len(beside) > 1 for root in beside} - now
    return tuple(sorted(name for name in record_of(facts).brought if _of_toolkits(name, before)))


def not_of(names: tuple[str, ...], roots: tuple[CudaRoot, ...]) -> tuple[str, ...]:
    """Return the names that are not of these toolkits: a toolkit removed once may be wanted again."""
    return tuple(name for name in names if not _of_toolkits(name, [root.version for root in roots]))


def _of_toolkits(name: str, minors: Iterable[str]) -> bool:
    return any(re.search(rf"-{minor.replace('.', '-')}(-|$)", name) for minor in minors)


def _rows(context: Context, form: Format, component: Library) -> Iterator[LibraryPackages]:
    return (row for row in context.repos.libraries if row.format == form and row.component == component)


def _as_packages(context: Context, form: Format) -> bool:
    settings = context.settings
    if settings.cuda_from == "auto" and not _in_repository(context, form, "cuda"):
        return False
    return settings.cuda_from != "wheels" and not settings.python_adopt


def _in_repository(context: Context, form: Format, component: Library) -> bool:
    """Return whether the repository has any version of a library; True while offers are unknown."""
    names = (name for row in _rows(context, form, component) for name in row.packages)
    return not context.offers.known or any(any(context.offers.names(glob(name, "[0-9]*"))) for name in names)


def _builds(context: Context, form: Format, component: Library) -> Iterator[tuple[str, str]]:
    """Yield each offered release with the CUDA major it is for."""
    offers = context.offers
    for row in _rows(context, form, component):
        template = row.packages[0]
        for name in offers.names(glob(template, "[0-9]*")):
            if "{" not in template:
                for match in filter(None, map(_BUILT.match, offers.versions(name))):
                    yield match["version"], match["major"]
                continue
            spelt = re.escape(template).replace(r"\{minor\}", r"(\d+)-\d+").replace(r"\{major\}", r"(\d+)")
            if major := re.fullmatch(spelt, name):
                for version in offers.upstreams(name):
                    yield version, major[1]


def _packages(context: Context, form: Format, component: Library, version: str, cuda: str) -> tuple[Package, ...]:
    """Return the packages of this version for this CUDA; headers too if set by `dev`, or if others installed them."""
    number = nv(version)
    row = next(
        row
        for row in _rows(context, form, component)
        if (row.min_version is None or number >= nv(row.min_version))
        and (row.max_version is None or number <= nv(row.max_version))
    )
    dotted = cuda_minor(cuda)
    texts = {"version": version, "dotted": dotted, "minor": dotted.replace(".", "-"), "major": dotted.partition(".")[0]}
    names = [named(name, **texts) for name in row.packages]
    headers = [named(item, **texts) for item in row.dev_packages]
    theirs = set(context.facts.packages.installed) - set(record_of(context.facts).brought)
    names += [name for name in headers if context.settings.dev or name in theirs]
    return tuple(_package(context, name, row.pin, texts) for name in names)


def _package(context: Context, name: str, pin: str, texts: dict[str, str]) -> Package:
    """Return a package at the version of the pin, any revision: built for this CUDA, else for the same major."""
    if "{dotted}" not in pin:
        return context.offers.exact(name, texts["version"])
    version, _, built = pin.partition("-1")
    wishes = [f"{version}-*{built}*", f"{version}-*{built.replace('{dotted}', '{major}.')}*"]
    for wish in wishes:
        if found := context.offers.matching(name, named(wish, **texts)):
            return found
    return Package(name=name, version=named(wishes[0], **texts))


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the action that makes the first of several toolkits the default."""
    packages = wanted.packages
    if packages is None or len(packages.cuda_roots) < 2:
        return
    path = next(root.path for root in packages.cuda_roots if root.version == packages.cuda_default)
    if host.facts.cuda.default != path:
        others = ", ".join(root.path for root in packages.cuda_roots if root.path != path)
        yield action(
            "service", "cuda-default", f"/usr/local/cuda is {path}", f"it was named first; beside it: {others}"
        )


CUDA = Component(
    name="cuda",
    settings={"cuda_from": choice("auto", "packages", "wheels"), "dev": yes},
    packages={
        "cuda": Group("the toolkit of the stack"),
        "cudnn": Group("cuDNN of the stack", leaves=("libcudnn*-dev*",)),
        "nccl": Group("NCCL of the stack, built for its CUDA", leaves=("libnccl-dev*",)),
    },
    actions=_actions,
)
