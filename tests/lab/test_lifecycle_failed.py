"""An upgrade that fails: the host is back at what worked, or says exactly where it stands and what to type. Stand-in packages."""

import json

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.harm import BUILD_ERROR, break_build
from tests.lab.lifecycle import CONFIGURATION, drift, host_of, lock, stand_ins
from tests.lab.plays import packages, present

pytestmark = pytest.mark.slow


def test_an_upgrade_that_does_not_compile_leaves_what_worked(lab):
    host, inventory = lab.one(stand_ins(lab.repositories), flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    old, new = lock(lab.folder, "570"), lock(lab.folder, "580")
    apply(lab.folder, inventory, "--lock", old).well()
    before = present(host, *CONFIGURATION)
    held = host.ssh("apt-mark", "showhold").stdout

    override = break_build(host, json.loads(new.read_text())["stack"]["driver"]["version"])
    failed = apply(lab.folder, inventory, "--lock", new)
    assert (failed.code, host_of(failed)["state"]) == (7, "failed"), failed.out + failed.err
    told = host_of(failed)["failure"]
    assert BUILD_ERROR in told["note"], told
    assert "the host has its previous packages" in told["note"], told
    assert told["hint"], told
    assert present(host, *CONFIGURATION) == before
    assert host.ssh("apt-mark", "showhold").stdout == held
    assert drift(lab.folder, inventory)[1] == {}, "it stands on what was applied before, whole"
    assert "570." in host.ssh("nvidia-smi").stdout
    assert host.ssh("systemctl", "is-active", "nvidia-fabricmanager").stdout == "active\n"
    lab.unchanged(inventory, "--lock", old)
    host.reboot()
    assert drift(lab.folder, inventory)[1] == {}, "and boots into it"

    override.unlink()
    apply(lab.folder, inventory, "--lock", new).well()
    assert drift(lab.folder, inventory)[1] == {}


def test_when_the_way_back_fails_too_the_next_command_is_told_and_works(lab):
    host, inventory = lab.one(stand_ins(lab.repositories), flavour="ubuntu2404-like", machine="t4")
    old, new = lock(lab.folder, "570", "t4"), lock(lab.folder, "580", "t4")
    apply(lab.folder, inventory, "--lock", old).well()
    before = packages(host)

    host.break_packages("dkms-build", "fail")
    failed = apply(lab.folder, inventory, "--lock", new)
    assert (failed.code, host_of(failed)["state"]) == (7, "failed"), failed.out + failed.err
    told = host_of(failed)["failure"]
    assert "not restored" in told["note"], told
    assert "apply --recorded" in told["hint"], told
    drifted, found = drift(lab.folder, inventory)
    assert (drifted.code, set(found)) == (9, {"apply"}), found

    host.break_packages("dkms-build", "")
    gpusetup(lab.folder, "apply", "--recorded", inventory, "--format", "json").well()
    assert packages(host) == before
    assert drift(lab.folder, inventory)[1] == {}
    assert "570." in host.ssh("nvidia-smi").stdout
