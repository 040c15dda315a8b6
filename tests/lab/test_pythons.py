"""A newer Python than the host's own comes with the stack: chosen by plan, installed by the roles, used, taken away."""

import json

import pytest

from tests.lab.applying import gpusetup
from tests.lab.plays import play
from tests.modules.test_venv import wheel

TINY = "gpusetup_lab_tiny"


@pytest.mark.slow
def test_a_stand_in_for_a_newer_python_is_installed_and_makes_the_environment(lab):
    """The package is called python3.12; what it brings is Debian's own Python under that name."""
    (host,) = lab.hosts(flavour="rocky9-like", machine="t4")
    epel = lab.repositories.beside("epel", f"{lab.repositories.rocky}/epel")
    inventory = lab.asking(host, gpusetup_components='["driver", "torch"]', **epel)
    before = host.ssh("rpm", "-qa").stdout
    assert host.ssh("test", "-e", "/usr/bin/python3.12", check=False).returncode == 1

    words = ("-w", "python==3.12", "--format", "json")
    plan = gpusetup(lab.folder, "plan", inventory, *words).hosts[host.name]
    assert plan["state"] == "change", plan
    (action,) = [action for action in plan["actions"] if action["id"] == "install-python"]
    assert action["what"].split()[0] == "python3.12"
    variables = plan["variables"]
    assert variables["gpu_python_interpreter"] == "/usr/bin/python3.12"

    host.path("/srv/wheels").mkdir(parents=True)  # it says which Python imports it: frameworks are gigabytes
    wheel(host.path("/srv/wheels"), TINY, "1", "import sys\nprint(sys.version_info[:2])\n")
    variables |= {"gpu_python_requirements": [f"{TINY.replace('_', '-')}==1"], "gpu_python_find_links": "/srv/wheels"}
    variables["gpu_state_planned"] = []  # applied three times below
    play("apply", inventory, variables).well()
    assert host.ssh("rpm", "-q", "python3.12", "python3.12-pip").returncode == 0
    made_by = host.ssh("cat", "/opt/gpusetup/pyvenv.cfg").stdout
    assert "/usr/bin/python3.12 -m venv" in made_by
    assert host.ssh("/opt/gpusetup/bin/python", "-c", f"import {TINY}").stdout.strip() == "(3, 11)", "it is a stand-in"
    recorded = json.loads(host.path("/var/lib/gpusetup/state.json").read_text())
    assert "python3.12" in recorded["brought"]
    again = play("apply", inventory, variables)
    assert again.changed == {host.name: 0}, again.text
    host.ssh("rpm", "-e", "--nodeps", "python3.12")
    drift = gpusetup(lab.folder, "drift", inventory, "--format", "json")
    assert "python3.12" in drift.out, drift.out + drift.err
    play("apply", inventory, variables).well()
    assert host.ssh("/opt/gpusetup/bin/python", "-c", f"import {TINY}").returncode == 0

    lab.removed(inventory)
    assert sorted(host.ssh("rpm", "-qa").stdout.split()) == sorted(before.split())
    assert host.ssh("test", "-e", "/opt/gpusetup", check=False).returncode == 1
