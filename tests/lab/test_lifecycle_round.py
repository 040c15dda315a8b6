"""The life of a host through the command line: applied, drifted, mended, up, down, back, removed. Stand-in packages."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import CONFIGURATION, drift, host_of, lock, stand_ins
from tests.lab.plays import packages, present


@pytest.mark.slow
def test_one_hosts_whole_life(lab):
    """Apply, apply again, drift, mending, holds, up, down, back, removal; with Fabric Manager, which moves with the driver."""
    host, inventory = lab.one(stand_ins(lab.repositories), flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    before = present(host, *CONFIGURATION)
    locks = {branch: lock(lab.folder, branch) for branch in ("570", "580")}
    assert gpusetup(lab.folder, "drift", inventory).code == 9, "never applied is no clean bill"

    older = _applied(host, lab.folder, inventory, locks["570"], "570")
    lab.unchanged(inventory, "--lock", locks["570"])
    same, found = drift(lab.folder, inventory)
    assert (same.code, found, host_of(same)["state"]) == (0, {}, "same")
    assert same.operations <= 4, same.operations

    _disturb(host)
    drifted, found = drift(lab.folder, inventory)
    assert drifted.code == 9
    assert {
        "hold-nvidia-utils-570": "free to move",
        "service-nvidia-fabricmanager.service": "disabled",
        "file-/etc/modprobe.d/gpusetup-nouveau.conf": "missing",
    }.items() <= found.items(), found
    assert any(name.startswith("module-") and "none" in now for name, now in found.items()), found
    mend = host_of(drifted)["mend"]
    assert "apply --recorded" in mend
    gpusetup(lab.folder, *mend.split()[1:]).well()

    moved = host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "full-upgrade")
    assert "570" not in " ".join(line for line in moved.stdout.splitlines() if line.startswith("Setting up")), moved
    assert drift(lab.folder, inventory)[1] == {}, "a full upgrade moved something of the stack"

    newer = _applied(host, lab.folder, inventory, locks["580"], "580")
    assert _applied(host, lab.folder, inventory, locks["570"], "570") == older, "down again is the same set as before"
    lab.rolled_back(inventory)
    assert packages(host) == newer, "the last verified state that is not the present one"
    assert drift(lab.folder, inventory)[1] == {}
    listed = gpusetup(lab.folder, "rollback", inventory, "--list", "--format", "json")
    applies = [past["id"] for past in host_of(listed)["applies"]]
    assert len(set(applies)) == len(applies) >= 4
    assert gpusetup(lab.folder, "rollback", inventory, "--to", "no-such").code == 3
    lab.rolled_back(inventory, "--to", applies[0])
    assert packages(host) == older

    shown = gpusetup(lab.folder, "remove", inventory)
    assert shown.code == 9
    assert "nvidia-fabricmanager-570" in shown.out
    assert packages(host) != before[0], "it only showed"
    removed = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert (removed.code, host_of(removed)["state"]) == (9, "pending-reboot"), removed.out + removed.err
    assert host_of(removed)["left_over"] == {}, removed.out
    assert present(host, *CONFIGURATION) == before
    assert host.ssh("apt-mark", "showhold").stdout == ""
    assert not host.path("/var/lib/gpusetup").exists()
    gone = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert (gone.code, host_of(gone)["state"], host_of(gone)["changed"]) == (0, "unchanged", 0)


def _applied(host, folder, inventory, wanted, branch):
    """Apply a lock; the driver, Fabric Manager and everything else of the stack are of that branch."""
    step = apply(folder, inventory, "--lock", wanted).well()
    now = packages(host)
    fabric = {name: version for name, version in now.items() if "fabricmanager" in name}
    assert [version.split(".")[0] for version in fabric.values()] == [branch], fabric
    assert not [name for name, version in now.items() if "nvidia" in name and not version.startswith(branch)], now
    assert host_of(step)["stack"]["driver"]["version"] in host.ssh("nvidia-smi").stdout
    assert host.ssh("systemctl", "is-active", "nvidia-fabricmanager").stdout == "active\n"
    return now


def _disturb(host):
    host.ssh("apt-mark", "unhold", "nvidia-utils-570")
    host.ssh("systemctl", "disable", "nvidia-fabricmanager")
    host.path("/etc/modprobe.d/gpusetup-nouveau.conf").unlink()
    (module,) = host.path("/lib/modules").glob("*/updates/dkms/nvidia.ko*")
    module.unlink()
    host.ssh("update-initramfs", "-u")
