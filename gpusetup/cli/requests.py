"""Turn command-line arguments into a request; notes on GPU names and on the matrix's age."""

from __future__ import annotations

import datetime as dt
import os
import re
import textwrap
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpusetup.cli.options import ARCHES, add_vulnerable, not_together
from gpusetup.model.request import SITE_FILE
from gpusetup.resolve.requests import parse_requirements, question

if TYPE_CHECKING:
    import argparse

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.request import Request
    from gpusetup.model.stack import TakenFor
    from gpusetup.rollout.options import Wishes

_OLD_AFTER_DAYS = 90
_PROJECTS = (
    r"(.*/)?(pyproject|pylock[^/]*)\.toml|.*\.lock|.*(requirements|constraints)[^/]*(/[^/]*)?\.(txt|in)"
    r"|.*environment[^/]*\.ya?ml"
)


def request_of(arguments: argparse.Namespace, matrix: Matrix) -> Request:
    """Return the request for the arguments of `options.add_requirements` and `options.add_request`."""
    request = question(
        [*arguments.requirements, *([f"python=={arguments.python}"] if arguments.python is not None else [])],
        matrix,
        gpus=arguments.gpu,
        os=arguments.os,
        arch=arguments.arch,
        driver=arguments.driver,
        allow_builds=arguments.allow_builds,
        native=arguments.native,
        forward=arguments.forward,
        allow_vulnerable=arguments.allow_vulnerable,
    )
    policy = getattr(arguments, "policy", None)
    if os.path.isfile(SITE_FILE):  # noqa: PTH113 - pathlib slows lookups; rare, so that its reader is imported only here
        from gpusetup.resolve.policy import stricter
        from gpusetup.rollout.options import policy_beside

        policy = stricter(policy, policy_beside(None))
    if policy is not None:
        request = replace(request, policy=policy)
    if arguments.on is not None:
        from gpusetup.matrix.gpus import cpu_of, instance_named

        found = instance_named(matrix, arguments.on)
        cpu = cpu_of(matrix, (found.gpu,)) or ARCHES[0]
        if arguments.arch not in {None, cpu}:
            why = f"the CPU of {found.name} is {cpu}"
            raise not_together(f"--on {arguments.on}", f"--arch {arguments.arch}", why)
        request = replace(
            request,
            gpus=(found.gpu,),
            gpu_count=found.count,
            vgpu_guest=found.driver == "vgpu",
            machine_type=found.name,
        )
    if request.driver is not None and request.driver not in arguments.driver:
        from gpusetup.cli.output import warn

        warn(f"driver {arguments.driver} is taken for {request.driver}, the first release with that number")
    arguments.driver = request.driver
    return request


def is_project(name: str) -> bool:
    """Return whether a file's name is a project file's, and not that of an inventory, a log or facts."""
    return re.fullmatch(_PROJECTS, "/".join(name.rsplit("/", 2)[-2:])) is not None


def take_project(arguments: argparse.Namespace, matrix: Matrix) -> None:
    """Replace a project file in `--from` by its requirements; refuse an answer that would overwrite the file."""
    if arguments.facts is None:
        return
    for option in ("out", "lock"):
        name, read = getattr(arguments, option, None), arguments.facts
        if name and os.path.isfile(read) and os.path.isfile(name) and os.path.samefile(read, name):  # noqa: PTH113, PTH121
            raise not_together(f"--{option} {name}", f"--from {arguments.facts}", "the answer would replace that file")
    if is_project(arguments.facts):
        from gpusetup.cli import project

        project.take_project(arguments, matrix)


def request_about(arguments: argparse.Namespace, matrix: Matrix) -> Request:
    """Return the request; with `--from`, for the project, the host or the identical hosts in that file."""
    take_project(arguments, matrix)
    request = request_of(arguments, matrix)
    if arguments.facts is None:
        return request
    from pathlib import Path

    from gpusetup.facts.classes import host_of_one_kind

    return about_host(host_of_one_kind(Path(arguments.facts)), request, matrix)


