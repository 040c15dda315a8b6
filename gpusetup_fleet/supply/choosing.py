"""What hosts without a network need: each kind of host is planned as `apply` plans it, with all dependencies of its
packages as on an empty machine. This step fetches package lists only.
"""

import html
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec
from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpusetup.bootstrap.bundle import sets_for
from gpusetup.bootstrap.hashes import Target, hashes_of
from gpusetup.bootstrap.wheels import target_environment
from gpusetup.components.base import Offers
from gpusetup.components.base import Wanted as Wished
from gpusetup.components.driver.modules import headers
from gpusetup.components.driver.sources import context_of, repository_of
from gpusetup.components.judge import versions
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError, PreflightError, UnreachableError
from gpusetup.matrix.gpus import find_gpu
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.systems import by_id
from gpusetup.model import toml
from gpusetup.model.facts import Containers, HostFacts
from gpusetup.model.facts_machine import NvSwitch
from gpusetup.model.lock import Lock, PipRequirements
from gpusetup.model.package import Package, Source
from gpusetup.model.plan import HostPlan, Preview
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.model.stack import Resolution, Stack
from gpusetup.plan.host import Planner
from gpusetup.plan.lock import lock_of
from gpusetup.plan.requests import UNKNOWN_KERNEL, as_delivered, described_host, with_gpus_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.supply.fetching import Pool, Wanted, sized
from gpusetup_fleet.supply.kinds import DEB, Kind, kind_for
from gpusetup_fleet.supply.root import Entry, Extras, Root


def wheels_of(pylock: str, target: Target) -> tuple[Wanted, ...]:
    """Return the wheel of each locked package that fits the target best."""
    environment = target_environment(target.python, target.arch)
    order = {tag: number for number, tag in enumerate(target.tags)}
    found = []
    for item in toml(pylock)["packages"]:
        if "marker" in item and not Marker(item["marker"]).evaluate(environment):
            continue
        ranked = []
        for wheel in item.get("wheels", ()):
            name = unquote(wheel.get("name") or wheel["url"].rpartition("/")[2])
            try:
                tags = parse_wheel_filename(name)[3]
            except InvalidWheelFilename:
                continue
            rank = min((order[tag] for tag in tags if tag in order), default=None)
            if rank is not None and "/" not in name:  # a build tag may have one, and the name becomes a path
                ranked.append((rank, name, wheel))
        if not ranked:
            raise UnreachableError("GS-768", f"{item['name']} has no wheel for {target}")
        _rank, name, wheel = min(ranked, key=lambda one: one[:2])
        found.append(
            Wanted(url=wheel["url"], name=name, size=int(wheel.get("size") or 0), sha256=wheel["hashes"]["sha256"])
        )
    return tuple(found)


