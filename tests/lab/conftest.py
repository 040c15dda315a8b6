"""Fixtures for tests on lab hosts; README.md explains them with examples."""

import itertools
import os
import re
from pathlib import Path

import pytest

from gpusetup.monitoring.files import files
from tests.lab import fleet, machine
from tests.lab.bootstrapping import serve_bundle
from tests.lab.host import SSH_COMMON
from tests.lab.lifecycle import Lab
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.repository import build
from tests.lab.spec import HostSpec

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("lab")


@pytest.fixture(scope="session")
def lab_machine():
    """This machine can run a lab; what apt can install is installed, anything else skips with the reason."""
    reason = machine.why_not()
    if reason:
        pytest.skip(reason)
    machine.prepare()


@pytest.fixture(scope="session")
def lab_repositories(lab_machine):
    """The stand-in package repositories, built; the server runs while there are hosts."""
    return build.ready()


@pytest.fixture(scope="module")
def bundle(lab_repositories):
    return serve_bundle()


_numbers = itertools.count(1)


@pytest.fixture
def lab_hosts(lab_machine, request):
    """Make hosts, all at once; they are destroyed after the test.

    lab_hosts(flavour="debian12", machine="t4") → [one]; lab_hosts(web={"machine": "t4"}, db={"flavour": "debian13"}) → [two].
    """
    yield from _factory(request.node.name)


@pytest.fixture(scope="module")
def lab_hosts_module(lab_machine, request):
    """As `lab_hosts`, for hosts that all tests of a module share."""
    yield from _factory(request.node.name)


def _factory(wanted_by):
    made: list[str] = []
    stem = re.sub("[^a-z0-9]+", "-", Path(wanted_by).stem.lower().removeprefix("test_"))[:20].strip("-")

    def make(**wanted):
        several = wanted and all(isinstance(value, dict) for value in wanted.values()) and "disks" not in wanted
        described = wanted if several else {"host": wanted}
        specs = [
            HostSpec(name=f"{stem}-{os.getpid()}-{next(_numbers)}-{name}"[-40:].strip("-").replace("_", "-"), **words)
            for name, words in described.items()
        ]
        made.extend(spec.name for spec in specs)
        return fleet.up(specs)

    try:
        yield make
    finally:
        if not os.environ.get("GPUSETUP_LAB_KEEP"):
            fleet.down(made)


@pytest.fixture
def lab_inventory(tmp_path):
    """Write an inventory of hosts: lab_inventory([h1, h2], {"gpusetup_source": "distro"}, {h1: {"gpusetup_torch": "2.6.*"}})."""

    def write(hosts, variables=None, per_host=None):
        lines = ["[lab]"]
        for host in hosts:
            own = {"ansible_host": host.address, **(per_host or {}).get(host, {})}
            lines.append(" ".join([host.name, *(f"{key}={value!r}" for key, value in own.items())]))
        common = {
            "gpusetup_simulated_root": SIMULATED_ROOT, "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3", "ansible_ssh_private_key_file": str(SSH_KEY),
            "ansible_ssh_common_args": SSH_COMMON,
            **(variables or {}),
        }  # fmt: skip
        lines += ["", "[lab:vars]", *(f"{key}={value}" for key, value in common.items())]
        path = tmp_path / "inventory.ini"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


@pytest.fixture
def lab(lab_hosts, lab_inventory, lab_repositories, tmp_path):
    """All of it: lab.hosts(machine="t4"), lab.inventory([host]), lab.repositories, and lab.folder for what is written."""
    return Lab(lab_hosts, lab_inventory, lab_repositories, tmp_path)


@pytest.fixture
def wishes(lab_repositories):
    """Inventory variables of most tests: a driver and nothing else."""
    return {**lab_repositories.variables, "gpusetup_components": '["driver"]', "gpusetup_driver": "580.*"}


@pytest.fixture(scope="module")
def written(lab_machine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitoring")
    for name, text in files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder
