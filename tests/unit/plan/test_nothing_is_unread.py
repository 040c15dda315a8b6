"""A plan reads every field of repos.json, and gives roles only variables that they take."""

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpusetup.components.base import Offers
from gpusetup.components.desktops import DESKTOPS
from gpusetup.components.driver.archives import last_seen
from gpusetup.components.driver.sources import absence, all_sources, context_of, family_for
from gpusetup.errors import GpuSetupError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Containers
from gpusetup.model.facts_machine import NvSwitch
from gpusetup.model.package import Package
from gpusetup.model.record import MatrixFile, Record
from gpusetup.model.request import Request
from gpusetup.model.settings import DesktopsWish, Settings
from gpusetup.model.stack import CudaChoice, DriverChoice, LibraryChoice, Stack
from gpusetup.model.variables import RoleVariables
from gpusetup.plan.requests import described_host
from gpusetup.plan.wanted import wanted_of
from tests.hosts.machines import changed

EVIDENCE = set(Record.__struct_fields__)
"""Whence a record is known: for people, and for the lints."""
HEAD = set(MatrixFile.__struct_fields__)
BRANCHES = ("470", "535", "570", "580", "595", "610", "615")
KERNELS = (
    "6.8.0-50-generic", "6.12.43+deb13-cloud-amd64", "5.14.0-570.12.1.el9_6.x86_64", "5.14.0-427.13.1.el9_4.aarch64+64k",
    "4.18.0-348.20.1.rt7.150.el8_5.x86_64", "6.12.0-100.28.2.2.el9uek.x86_64", "6.1.141-155.222.amzn2023.x86_64",
    "6.12.37-61.105.amzn2023.aarch64", "6.6.96.2-2.azl3",
    "6.4.0-150600.23.47-default",
)  # fmt: skip


class Watched:
    """A record that remembers which of its fields were asked for."""

    def __init__(self, record, place, seen):
        self._record, self._place, self._seen = record, place, seen

    def __getattr__(self, name):
        place = f"{self._place}.{name}"
        self._seen.add(place)
        value = self.__dict__[name] = _watched(getattr(self._record, name), place, self._seen)
        return value


def _watched(value, place, seen):
    if isinstance(value, msgspec.Struct):
        return Watched(value, place, seen)
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        return tuple(Watched(item, f"{place}[{index}]", seen) for index, item in enumerate(value))
    return value


def _said(record, place):
    """Every field that a record says something in; at the top the head of the file is not for plans."""
    skipped = HEAD if isinstance(record, MatrixFile) else EVIDENCE
    for name, default in zip(record.__struct_fields__, _defaults(record), strict=True):
        value = getattr(record, name)
        if name in skipped or value == default:
            continue
        yield f"{place}.{name}"
        if isinstance(value, msgspec.Struct):
            yield from _said(value, f"{place}.{name}")
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            for index, item in enumerate(value):
                yield from _said(item, f"{place}.{name}[{index}]")


def _defaults(record):
    given = list(record.__struct_defaults__)
    return [msgspec.NODEFAULT] * (len(record.__struct_fields__) - len(given)) + given


class Everything(Offers):
    """Repositories that have every name, at one version."""

    def __init__(self, version, part=""):
        super().__init__({})
        self.version, self.part = version, part

    def names(self, pattern):
        branch = self.version.partition(".")[0]
        yield pattern.replace("[0-9]*", branch).replace("*", branch)

    def has(self, name, version=""):
        return self.part in name or "container" in name

    def versions(self, name):
        return [f"{self.version}-1"]

    def upstreams(self, name):
        return [self.version]

    def matching(self, name, pattern):
        return Package(name=name)


def _hosts(label, arch):
    facts = described_host(Request(os=label, arch=arch))
    match = label.rstrip("0123456789.")
    facts = changed(facts, os={"id": match, "version_id": label[len(match) :]})
    names = ("nvidia-imex", "libnvsdm", "libnccl-dev", "libnccl-devel")
    installed = {**dict.fromkeys(names, "1"), "nvidia-container-toolkit": "1.0"}
    for kernel, switch in itertools.product(KERNELS, (None, NvSwitch(kind="nvlink5"))):
        yield changed(facts, kernel={"next": kernel}, nvswitch=switch, packages={"installed": installed})


def _stack(branch, module, cudnn):
    return Stack(
        driver=DriverChoice(version=f"{branch}.10.01", branch=branch, module=module, relation="native"),
        cuda=CudaChoice(version="12.8.1", relation="native"),
        cudnn=LibraryChoice(version=cudnn, cuda="12.8"),
        nccl=LibraryChoice(version="2.27.3", cuda="12.8"),
    )


def _planned(known, context, source, stack):
    family = family_for(context)
    if family is None:
        absence(context)
        return
    all_sources(context, family)
    family.patterns(context)
    family.drivers(context)
    family.library_candidates(context)
    try:
        wanted_of(context, family, stack, known)
    except GpuSetupError:
        return  # no such driver there


def test_every_field_of_every_row_is_read_for_some_host():
    seen: set[str] = set()
    known = matrix()
    repos: Any = Watched(known.repos, "", seen)
    for system, source in itertools.product(known.os.systems, ("nvidia", "distro")):
        last_seen(repos, system.id)
        settings = Settings(source=source, containers=("docker",))
        for arch in system.arches:
            docker = Containers(runtimes=("docker",))
            hosts = [changed(facts, containers=docker) for facts in _hosts(system.id, arch)]
            for facts in hosts:
                _planned(
                    known, context_of(repos, facts, settings, Offers(None)), source, _stack("580", "open", "9.8.0.87")
                )
            drawn = changed(settings, desktops=DesktopsWish(users=("alice",), backend="x"))
            desktops = context_of(repos, hosts[0], drawn, Everything("580.10.01"))
            DESKTOPS.patterns(desktops, known)
            _planned(known, desktops, source, _stack("580", "open", "9.8.0.87"))
            built = changed(settings, module="prebuilt")
            for facts, branch, module in itertools.product(hosts[::2], ("580", "595"), ("open", "proprietary")):
                everything = Everything(f"{branch}.10.01")
                _planned(known, context_of(repos, facts, built, everything), source, _stack(branch, module, "9.8.0.87"))
            for branch, module, cudnn in itertools.product(BRANCHES, ("open", "proprietary"), ("9.8.0.87", "8.9.7.29")):
                stack = _stack(branch, module, cudnn)
                for offers in (Offers(None), Everything(f"{branch}.10.01"), Everything(f"{branch}.10.01", "-tesla-")):
                    _planned(known, context_of(repos, hosts[1], settings, offers), source, stack)
    unread = [place for place in _said(known.repos, "") if place not in seen]
    assert not unread, "\n".join(unread)


ROOT = Path(__file__).resolve().parents[3]


def test_every_variable_is_one_that_a_role_or_a_play_takes():
    specs = [yaml.safe_load(path.read_text()) for path in (ROOT / "roles").glob("*/meta/argument_specs.yml")]
    taken = {name for spec in specs for name in spec["argument_specs"]["main"].get("options") or ()}
    plays = "".join(path.read_text() for path in (ROOT / "playbooks").glob("*.yml"))
    assert {*RoleVariables.__struct_fields__} <= {*taken, *re.findall(r"\w+", plays)}
