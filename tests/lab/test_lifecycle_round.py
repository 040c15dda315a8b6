"""The life of a host through the command line: applied, drifted, mended, up, down, back, removed. Stand-in packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import CONFIGURATION, drift, host_of, lock, stand_ins
from tests.lab.plays import files_below, packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories


@pytest.fixture
def machine(
    lab_hosts: Callable[..., list[Host]], lab_inventory: Callable[..., Path], lab_repositories: Repositories
) -> tuple[Host, Path]:
    """A bare-metal machine with NVSwitches: the driver and Fabric Manager move together or not at all."""
    (host,) = lab_hosts(flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    return host, lab_inventory([host], stand_ins(lab_repositories))


@pytest.mark.slow
def test_drift_is_found_and_mended_and_removal_leaves_no_trace(machine: tuple[Host, Path], tmp_path: Path) -> None:
    host, inventory = machine
    before, files_before = packages(host), files_below(host, *CONFIGURATION)
    assert gpusetup(tmp_path, "drift", inventory).code == 9, "never applied is no clean bill"
    first = apply(tmp_path, inventory, "--lock", lock(tmp_path, "570"))
    assert first.code == 0, first.out + first.err

    same, found = drift(tmp_path, inventory)
    assert (same.code, found, host_of(same)["state"]) == (0, {}, "same")
    assert same.operations <= 4, same.operations

    host.ssh("apt-mark", "unhold", "nvidia-utils-570")
    host.ssh("systemctl", "disable", "nvidia-fabricmanager")
    host.path("/etc/modprobe.d/gpusetup-nouveau.conf").unlink()
    (module,) = host.path("/lib/modules").glob("*/updates/dkms/nvidia.ko*")
    module.unlink()
    host.ssh("update-initramfs", "-u")
    drifted, found = drift(tmp_path, inventory)
    assert drifted.code == 9
    assert {
        "hold-nvidia-utils-570": "free to move",
        "service-nvidia-fabricmanager.service": "disabled",
        "file-/etc/modprobe.d/gpusetup-nouveau.conf": "missing",
    }.items() <= found.items(), found
    assert any(name.startswith("module-") and "none" in now for name, now in found.items()), found
    mend = host_of(drifted)["mend"]
    assert "apply --recorded" in mend

    mended = gpusetup(tmp_path, *mend.split()[1:])
    assert mended.code == 0, mended.out + mended.err
    assert drift(tmp_path, inventory)[1] == {}

    moved = host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "full-upgrade")
    assert "570" not in " ".join(line for line in moved.stdout.splitlines() if line.startswith("Setting up")), moved
    assert drift(tmp_path, inventory)[1] == {}, "a full upgrade moved something of the stack"

    shown = gpusetup(tmp_path, "remove", inventory)
    assert shown.code == 9
    assert "nvidia-fabricmanager-570" in shown.out
    assert packages(host) != before, "it only showed"
    removed = gpusetup(tmp_path, "remove", inventory, "--yes", "--format", "json")
    assert (removed.code, host_of(removed)["state"]) == (9, "pending-reboot"), removed.out + removed.err
    assert host_of(removed)["left_over"] == {}, removed.out
    assert packages(host) == before
    assert files_below(host, *CONFIGURATION) == files_before
    assert host.ssh("apt-mark", "showhold").stdout == ""
    assert not host.path("/var/lib/gpusetup").exists()
    again = gpusetup(tmp_path, "remove", inventory, "--yes", "--format", "json")
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0)


@pytest.mark.slow
def test_up_down_and_back_with_fabric_manager(machine: tuple[Host, Path], tmp_path: Path) -> None:
    host, inventory = machine
    before = packages(host)
    locks = {branch: lock(tmp_path, branch) for branch in ("570", "580")}
    sets: dict[str, dict[str, str]] = {}
    for branch in ("570", "580", "570"):
        step = apply(tmp_path, inventory, "--lock", locks[branch])
        assert step.code == 0, step.out + step.err
        now = packages(host)
        fabric = {name: version for name, version in now.items() if "fabricmanager" in name}
        assert [version.split(".")[0] for version in fabric.values()] == [branch], fabric
        assert not [name for name, version in now.items() if "nvidia" in name and not version.startswith(branch)], now
        assert host_of(step)["stack"]["driver"]["version"] in host.ssh("nvidia-smi").stdout
        assert host.ssh("systemctl", "is-active", "nvidia-fabricmanager").stdout == "active\n"
        assert sets.setdefault(branch, now) == now, "down again is the same set as before going up"
        again = apply(tmp_path, inventory, "--lock", locks[branch])
        assert (again.code, host_of(again)["changed"]) == (0, 0), again.out

    back = gpusetup(tmp_path, "rollback", inventory, "--format", "json")
    assert back.code == 0, back.out + back.err
    assert packages(host) == sets["580"], "the last verified state that is not the present one"
    assert drift(tmp_path, inventory)[1] == {}
    listed = gpusetup(tmp_path, "rollback", inventory, "--list", "--format", "json")
    assert len(host_of(listed)["applies"]) == 4
    first = host_of(listed)["applies"][0]["id"]
    assert gpusetup(tmp_path, "rollback", inventory, "--to", "no-such").code == 3
    there = gpusetup(tmp_path, "rollback", inventory, "--to", first, "--format", "json")
    assert there.code == 0, there.out + there.err
    assert packages(host) == sets["570"]

    gpusetup(tmp_path, "remove", inventory, "--yes")
    assert packages(host) == before
