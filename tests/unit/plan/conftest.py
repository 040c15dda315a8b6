"""Captured machines, and what the stand-in repositories of the lab would offer them."""

from typing import Any

import msgspec

from gpusetup.components import judge
from gpusetup.components.base import Wanted
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord
from gpusetup.model.plan import Preview
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.model.stack import Stack
from gpusetup.plan.host import Planner
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.hosts.machines import changed, machine
from tests.lab.repository import catalog


def asked(*words, **more):
    """Settings that ask for this."""
    return Settings(requirements=parse_requirements(list(words)), **more)


DRIVER = asked("driver")
host, planner = machine, Planner(matrix(), resolve)


def resolved(*words, **about):
    return resolve(Request(requirements=parse_requirements(list(words)), **about), matrix())


def changes(component, facts, wish=None):
    parts = {component.name: wish} if wish else {}
    wanted = Wanted(stack=Stack(), packages=None, settings=Settings(), manage_driver=False, parts=parts)
    return list(component.actions(judge.judged(facts), wanted))


def answer(packages, *extra):
    """What the preview would say of these packages."""
    offered: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        stub = "transitional" in package.summary.lower()
        offered.setdefault(package.name, []).insert(
            0, {"version": package.version, "size": 1000, "transitional": stub, "source": "lab"}
        )
    for name, version in extra:
        offered.setdefault(name, []).append({"version": version, "size": 1000, "transitional": False, "source": "lab"})
    return msgspec.convert({"findings": [], "candidates": offered}, Preview)


def drafted(planner, facts, settings, offers):
    """A host's draft; the repositories offer this, if they are asked at all."""
    draft = planner.first(facts, settings)
    return planner.second(facts, settings, offers) if draft.stage == "offers" else draft


def with_installed(facts, more):
    return changed(facts, packages={"installed": facts.packages.installed | more})


def applied(facts, plan):
    """The facts of a host on which a plan was carried out."""
    packages = plan.lock.wanted.packages if plan.lock.wanted else None
    there = {item.name: (item.version or "1").rstrip("*") for item in (packages.wanted() if packages else ())}
    return changed(with_installed(facts, there), state=HostRecord(lock=plan.lock, brought=there, packages=there))


nvidia_ubuntu, nvidia_debian = answer(catalog.ubuntu()), answer(catalog.debian())
_OWN = ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "firmware-nvidia-gsp")
debian12_archive = answer(
    [], *((name, "535.309.01-0+deb12u1") for name in (*_OWN, "libnvidia-ml1")), ("nvidia-open-kernel-dkms", "535.261.03-1"),
    ("nvidia-persistenced", "535.171.04-1~deb12u1"), ("nvidia-cuda-toolkit", "11.8.89~11.8.0-5~deb12u1"),
    ("nvidia-cuda-toolkit-gcc", "11.8.0-5~deb12u1"), ("linux-headers-amd64", "6.1.170-1"),
)  # fmt: skip
"""Debian 12 as it was on 2026-11-20: the open module is older than the rest."""
