"""A bundle for whole hosts: plan an imagined one, fetch what its package manager says it needs, and its environment.

A folder serves several releases, each added by a run of its own. What is there by its digest is not fetched again;
the same command resumes what was cut; manifest.json is written last, and names every file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpusetup import __version__
from gpusetup.bootstrap.bundle import (
    MANIFEST,
    PYTHONS,
    SIGNATURE,
    controller_wheels,
    digest_of,
    read_manifest,
    write_manifest,
)
from gpusetup.bootstrap.hashes import Target, hashes_of
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.gpus import find_gpu
from gpusetup.model.bundle import BundledFile, BundledSystem, Manifest
from gpusetup.model.facts_machine import NvSwitch
from gpusetup.model.lock import PipRequirements
from gpusetup.model.package import Package
from gpusetup.model.preview import Preview
from gpusetup.model.settings import Settings
from gpusetup.plan.host import Planner
from gpusetup.plan.imagined import UNKNOWN_KERNEL, imagined_host, with_gpus_of
from gpusetup.plan.judge import versions
from gpusetup.plan.lock import lock_of
from gpusetup.plan.offers import Offers
from gpusetup.plan.packages.kernel import headers
from gpusetup.plan.repository import context_of, repository_of
from gpusetup.resolve.api import resolve
from gpusetup.supply.bill import bill_of
from gpusetup.supply.entry import Beside
from gpusetup.supply.fetching import Pool, sized
from gpusetup.supply.kinds import DEB, kind_for
from gpusetup.supply.publishing import anew, laid
from gpusetup.supply.rpm_resigning import known_by, signed_anew
from gpusetup.supply.signing import fingerprints_of
from gpusetup.supply.wheels import lay_links, wheels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.lock import Lock
    from gpusetup.model.plan import HostPlan
    from gpusetup.model.request import Request
    from gpusetup.model.stack import Stack
    from gpusetup.plan.observe import Wanted as Wished
    from gpusetup.supply.entry import Entry
    from gpusetup.supply.fetching import Wanted
    from gpusetup.supply.kinds import Kind
    from gpusetup.supply.root import Root
    from gpusetup.supply.signing import Signer

__all__ = ["Asked", "Supply", "add_system", "choose"]

_BILL = "sbom.json"
_LINKS = "python"
_NO_ENVIRONMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_UNCHANGED = {".deb", ".rpm", ".whl"}
"""Files whose name says what is in them: they are fetched, and never written to."""


class Asked(NamedTuple):
    """What a bundle is to hold for one release and CPU."""

    request: Request
    settings: Settings
    kernels: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


class Supply(NamedTuple):
    """What was found to be needed; nothing of it is fetched yet."""

    asked: Asked
    lock: Lock
    repository: str
    packages: tuple[Entry, ...]
    wheels: tuple[Wanted, ...]
    python: str
    kind: Kind = DEB
    beside: Beside = Beside()
    environments: Mapping[str, tuple[str, ...]] = _NO_ENVIRONMENTS
    """Of each named environment its wheels."""

    @property
    def name(self) -> str:
        """`ubuntu24.04-x86_64`."""
        return f"{self.asked.request.os}-{self.asked.request.arch}"

    def versions(self) -> dict[str, str]:
        """Return the version of each package; of several versions each by a name of its own, as hosts list them."""
        several = Counter(entry.name for entry in self.packages)
        return {
            versions.one_of_several(entry.name, entry.version) if several[entry.name] > 1 else entry.name: entry.version
            for entry in self.packages
        }

    def files(self) -> tuple[Wanted, ...]:
        """Return all files."""
        return (*(entry.file for entry in self.packages), *self.wheels)


def choose(asked: Asked, matrix: Matrix, tell: Callable[[str], None]) -> Supply:
    """Find the stack and every file that a host with nothing but its distribution needs for it."""
    request, settings = asked.request, asked.settings
    facts = _with_switches(with_gpus_of(imagined_host(request), request, matrix), request, matrix)
    repository = repository_of(matrix.repos, facts, settings)
    if repository is None:
        raise BadInputError(
            "GS-769", f"bundles are made of NVIDIA's repositories; {settings.source} for {request.os} is none",
            path="--os", hint="use a mirror of your distribution (gpusetup_source=distro, or the URL of the mirror)",
        )  # fmt: skip
    kind = kind_for(facts.packages.manager)
    with tempfile.TemporaryDirectory(prefix="gpusetup-bundle-") as folder:
        root = kind.root(Path(folder), request.os or "", request.arch or "x86_64", asked.archives)
        plan, wished = _planned(root, facts, settings, matrix, tell)
        packages = wished.packages.wanted() if wished.packages is not None else ()
        wanted = [*packages, *(package for kernel in asked.kernels for package in _headers(facts, kernel, matrix))]
        entries = root.closure(package for package in wanted if UNKNOWN_KERNEL not in package.name)
        beside = root.beside()
    stack = plan.stack
    assert stack is not None  # noqa: S101 - a plan that changes something has one
    resolution = msgspec.structs.replace(resolve(request, matrix), stack=stack)
    lock = lock_of(resolution, matrix)
    python = _target(request, stack, matrix).python if wished.requirements else ""
    wheels: dict[str, Wanted] = {}
    environments = {}
    made_of = {item.name: (item.stack, item.requirements) for item in wished.environments}
    for name, (of, lines) in {"": (stack, wished.requirements), **made_of}.items():
        if lines:
            tell(f"asking the package index for the environment {name}" if name else "asking the package index")
            found = _wheels(lines, _target(request, of, matrix))
            wheels |= {item.name: item for item in found}
            environments[name] = tuple(item.name for item in found)
    environments.pop("", None)
    place = f"compute/cuda/repos/{repository.folder}/{repository.cpu}"
    return Supply(asked, lock, place, entries, tuple(wheels.values()), python, kind, beside, environments)


def _wheels(lines: tuple[str, ...], target: Target) -> list[Wanted]:
    """Return every wheel that the lines of a requirements file need in all, with its digest and size."""
    _hashes, full = hashes_of(PipRequirements(system=lines, wheels=lines), target)
    return sized(wheels_of(full.pylock, target))


def _with_switches(facts: HostFacts, request: Request, matrix: Matrix) -> HostFacts:
    """Give GPUs that exist on boards with NVSwitches theirs: a host without them leaves their packages alone."""
    names = {name for asked in request.gpus for name in find_gpu(matrix, asked).names}
    boards = [gpu for gpu in matrix.gpus.gpus if gpu.name in names and gpu.nvswitch_baseboard]
    if not boards:
        return facts
    fifth = any(gpu.arch == "Blackwell" for gpu in boards)
    return msgspec.structs.replace(facts, nvswitch=NvSwitch(kind="nvlink5" if fifth else "pci"))


def _headers(facts: HostFacts, kernel: str, matrix: Matrix) -> tuple[Package, ...]:
    """Return the packages with the headers of a kernel, as hosts of this release have them."""
    kernels = msgspec.structs.replace(facts.kernel, running=kernel, next=kernel)
    context = context_of(matrix.repos, msgspec.structs.replace(facts, kernel=kernels), Settings(), Offers(None))
    deb = facts.packages.manager == "apt"
    return headers(context) or (Package(name=f"linux-headers-{kernel}" if deb else f"kernel-devel-{kernel}"),)


def _planned(
    root: Root, facts: HostFacts, settings: Settings, matrix: Matrix, tell: Callable[[str], None]
) -> tuple[HostPlan, Wished]:
    """Plan the imagined host as a real one is planned: by what the repositories offer."""
    planner = Planner(matrix, resolve)
    draft = planner.first(facts, settings)
    if draft.stage == "offers":
        tell("fetching the package lists")
        root.add(draft.ask.gpu_repo_sources or (), {})
        root.refresh()
        candidates = root.offers(draft.ask.gpu_preflight_candidates or ())
        draft = planner.second(facts, settings, msgspec.convert({"findings": [], "candidates": candidates}, Preview))
    if draft.plan.refusals:
        first = draft.plan.refusals[0]
        raise PreflightError(first.reference, first.message, note=first.note, hint=first.hint)
    driver = draft.plan.stack.driver if draft.plan.stack is not None else None
    root.prefer(draft.plan.variables, driver.version if driver is not None else "")
    if draft.wanted is None or draft.wanted.packages is None:
        raise BadInputError("GS-784", "nothing in this request comes as a package", hint="ask for a driver as well")
    return draft.plan, draft.wanted


def _target(request: Request, stack: Stack, matrix: Matrix) -> Target:
    system = next((item for item in matrix.os.systems if item.id == request.os), None)
    version = (stack.python and stack.python.version) or (system.python if system else "")
    target = Target(".".join(version.split(".")[:2]), request.arch or "x86_64")
    return target._replace(glibc=system.glibc) if system is not None and system.glibc != "unknown" else target


def add_system(out: Path, supply: Supply, signer: Signer, tell: Callable[[int, int], None]) -> Manifest:
    """Fetch, publish and write down; other releases in the folder stay as they are.

    All of it is made beside the folder, which takes its place in one step: hosts use the old one or the new one.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        before = read_manifest(out / MANIFEST)[0] if (out / MANIFEST).is_file() else None
        known = {file.sha256: out / name for name, file in before.files.items()} if before is not None else {}
        pool = Pool(out / ".pool", known)
        there = before.systems.values() if before is not None else ()
        signed = {theirs: ours for system in there for theirs, ours in system.signed_anew.items() if ours in known}
        supply = supply._replace(packages=known_by(supply.packages, pool, signed))
        pool.fetch(supply.files(), tell)
        repository = supply.kind.repository
        repository.prove(pool.new(entry.file for entry in supply.packages if not entry.listed), supply.beside)
        packages, new_signed = signed_anew(supply.packages, pool, signer)
        supply = supply._replace(packages=packages)
        signed |= new_signed
        with anew(out) as new:
            _carry(out, new, without=supply.repository)
            repository.publish(new / supply.repository, supply.packages, pool, signer, supply.beside)
            lay_links(new / _LINKS, supply.wheels, pool)
            lock = Path("systems", f"{supply.name}.lock.json")
            (new / "systems").mkdir(exist_ok=True)
            (new / lock).write_bytes(msgspec.json.format(msgspec.json.encode(supply.lock), indent=1) + b"\n")
            system = BundledSystem(
                gpus=supply.asked.request.gpus,
                lock=str(lock),
                repository=supply.repository,
                fingerprint=signer.fingerprint,
                vendors=fingerprints_of(supply.beside.keys, signer.fingerprint),
                packages=supply.versions(),
                signed_anew={
                    theirs: ours
                    for theirs, ours in signed.items()
                    if ours in {entry.file.sha256 for entry in supply.packages}
                },
                python=supply.python,
                wheels=tuple(f"{_LINKS}/{item.name}" for item in supply.wheels),
                environments={
                    name: tuple(f"{_LINKS}/{wheel}" for wheel in names) for name, names in supply.environments.items()
                },
            )
            systems = {**(before.systems if before is not None else {}), supply.name: system}
            pip, sets = _with_controller(new, pool, before, supply)
            _prune(new, systems, pool)
            digests = {name: file.sha256 for name, file in before.files.items()} if before is not None else {}
            digests |= {
                f"{supply.repository}/{repository.file_name(entry.file)}": entry.file.sha256
                for entry in supply.packages
            }
            digests |= {f"{_LINKS}/{item.name}": item.sha256 for item in supply.wheels}
            own = {f"wheels/{path.name}": path for path in (new / "wheels").glob("*.whl")}
            digests |= {name: digest_of(path) for name, path in own.items()}
            (new / _BILL).write_bytes(bill_of(new, systems, digests, own))
            manifest = Manifest(gpusetup=__version__, pip=pip, sets=sets, systems=systems, files=_files(new, digests))
            write_manifest(new / MANIFEST, manifest)
            signer.beside(new / MANIFEST, new / SIGNATURE)
        return manifest