def about_host(host: HostFacts, wishes: Request, matrix: Matrix) -> Request:
    """Return the request for a host; what the command line says of the machine takes precedence."""
    from gpusetup.components.base import Offers
    from gpusetup.components.python.requirements import pythons_of, system_of
    from gpusetup.model.settings import Settings
    from gpusetup.plan.requests import request_for

    settings = Settings(
        requirements=wishes.requirements,
        native=wishes.native,
        forward=wishes.forward,
        allow_vulnerable=wishes.allow_vulnerable,
        policy=wishes.policy,
    )
    pythons = pythons_of(host, settings, system_of(matrix, host), Offers(None))
    found = request_for(host, settings, pythons=pythons if wishes.os in {None, host.os.label} else None)
    known = {system.id for system in matrix.os.systems}
    return msgspec.structs.replace(
        found,
        gpus=wishes.gpus or found.gpus,
        gpu_count=wishes.gpu_count or found.gpu_count,
        os=wishes.os or (found.os if found.os in known else None),
        arch=wishes.arch or found.arch,
        driver=wishes.driver,
    )


def gpus_taken_for(request: Request, matrix: Matrix) -> tuple[TakenFor, ...]:
    """Return how each GPU name was understood."""
    from gpusetup.matrix.gpus import find_gpu
    from gpusetup.model.stack import TakenFor

    kinds = {name: find_gpu(matrix, name) for name in dict.fromkeys(request.gpus)}
    return tuple(
        TakenFor(asked=name, architecture=kind.arch, compute_capability=kind.cc, products=kind.names)
        for name, kind in kinds.items()
    )


def gpus_text(request: Request, matrix: Matrix) -> str:
    """Return a line for each GPU name that is not exactly one product's."""
    from gpusetup.matrix.gpus import find_gpu, taken_for

    lines = []
    for name in dict.fromkeys(request.gpus):
        kind = find_gpu(matrix, name)
        if kind.names != (name,):
            lines += textwrap.wrap(
                f"GPU {name}: {taken_for(kind, name)}", 80, subsequent_indent="  ", break_on_hyphens=False
            )
    return "".join(line + "\n" for line in lines)


def age_warning(matrix: Matrix) -> str | None:
    """Return a warning if the matrix is old, else None."""
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    age = (today - dt.date.fromisoformat(matrix.date)).days
    if age <= _OLD_AFTER_DAYS:
        return None
    return (
        f"the matrix is {age} days old ({matrix.date}); it lacks newer releases: update gpusetup, "
        "or import a newer release of the matrix: `gpusetup matrix import FILE|URL`"
    )


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """Add the requirements for all hosts; inventory and gpusetup.toml override them."""
    group = parser.add_argument_group("requirements (an inventory's gpusetup_ variables and gpusetup.toml win)")
    group.add_argument("--want", "-w", action="append", default=[], metavar="REQ", help="torch==2.6.*, 'cuda>=12.4', …")
    group.add_argument("--source", metavar="WHERE", help="nvidia, distro, the URL of a mirror or the path of a bundle")
    add_reboot(group)
    group.add_argument("--upgrade", action="store_true", help="choose new versions; do not keep the recorded ones")
    group.add_argument("--replace", action="store_true", help="remove a driver from another source, .run included")
    add_vulnerable(group)
    add_way_back(group)


def add_reboot(group: argparse._ArgumentGroup) -> None:
    """Add `--reboot`; the more careful of it and the inventory's setting applies."""
    group.add_argument(
        "--reboot",
        choices=("never", "when-needed", "schedule"),
        help="the more careful of this and the inventory wins; this machine: never",
    )


def add_way_back(group: argparse._ArgumentGroup) -> None:
    """Add the options that permit risky changes."""
    group.add_argument(
        "--no-way-back", action="store_true", help="change a host even if its old packages are no longer available"
    )
    group.add_argument(
        "--older-source", action="store_true", help="take a repository or bundle that is older than the present one"
    )
    group.add_argument(
        "--despite-maintenance", action="store_true", help="change a host that its cloud is about to stop or reboot"
    )


def wishes_of(arguments: argparse.Namespace) -> Wishes:
    """Return the arguments of `add_wishes`."""
    from gpusetup.rollout.options import Wishes

    return Wishes(
        requirements=parse_requirements(list(arguments.want)),
        source=arguments.source,
        reboot=arguments.reboot,
        replace=arguments.replace,
        no_way_back=arguments.no_way_back,
        older_source=arguments.older_source,
        despite_maintenance=arguments.despite_maintenance,
        upgrade=arguments.upgrade,
        allow_vulnerable=arguments.allow_vulnerable,
    )