def lay_links(folder: Path, files: Iterable[Wanted], pool: Pool) -> None:
    """Add wheels to a folder, and list all of its wheels on a page that pip and uv read (--find-links)."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in files:
        pool.lay(item.sha256, folder / item.name)
    names = sorted(path.name for path in folder.glob("*.whl"))
    links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a><br>\n' for name in names)
    write_whole(folder / "index.html", f"<!DOCTYPE html>\n<title>wheels</title>\n{links}".encode())


ARCHIVE = "archive"
"""Folder of repositories with a distribution's own driver packages, which do not have NVIDIA's layout."""


class Asked(NamedTuple):
    """What one kind of host of a release and CPU is to get."""

    request: Request
    settings: Settings
    kernels: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    host: HostFacts | None = None
    """The facts of one of them; None: gpusetup plans an imagined host."""
    names: tuple[str, ...] = ()
    """Names of the hosts."""

    @property
    def place(self) -> str:
        """`debian12/x86_64`."""
        return f"{self.request.os}/{self.request.arch or 'x86_64'}"


class Supply(NamedTuple):
    """What hosts of one release and CPU need."""

    asked: Asked
    locks: tuple[Lock, ...]
    """The exact stack of each kind of host."""
    repository: str
    packages: tuple[Entry, ...]
    wheels: tuple[Wanted, ...]
    python: str
    kind: Kind = DEB
    extras: Extras = Extras()
    environments: Mapping[str, tuple[str, ...]] = {}
    """The wheels of each named environment."""
    controller: str = ""
    """The Python that runs gpusetup on a new machine of this release; empty: the matrix has none."""

    @property
    def name(self) -> str:
        """`ubuntu24.04-x86_64`."""
        return f"{self.asked.request.os}-{self.asked.request.arch}"

    def versions(self) -> dict[str, str]:
        """Return the version of each package; several versions of one package have different names, as on hosts."""
        several = Counter(entry.name for entry in self.packages)
        return {
            versions.one_of_several(entry.name, entry.version) if several[entry.name] > 1 else entry.name: entry.version
            for entry in self.packages
        }

    def files(self) -> tuple[Wanted, ...]:
        """Return all files, packages first."""
        return (*(entry.file for entry in self.packages), *self.wheels)


def choose(kinds: Sequence[Asked], matrix: Matrix, tell: Callable[[str], None]) -> Supply:
    """Return the stacks of all kinds of hosts of one release and CPU, and every file that they need."""
    with tempfile.TemporaryDirectory(prefix="gpusetup-bundle-") as folder:
        roots = _Roots(Path(folder), kinds[0], tell)
        found = [_chosen(asked, roots, matrix, tell) for asked in kinds]
    return _together(found)


def _together(found: Sequence[Supply]) -> Supply:
    """Return what all kinds need together; each file once."""
    first = found[0]
    environments: dict[str, tuple[str, ...]] = {}
    for one in found:
        for name, wheels in one.environments.items():
            environments[name] = tuple(dict.fromkeys((*environments.get(name, ()), *wheels)))
    gpus = tuple(dict.fromkeys(gpu for one in found for gpu in one.asked.request.gpus))
    return first._replace(
        asked=first.asked._replace(request=msgspec.structs.replace(first.asked.request, gpus=gpus)),
        locks=tuple({lock.digest: lock for one in found for lock in one.locks}.values()),
        packages=tuple({entry.file.sha256: entry for one in found for entry in one.packages}.values()),
        wheels=tuple({item.name: item for one in found for item in one.wheels}.values()),
        python=next((one.python for one in found if one.python), ""),
        extras=reduce(Extras.joined, (one.extras for one in found)),
        environments=environments,
    )


class _Roots:
    """The roots of one release; hosts with the same sources share one."""

    def __init__(self, folder: Path, asked: Asked, tell: Callable[[str], None]) -> None:
        self.folder, self.asked, self.tell = folder, asked, tell
        self.made: dict[bytes, Root] = {}

    def of(self, sources: Iterable[Source]) -> Root:
        """Return the root with these sources and the archives, its lists fetched."""
        # The archives of a root already have the host's own suites.
        sources = tuple(source for source in sources if not source.like_suite)
        key = msgspec.json.encode(sources)
        if key not in self.made:
            request = self.asked.request
            system, arch = request.os or "", request.arch or "x86_64"
            folder = self.folder / str(len(self.made))
            folder.mkdir()
            root = kind_of(self.asked).root(folder, system, arch, self.asked.archives)
            self.tell("fetching the package lists")
            root.add(sources)
            root.refresh()
            self.made[key] = root
        return self.made[key]


def kind_of(asked: Asked) -> Kind:
    """Return the kind of packages of a release."""
    return kind_for(described_host(asked.request).packages.manager)


def _facts_of(asked: Asked, matrix: Matrix) -> HostFacts:
    """Return the host to plan: the given one as it was delivered, or an imagined one."""
    request = asked.request
    if asked.host is not None:
        return with_gpus_of(as_delivered(asked.host), request, matrix)
    there = Containers(runtimes=asked.settings.containers)  # gpusetup installs no container runtime: a named one exists
    facts = with_gpus_of(msgspec.structs.replace(described_host(request), containers=there), request, matrix)
    return _with_switches(facts, request, matrix)


def _chosen(asked: Asked, roots: _Roots, matrix: Matrix, tell: Callable[[str], None]) -> Supply:
    request, settings = asked.request, asked.settings
    facts = _facts_of(asked, matrix)
    repository = repository_of(matrix.repos, facts, settings)
    if repository is None and settings.source != "distro":
        raise BadInputError(
            "GS-769", f"bundles come from repositories; {settings.source} has none for {request.os}", path="--os"
        )
    plan, wished, root = _planned(roots, facts, asked, matrix)
    entries: tuple[Entry, ...] = ()
    extras = Extras()
    if wished.packages is not None and root is not None:
        wanted = [*wished.packages.wanted(), *_kernels(asked, facts, root, matrix)]
        entries = root.closure(package for package in wanted if UNKNOWN_KERNEL not in package.name)
        extras = root.extras()
    stack = plan.stack
    assert stack is not None  # noqa: S101 - a plan that changes something has one
    lock = lock_of(Resolution(matrix=matrix.stamp, request=request, stack=stack, reasons=plan.reasons), matrix)
    python = _target(request, stack, matrix).python if wished.requirements else ""
    wheels: dict[str, Wanted] = {}
    environments = {}
    made_of = {item.name: (item.stack, item.requirements) for item in wished.parts.get("python", ())}
    for name, (of, lines) in {"": (stack, wished.requirements), **made_of}.items():
        if lines:
            tell(f"asking the package index for the environment {name}" if name else "asking the package index")
            found = _wheels(lines, _target(request, of, matrix))
            wheels |= {item.name: item for item in found}
            environments[name] = tuple(item.name for item in found)
    environments.pop("", None)
    place = f"compute/cuda/repos/{repository.folder}/{repository.cpu}" if repository else f"{ARCHIVE}/{asked.place}"
    return Supply(
        asked, (lock,), place, entries, tuple(wheels.values()), python, kind_of(asked), extras, environments,
        _controllers_python(request, matrix),
    )  # fmt: skip


def _kernels(asked: Asked, facts: HostFacts, root: Root, matrix: Matrix) -> list[Package]:
    """Return the headers of each named kernel, and of the host's own if an archive still has them."""
    found = [package for kernel in asked.kernels for package in _headers(facts, kernel, matrix)]
    if asked.host is not None:
        own = _headers(facts, asked.host.kernel.next, matrix)
        offered = root.offers(tuple(package.name for package in own))
        found += [
            package
            for package in own
            if any(fnmatchcase(row["version"], package.version or "*") for row in offered.get(package.name, ()))
        ]
    return found