def _carry(out: Path, new: Path, *, without: str) -> None:
    """Take along what is there, but for what is made again; a text is copied, since a link would share changes."""
    for path in out.rglob("*"):
        name = path.relative_to(out)
        if not path.is_file() or name.parts[0].startswith(".") or name.is_relative_to(without):
            continue
        if path.suffix in _UNCHANGED:
            laid(path, new / name)
        else:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new / name)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    if any(out.iterdir()) and not ((out / MANIFEST).is_file() or (out / ".pool").is_dir()):
        raise BadInputError(
            "GS-713", f"{out} contains other files", path=str(out), hint="give an empty folder with --out"
        )
    if os.path.ismount(out):
        raise BadInputError(
            "GS-713", f"{out} is where a disk is mounted; a new bundle could not take the place of an old one",
            path=str(out), hint=f"give a folder on it: --out {out}/site",
        )  # fmt: skip
    # Beside the folder, since the folder is another one afterwards.
    with out.with_name(f".{out.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PreflightError("GS-785", f"another gpusetup makes the bundle {out}", hint="wait for it") from error
        (out / ".pool").mkdir(exist_ok=True)
        yield
        Path(lock.name).unlink(missing_ok=True)


def _with_controller(
    out: Path, pool: Pool, before: Manifest | None, supply: Supply
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Put gpusetup's own wheels beside, for the Python of this release; those that are there by this version stay."""
    python, arch = supply.python or "3.12", supply.asked.request.arch or "x86_64"
    python = python if python in PYTHONS else "3.12"
    sets = dict(before.sets) if before is not None and before.gpusetup == __version__ else {}
    if f"{python}-{arch}" in sets and before is not None:
        return before.pip, sets
    scratch = pool.folder / "wheels"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    pip, made = controller_wheels(scratch, pythons=(python,), archs=(arch,))
    (out / "wheels").mkdir(exist_ok=True)
    for path in scratch.iterdir():
        path.replace(out / "wheels" / path.name)
    return pip, {**sets, **made}


def _prune(out: Path, systems: dict[str, BundledSystem], pool: Pool) -> None:
    """Delete the wheels that no release needs any more."""
    wanted = {name.rpartition("/")[2] for system in systems.values() for name in system.wheels}
    for path in (out / _LINKS).glob("*.whl"):
        if path.name not in wanted:
            path.unlink()
    lay_links(out / _LINKS, (), pool)


def _files(out: Path, digests: dict[str, str]) -> dict[str, BundledFile]:
    """Return every file; those that come from elsewhere were compared with their digests when they came."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_file() and not name.startswith(".") and name not in (MANIFEST, SIGNATURE):
            fixed = path.suffix in _UNCHANGED and name in digests
            found[name] = BundledFile(sha256=digests[name] if fixed else digest_of(path), size=path.stat().st_size)
    return found
