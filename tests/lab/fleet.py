"""Hosts from an inventory: bring up what is missing, in parallel; take down what it names."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.lab import machine
from tests.lab.flavours import FLAVOURS
from tests.lab.host import Host
from tests.lab.places import CHECKOUT, LabError
from tests.lab.process import run
from tests.lab.roots import ROOTS
from tests.lab.spec import HostSpec


def specs_of(inventory: Path) -> list[HostSpec]:
    """The lab hosts of an inventory: those with a `lab_flavour`."""
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", str(inventory), "--list"]
    listed = json.loads(run(argv, cwd=CHECKOUT).stdout)
    known = listed["_meta"]["hostvars"].items()
    specs = [spec_of(name, its, its.get("ansible_host", "")) for name, its in known if "lab_flavour" in its]
    if not specs:
        raise LabError(f"{inventory} names no lab host (none has the variable lab_flavour)")
    return specs


def spec_of(name: str, variables: dict[str, Any], address: str = "") -> HostSpec:
    """What the variables that begin with `lab_` ask for."""
    words = {key.removeprefix("lab_"): value for key, value in variables.items() if key.startswith("lab_")}
    known = {item.name for item in dataclasses.fields(HostSpec)} - {"name", "address"}
    if set(words) - known:
        raise LabError(
            f"host {name}: unknown variable lab_{min(set(words) - known)}; known: {', '.join(sorted(f'lab_{word}' for word in known))}"
        )
    return HostSpec(name=name, address=address, **words)


def up(specs: Sequence[HostSpec]) -> list[Host]:
    """Every host, made or switched on where needed; a host that is as wanted is left alone."""
    machine.prepare()
    known = {spec.name: spec for spec in Host.all_specs()}
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(lambda name: ROOTS[name].ready(), sorted({FLAVOURS[spec.flavour].root for spec in specs})))
    with ThreadPoolExecutor(max_workers=max(1, len(specs))) as pool:
        return list(pool.map(lambda spec: _one(spec, known.get(spec.name)), specs))


def _one(spec: HostSpec, present: HostSpec | None) -> Host:
    if present is None:
        return Host.create(spec)
    if present != (spec if spec.address else dataclasses.replace(spec, address=present.address)):
        raise LabError(f"the lab host {spec.name} exists and is different ({present}): take it down first")
    host = Host(present)
    if not host.mounted:  # this machine was rebooted since
        host.destroy()
        return Host.create(spec)
    host.power_on()
    return host


def down(names: Sequence[str]) -> None:
    hosts = [Host(spec) for spec in Host.all_specs() if spec.name in set(names)]
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        list(pool.map(Host.destroy, hosts))
