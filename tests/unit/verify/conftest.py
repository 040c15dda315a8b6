"""The code that measures, as a host runs it."""

import importlib
import sys

import pytest

from gpusetup.drive.argv import Reach
from gpusetup.drive.playbook import Session
from gpusetup.drive.rundir import new_run
from tests.unit.verify.verify_documents import FILES


@pytest.fixture(autouse=True)
def _history(monkeypatch, tmp_path_factory):
    """What a test verifies is not kept on this machine."""
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def probe(monkeypatch):
    """Return the probe's modules, imported from the role and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FILES))
    names = "child collect container desktops environment exporter measure fleet frameworks observe packages ptx_sweep scratch smoke"
    modules = {name: importlib.import_module(name) for name in names.split()}
    yield type("Probe", (), modules)
    for name in names.split():
        sys.modules.pop(name, None)


@pytest.fixture
def session(tmp_path):
    reach = Reach(inventory="hosts.ini", forks=1)
    return Session(run=new_run(tmp_path), collections=tmp_path, reach=reach, environment={})
