"""Find the hosts that a bundle is for: from a request, a file of facts, or an inventory as apply reads it."""

import argparse
import json
from pathlib import Path

from msgspec.structs import replace

from gpusetup.cli import output
from gpusetup.cli.lock import load_lock
from gpusetup.cli.requests import request_of
from gpusetup.cli.session import open_session
from gpusetup.components.parsing import file_source
from gpusetup.drive.causes import counted
from gpusetup.errors import BadInputError, HostFailedError
from gpusetup.facts import fleet
from gpusetup.facts.classes import fingerprint
from gpusetup.facts.collect import matrix_lookup, read_facts
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import Facts, HostFacts
from gpusetup.model.lock import Lock
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import exact_requirements
from gpusetup.plan.host import Planner
from gpusetup.plan.requests import as_delivered
from gpusetup.plan.settings import PREFIX, read_level, settings_for
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import gpus_of, parse_requirements
from gpusetup.rollout.looks import locked
from gpusetup.rollout.options import Wishes, settings_of_hosts
from gpusetup_fleet.supply.choosing import Asked


def systems_of(arguments: argparse.Namespace, matrix: Matrix) -> list[list[Asked]]:
    """Return, for each distribution release and CPU, the kinds of hosts that the bundle must serve."""
    said = _set_variables(arguments)
    lock = load_lock(arguments.lock) if arguments.lock else None
    if not (arguments.facts or arguments.inventory):
        arches = dict.fromkeys(arguments.arch or ("x86_64",))
        return [[_requested(arguments, arch, said, lock, matrix)] for arch in arches]
    hosts, settings = _examined_hosts(arguments, said, lock, matrix)
    return _by_system(arguments, hosts, settings, matrix)


def _set_variables(arguments: argparse.Namespace) -> dict[str, str]:
    level: dict[str, str] = {}
    for text in arguments.variables:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith(PREFIX):
            raise BadInputError("GS-787", f"{text} is not a variable", path="--set")
        level[name] = value
    read_level(level, "--set", prefix=PREFIX)  # report errors before contacting hosts
    return level


def _requested(
    arguments: argparse.Namespace, arch: str, said: dict[str, str], lock: Lock | None, matrix: Matrix
) -> Asked:
    """Return the request of the command line or of a lock, for hosts without facts."""
    plain = {
        "on": None,
        "driver": None,
        "native": False,
        "forward": False,
        "allow_builds": False,
        "allow_vulnerable": False,
    }
    single = {"arch": arch, "python": (arguments.python or [None])[-1]}
    namespace = type(arguments)(**{**vars(arguments), **plain, **single})
    if lock is not None:
        gpus, number = gpus_of(arguments.gpu)
        request = replace(
            lock.request, requirements=exact_requirements(lock.stack), os=arguments.os or lock.request.os,
            gpus=gpus or lock.request.gpus, gpu_count=number or lock.request.gpu_count,
            arch=lock.request.arch or single["arch"],
        )  # fmt: skip
    else:
        request = request_of(namespace, matrix)
    if not request.gpus or not request.os:
        raise BadInputError(
            "GS-709", "exact versions depend on GPU and distribution", path="--os" if request.gpus else "--gpu"
        )
    settings = settings_for({}, {}, read_level(said, "--set", prefix=PREFIX), request.requirements)
    request = replace(request, requirements=settings.requirements)
    return Asked(request, settings, tuple(dict.fromkeys(arguments.kernel)), tuple(arguments.archive))


def _examined_hosts(
    arguments: argparse.Namespace, said: dict[str, str], lock: Lock | None, matrix: Matrix
) -> tuple[dict[str, HostFacts], dict[str, Settings]]:
    """Return the hosts with facts, and the settings of each."""
    asked = _requirements(arguments)
    if arguments.facts:
        facts = read_facts(Path(arguments.facts))
        same = settings_for({}, {}, read_level(said, "--set", prefix=PREFIX), asked)
        settings = dict.fromkeys(facts.hosts, same)
    else:
        facts, settings = _of_inventory(arguments, said, asked, matrix)
    if lock is not None:
        settings = {name: locked(own, lock) for name, own in settings.items()}
    return facts.hosts, settings


