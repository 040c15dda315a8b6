"""Resolve a stack and write it as a lock, as Ansible variables or as pip requirements.

examples:
  gpusetup lock 'torch==2.6.*' --gpu h100 --os ubuntu22.04 --out gpu.lock.json
  gpusetup lock --gpu t4 --os debian12 --vars > group_vars/gpu/stack.json
  gpusetup lock torch cupy --pip > requirements.txt      and pip install -r, without root
  gpusetup lock torch --gpu h100 --os ubuntu22.04 --hashes --out gpu.lock.json     every wheel by its SHA-256
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit, UnreachableError

if TYPE_CHECKING:
    import argparse

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.lock import Lock
    from gpusetup.model.stack import Resolution
    from gpusetup.model.variables import RoleVariables

_DIRECT_ONLY = "only the direct pins, without dependencies and hashes: {why}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_requirements(parser)
    options.add_request(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--vars", action="store_true", help="as variables for the Ansible roles; needs --os")
    shape.add_argument("--pip", action="store_true", help="as a requirements file, the CUDA libraries as wheels")
    parser.add_argument(
        "--hashes", action="store_true",
        help="pin every wheel, dependencies included, by its SHA-256 from the package index",
    )  # fmt: skip
    parser.add_argument(
        "--source", default="nvidia", metavar="WHERE", help="with --vars: nvidia, distro or a mirror's URL"
    )
    options.add_output(parser, ("json", "text"))


def run(arguments: argparse.Namespace) -> Exit:
    """Resolve and print."""
    from gpusetup.cli.requests import request_of, take_project
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup.plan.lock import lock_of
    from gpusetup.resolve.api import resolve

    matrix = load_matrix()
    take_project(arguments, matrix)
    if arguments.facts is not None:
        raise BadInputError("GS-343", "a lock needs a request, not facts", path="--from")
    if arguments.format == "text" and (arguments.vars or arguments.pip):
        shape, kind = ("--vars", "JSON") if arguments.vars else ("--pip", "a requirements file")
        raise options.not_together(shape, "--format text", f"it writes {kind}")
    request = request_of(arguments, matrix)
    if arguments.vars and arguments.source == "distro":
        from msgspec.structs import replace

        from gpusetup.components.driver.archives import last_seen

        request = replace(request, driver_candidates=last_seen(matrix.repos, request.os or ""), wheels_only=True)
    resolution = resolve(request, matrix)
    if arguments.pip:
        from gpusetup.plan.install import copied, install_of

        copied(install_of(resolution, matrix), "pip", "--pip")  # refuses what pip cannot install
    lock = lock_of(resolution, matrix)
    pylock = ""
    if arguments.hashes:
        lock, pylock = _with_hashes(lock, matrix)
        if lock.without_hashes:
            output.warn(_DIRECT_ONLY.format(why=lock.without_hashes))
    if pylock and arguments.out:
        beside = _pylock_path(arguments.out)
        output.write_answer(pylock, beside)
        output.say(f"{beside}: the same for installers that read PEP 751")
    if arguments.pip:
        output.write_answer(_pip_text(lock), arguments.out)
    elif arguments.vars:
        output.write_answer(output.json_text(_variables(arguments, resolution, lock, matrix)), arguments.out)
    elif arguments.format == "text":
        from gpusetup.cli.plan import stack_line

        output.write_answer(stack_line(lock.stack), arguments.out)
    else:
        output.write_answer(output.json_text(lock), arguments.out)
    for text in resolution.warnings:
        output.warn(text)
    return Exit.UNREACHABLE if lock.without_hashes else Exit.DONE


def write_lock(resolution: Resolution, matrix: Matrix, path: str) -> None:
    """Write the lock of a resolution to a file."""
    from gpusetup.plan.lock import lock_of

    output.write_answer(output.json_text(lock_of(resolution, matrix)), path)


def load_lock(path: str) -> Lock:
    """Read a lock from a file."""
    from gpusetup.plan.lock import read_lock

    return read_lock(read_whole(path), path)


def read_whole(path: str) -> bytes:
    """Return the content of a lock's file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInputError("GS-344", f"cannot read the lock: {error.strerror}", path=path) from error


