"""The roles on EL-like hosts: the code path for dnf 4 and 5, streams and version locks, on Debian's dnf (see README.md)."""

import re

import pytest

from tests.lab.lifecycle import rpms
from tests.lab.plays import nvidia_on_el, play


@pytest.mark.parametrize(
    ("flavour", "holds_itself"),
    [("rocky9-like", False), pytest.param("rocky9-dnf5-like", True, marks=pytest.mark.long)],
)
def test_apply_upgrade_downgrade_remove(flavour, holds_itself, lab):
    host, inventory = lab.one(flavour=flavour, machine="t4")
    before = rpms(host)
    able = host.ssh("dnf", "versionlock", "list", check=False).returncode == 0
    assert able == holds_itself, "dnf 4's plugin is a package of its own, dnf 5 has it built in"
    for version in ("580.159.04", "580.178.04", "570.211.01"):
        wanted = nvidia_on_el(lab.repositories, version)
        play("apply", inventory, wanted).well()
        assert rpms(host)["nvidia-driver-cuda"] == f"{version}-1.el9"
        assert host.ssh("nvidia-smi", "-L").stdout.startswith("GPU 0:")
        held = host.ssh("dnf", "-q", "versionlock", "list").stdout
        assert re.search(rf"nvidia-driver-cuda(-|\s+evr = )3:{re.escape(version)}", held), held
        again = play("apply", inventory, wanted)
        assert again.changed == {host.name: 0}, again.text
        assert again.operations <= 5
    assert "modprobe.blacklist=nouveau" in host.ssh("grubby", "--info=ALL").stdout
    play("remove", inventory, {"gpu_package_manager": "dnf"}).well()
    assert rpms(host) == before
    assert "modprobe.blacklist=nouveau" not in host.ssh("grubby", "--info=ALL").stdout


def test_a_wrong_key_is_refused(lab):
    host, inventory = lab.one(flavour="rocky9-like", machine="t4")
    before = rpms(host)
    faulty = lab.repositories.with_fault("roleselkey", "wrong-key", "index")
    done = play("apply", inventory, nvidia_on_el(faulty))
    assert done.code == 2
    assert "GS-448" in done.text or "GS-449" in done.text
    assert rpms(host) == before
