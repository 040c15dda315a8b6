"""A new virtual machine, real cloud-init, the user-data that gpusetup makes: first boot to loaded module, unattended."""

import json
import os

import pytest

from tests.lab.bootstrapping import UNIT, serve_bundle, user_data
from tests.vm.boots import again, boots, wait_for_end
from tests.vm.machine import VirtualMachine

DRIVER = "580."


@pytest.fixture(scope="module")
def machine(vm_repositories):
    text = user_data(serve_bundle(), vm_repositories)
    host = VirtualMachine.make(f"vm-first-boot-{os.getpid()}", text)
    try:
        host.power_on(wait=False)
        yield host
    finally:
        if not os.environ.get("GPUSETUP_LAB_KEEP"):
            host.destroy()


@pytest.fixture(scope="module")
def end(machine):
    return wait_for_end(machine, 1800)


@pytest.fixture(scope="module")
def both(machine, end):
    found = boots(machine)
    assert len(found) == 2, [boot.identifier for boot in found]
    return found


def test_it_ends_done_after_one_reboot_with_its_reason(machine, end):
    assert end["state"] == "done", (end, machine.evidence())
    assert end["simulated"], "the GPU is a simulated one, and the status says so"
    (reboot,) = end["reboots"]
    assert "nouveau is loaded" in reboot["reason"]
    assert reboot["boot"] != end["boot"]
    told = machine.ssh("cloud-init", "status", "--format", "json", check=False)
    assert json.loads(told.stdout)["status"] == "done", told.stdout


def test_before_nouveau_had_the_display_so_the_checks_can_fail(both, end):
    first, _ = both
    assert first.identifier == end["reboots"][0]["boot"]
    assert "insmod" in first.nouveau_before
    assert "nouveau" in first.loaded_before, (
        "it starts in the initramfs, before any file of the root file system counts"
    )
    assert "nouveau" in first.loaded
    assert "nvidia" not in first.loaded


def test_nouveau_is_out_of_the_initramfs_that_booted(machine, both):
    _, second = both
    assert second.nouveau_before == "", "modprobe with the blacklist, in the initramfs itself, has nothing to load"
    assert "blacklist nouveau" in second.rules_before
    assert "nouveau" not in second.loaded_before
    assert "modprobe.blacklist=nouveau" in second.arguments_before
    assert "nouveau" not in second.loaded
    assert machine.ssh("modinfo", "-n", "nouveau").stdout.strip().endswith("nouveau.ko"), (
        "it is still there to be loaded"
    )
    assert machine.ssh("modprobe", "-n", "-v", "-b", "nouveau", check=False).stdout == ""
    assert "modprobe.blacklist=nouveau" in machine.ssh("cat", "/proc/cmdline").stdout


def test_the_module_built_for_this_kernel_is_the_one_loaded(machine, both):
    _, second = both
    kernel = machine.ssh("uname", "-r").stdout.strip()
    assert {"nvidia", "nvidia_uvm"} <= second.loaded
    (built,) = machine.ssh("dkms", "status").stdout.splitlines()
    assert f", {kernel}, " in built
    assert built.endswith(": installed")
    version = machine.ssh("cat", "/sys/module/nvidia/version").stdout.strip()
    assert version.startswith(DRIVER)
    assert machine.ssh("modinfo", "-F", "version", "nvidia").stdout.strip() == version
    assert "/updates/dkms/" in machine.ssh("modinfo", "-n", "nvidia").stdout
    assert f"  {version}  " in machine.ssh("cat", "/proc/driver/nvidia/version").stdout


def test_the_verification_names_what_it_could_not_check(machine, end):
    told = json.loads(machine.ssh("cat", "/var/lib/gpusetup/bootstrap/answer.json").stdout)
    (host,) = told["hosts"].values()
    skipped = {check["id"]: check["text"] for check in host["checks"] if check["verdict"] == "skip"}
    assert host["verified"] == end["verified"] == "skip"
    assert skipped
    assert set(skipped.values()) == {"the GPU is simulated"}


def test_it_is_gone_and_another_boot_changes_nothing(machine, end):
    files = f"/etc/systemd/system/{UNIT} /var/lib/cloud/scripts/per-boot/50-gpusetup"
    assert machine.ssh("sh", "-c", f"ls {files} 2>/dev/null", check=False).stdout == ""
    assert machine.ssh("cat", "/etc/motd.d/gpusetup").stdout.startswith("gpusetup: the NVIDIA stack has been ready")
    assert machine.ssh("dpkg", "--audit").stdout == ""
    assert again(machine) == []
    assert "nvidia" in boots(machine)[-1].loaded