def _pip_text(lock: Lock) -> str:
    head = f"# gpusetup lock {lock.digest[:12]}, matrix of {lock.matrix.date}\n"
    if lock.without_hashes:
        head += f"# {_DIRECT_ONLY.format(why='the index did not answer')}\n"
    return head + "".join(f"{line}\n" for line in (lock.hashes or lock.pip).wheels)


def _pylock_path(out: str) -> str:
    """Return the path of a lock's PEP 751 document: pylock.gpu.toml next to gpu.lock.json."""
    path = Path(out)
    return str(path.with_name(f"pylock.{path.name.lstrip('.').partition('.')[0] or 'gpu'}.toml"))


def _with_hashes(lock: Lock, matrix: Matrix) -> tuple[Lock, str]:
    """Return the lock with every wheel and its hash, and its PEP 751 document; the latter is empty without an index."""
    from gpusetup.bootstrap.hashes import Target, hashes_of
    from gpusetup.matrix.systems import by_id
    from gpusetup.plan.lock import with_hashes
    from gpusetup.resolve.variants import machine_of

    system = by_id(matrix, lock.request.os)
    python = (lock.stack.python and lock.stack.python.version) or (system and system.python)
    if not python:
        raise BadInputError("GS-349", "hashes need one Python version", path="--hashes")
    target = Target(".".join(python.split(".")[:2]), lock.request.arch or "x86_64")
    if system is not None and system.glibc != "unknown":
        target = target._replace(glibc=system.glibc)
    output.say("asking the package index for every package below these, with its hash; this can take minutes")
    try:
        driver = lock.stack.driver.version if lock.stack.driver is not None else None
        hashes, full = hashes_of(lock.pip, target, machine_of(matrix, lock.request.gpus, driver))
    except UnreachableError as error:
        from msgspec.structs import replace

        return replace(lock, without_hashes=" ".join(f"{error.message}: {error.context or error.note}".split())), ""
    for text in full.variants:
        output.say(text)
    for text in full.warnings:
        output.warn(text)
    return with_hashes(lock, hashes), full.pylock


def _variables(arguments: argparse.Namespace, resolution: Resolution, lock: Lock, matrix: Matrix) -> RoleVariables:
    from msgspec.structs import replace

    from gpusetup.components.base import Offers
    from gpusetup.components.driver.sources import absence, context_of, family_for, unproven
    from gpusetup.plan.actions import role_variables
    from gpusetup.plan.lock import hashed_lines
    from gpusetup.plan.requests import UNKNOWN_KERNEL, described_host
    from gpusetup.plan.settings import read_level, settings_for
    from gpusetup.plan.wanted import wanted_of

    if not arguments.os:
        raise BadInputError("GS-345", "package names depend on the distribution", path="--os")
    facts = described_host(resolution.request)
    settings = settings_for(
        {}, {}, read_level({"source": arguments.source}, "--source"), resolution.request.requirements
    )
    settings = replace(settings, hashed=hashed_lines(lock))
    context = context_of(matrix.repos, facts, settings, Offers(None))
    family = family_for(context)
    if family is None:
        why = absence(context)
        raise BadInputError(why.reference, why.message, note=why.note, path="--source", hint=why.hint)
    doubt = unproven(context)
    if doubt is not None:
        output.warn(f"{doubt.message}: {doubt.note}; the roles need its fingerprint in gpu_repo_sources")
    wanted = wanted_of(context, family, resolution.stack, matrix)
    variables = role_variables(facts, wanted)
    packages = (*wanted.packages.prerequisites, *wanted.packages.python) if wanted.packages is not None else ()
    known = tuple(package for package in packages if UNKNOWN_KERNEL not in str(package))
    output.say(
        "note: kernel headers and NVSwitch depend on the host: add linux-headers (kernel-devel) of its kernel to "
        "gpu_packages_prerequisites, and fabric manager where there are switches; `gpusetup plan` knows both"
    )
    return replace(variables, gpu_packages_prerequisites=known)