def _wheels(lines: tuple[str, ...], target: Target) -> list[Wanted]:
    """Return every wheel that the lines of a requirements file need, with digest and size."""
    _hashes, full = hashes_of(PipRequirements(system=lines, wheels=lines), target)
    return sized(wheels_of(full.pylock, target))


def _with_switches(facts: HostFacts, request: Request, matrix: Matrix) -> HostFacts:
    """Add NVSwitches to a host whose GPUs can be on a board with them, so that their packages are included."""
    names = {name for asked in request.gpus for name in find_gpu(matrix, asked).names}
    boards = [gpu for gpu in matrix.gpus.gpus if gpu.name in names and gpu.nvswitch_baseboard]
    if not boards:
        return facts
    fifth = any(gpu.arch == "Blackwell" for gpu in boards)
    return msgspec.structs.replace(facts, nvswitch=NvSwitch(kind="nvlink5" if fifth else "pci"))


def _headers(facts: HostFacts, kernel: str, matrix: Matrix) -> tuple[Package, ...]:
    """Return the packages with the headers of a kernel on this release."""
    kernels = msgspec.structs.replace(facts.kernel, running=kernel, next=kernel)
    context = context_of(matrix.repos, msgspec.structs.replace(facts, kernel=kernels), Settings(), Offers(None))
    deb = facts.packages.manager == "apt"
    return headers(context) or (Package(name=f"linux-headers-{kernel}" if deb else f"kernel-devel-{kernel}"),)


def _planned(
    roots: _Roots, facts: HostFacts, asked: Asked, matrix: Matrix
) -> tuple[HostPlan, Wished, Root | None]:  # fmt: skip
    """Plan the host as apply does, with what the repositories offer. The root is None if it needs no package."""
    planner = Planner(matrix, resolve)
    draft = planner.first(facts, asked.settings)
    root = None
    if draft.stage == "offers":
        root = roots.of(draft.ask.gpu_repo_sources or ())
        candidates = root.offers(draft.ask.gpu_preflight_candidates or ())
        preview = msgspec.convert({"findings": [], "candidates": candidates}, Preview)
        draft = planner.second(facts, asked.settings, preview)
    if draft.plan.refusals:
        first = draft.plan.refusals[0]
        who = f"{', '.join(asked.names[:4])}{' …' if len(asked.names) > 4 else ''}: " if asked.names else ""
        raise PreflightError(first.reference, who + first.message, note=first.note, hint=first.hint)
    driver = draft.plan.stack.driver if draft.plan.stack is not None else None
    if root is not None:
        root.prefer(draft.plan.variables, driver.version if driver is not None else "")
    wished = draft.wanted
    if wished is None or not (wished.packages or wished.requirements or wished.parts.get("python", ())):
        raise BadInputError("GS-784", "no part of this request is a package")
    return draft.plan, wished, root


def _controllers_python(request: Request, matrix: Matrix) -> str:
    """Return the Python that cloud-init uses first: the release's own, or another one that it packages."""
    system = by_id(matrix, request.os)
    sets = sets_for(system, request.arch or "x86_64") if system is not None else ()
    return sets[0].partition("-")[0] if sets else ""


def _target(request: Request, stack: Stack, matrix: Matrix) -> Target:
    system = by_id(matrix, request.os)
    version = (stack.python and stack.python.version) or (system.python if system else "")
    target = Target(".".join(version.split(".")[:2]), request.arch or "x86_64")
    return target._replace(glibc=system.glibc) if system is not None and system.glibc != "unknown" else target