def _requirements(arguments: argparse.Namespace) -> tuple[Requirement, ...]:
    python = [f"python=={one}" for one in (arguments.python or [])[-1:]]
    return parse_requirements([*arguments.requirements, *python])


def _of_inventory(
    arguments: argparse.Namespace, said: dict[str, str], asked: tuple[Requirement, ...], matrix: Matrix
) -> tuple[Facts, dict[str, Settings]]:
    """Collect the hosts' facts, and read their settings as apply does."""
    # As in Ansible, the command line overrides the inventory.
    more = [*arguments.extra_vars, *([json.dumps(said)] if said else [])]
    session = open_session(type(arguments)(**{**vars(arguments), "extra_vars": more}))
    looked = fleet.look(session, matrix_lookup(matrix), candidates=False)
    if looked.facts.failures:
        name, failure = next(iter(looked.facts.failures.items()))
        raise HostFailedError(
            "GS-776", f"{counted(len(looked.facts.failures), 'host')} gave no facts: {name}: {failure.message}",
            note="a bundle without their releases would be incomplete", path=arguments.inventory,
            hint=f"leave them out: --limit 'all:!{name}'; or write the facts of the others down: gpusetup facts … "
            "--format json --out facts.json, then --from facts.json",
        )  # fmt: skip
    settings, lost = settings_of_hosts(Wishes(requirements=asked), arguments.inventory, looked.run.track)
    for text in dict.fromkeys(text for texts in lost.values() for text in texts):
        output.warn(text.removeprefix("-w ").replace("or give -e ", "or give --set "))
    return looked.facts, {name: _from_the_network(own, said) for name, own in settings.items()}


def _from_the_network(settings: Settings, said: dict[str, str]) -> Settings:
    """Return the settings with sources to make the bundle from: the hosts' own source may be the bundle itself."""
    if f"{PREFIX}extra_sources" not in said:
        others = [
            one for one in settings.extra_sources if not all(uri.startswith("file:") for uri in one.uris or ("",))
        ]
        settings = replace(settings, extra_sources=tuple(others))
    named = f"{PREFIX}source" in said
    folder = settings.source.startswith("/") and file_source(settings.source) is None
    if not named and not folder:
        return settings
    key = () if f"{PREFIX}source_fingerprints" not in said else settings.source_fingerprints
    place = "" if f"{PREFIX}source_key" not in said else settings.source_key
    return replace(
        settings, source=settings.source if named else "nvidia", source_fingerprints=key, source_key=place
    )  # fmt: skip


def _by_system(
    arguments: argparse.Namespace, hosts: dict[str, HostFacts], settings: dict[str, Settings], matrix: Matrix
) -> list[list[Asked]]:
    planner = Planner(matrix, resolve)
    kinds: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for name, host in hosts.items():
        fits = arguments.os in {None, host.os.label} and (not arguments.arch or host.arch in arguments.arch)
        if host.gpus and fits:
            alike = (planner.key(host, settings[name]), fingerprint(as_delivered(host)))
            kinds.setdefault((host.os.label, host.arch), {}).setdefault(alike, []).append(name)
    where = arguments.facts or arguments.inventory
    if not kinds:
        raise BadInputError(
            "GS-776", f"{where} has no host with a requested GPU", path=where,
            hint=f"check them: gpusetup facts {arguments.inventory or 'inventory.ini'}",
        )  # fmt: skip
    return [
        [_of_kind(arguments, names, hosts[names[0]], settings[names[0]]) for names in of_system.values()]
        for _system, of_system in sorted(kinds.items(), key=lambda item: item[0])
    ]


def _of_kind(arguments: argparse.Namespace, names: list[str], host: HostFacts, settings: Settings) -> Asked:
    gpus, number = gpus_of(arguments.gpu)
    if gpus:
        host = replace(host, gpus=())  # for other GPUs than the installed ones
    gpus, number = gpus or tuple(sorted({gpu.pci_id for gpu in host.gpus})), number or len(host.gpus)
    request = Request(
        requirements=settings.requirements, gpus=gpus, gpu_count=number, os=host.os.label,
        arch="aarch64" if host.arch == "aarch64" else "x86_64", native=settings.native, forward=settings.forward,
    )  # fmt: skip
    kernels = tuple(dict.fromkeys(arguments.kernel))
    return Asked(request, settings, kernels, tuple(arguments.archive), host, tuple(names))
