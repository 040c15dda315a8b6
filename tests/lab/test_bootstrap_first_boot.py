"""A new machine with real cloud-init and a NoCloud seed: first boot to verified stack, unattended, with one reboot."""

import json

import pytest

from tests.lab.bootstrapping import UNIT, first_boot, status, user_data, wait_for_end
from tests.lab.plays import packages

CHANGED = ("/etc", "/usr/local/lib/gpusetup", "/opt")


def snapshot(host):
    """Packages, and every file where a machine keeps its settings, by time and size."""
    found = host.ssh("find", *CHANGED, "-xdev", "-type", "f", "-printf", "%p %s %T@\n").stdout
    skipped = ("/etc/resolv.conf", "/etc/machine-id", "/etc/.pwd.lock", "__pycache__", "/etc/hosts", "/etc/hostname")
    return packages(host), sorted(line for line in found.splitlines() if not any(word in line for word in skipped))


def test_first_boot_to_verified_and_a_second_boot_changes_nothing(lab_hosts, lab_repositories, bundle):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    first_boot(host, user_data(bundle, lab_repositories))
    end = wait_for_end(host)
    assert end["state"] == "done", end
    assert end["simulated"], "the GPU is a simulated one, and the status says so"
    assert len(end["reboots"]) == 1, end["reboots"]
    assert end["reboots"][0]["reason"]
    assert end["boot"] != end["reboots"][0]["boot"]
    assert json.loads(host.ssh("cloud-init", "status", "--format", "json").stdout)["status"] == "done"
    assert "580" in host.ssh("cat", "/var/lib/gpusetup-lab/simulated/proc/driver/nvidia/version").stdout
    assert not host.path(f"/etc/systemd/system/{UNIT}").exists()
    assert not host.path("/var/lib/cloud/scripts/per-boot/50-gpusetup").exists()
    assert host.path("/etc/motd.d/gpusetup").read_text().startswith("gpusetup: the NVIDIA stack has been ready")
    told = host.ssh("/opt/gpusetup-controller/bin/gpusetup", "cloud-init", "status", "--format", "json")
    assert json.loads(told.stdout)["state"] == "done"
    assert "step 3 of 4" in host.path("/var/log/gpusetup-bootstrap.log").read_text()
    before = snapshot(host)
    host.reboot()
    host.wait()
    assert snapshot(host) == before
    assert status(host) == end
    assert json.loads(host.ssh("cloud-init", "status", "--format", "json").stdout)["status"] == "done"


@pytest.mark.parametrize(
    "shape",
    ["cloud-config", pytest.param("shell", marks=pytest.mark.slow), pytest.param("mime", marks=pytest.mark.slow)],
)
def test_without_a_gpu_there_is_nothing_to_do(lab_hosts, lab_repositories, bundle, shape, tmp_path):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="none")
    before = packages(host)
    words = ["--format", shape]
    if shape == "mime":
        own, script = tmp_path / "own.yaml", tmp_path / "own.sh"
        own.write_text(
            "#cloud-config\nwrite_files:\n- path: /etc/own-file\n  content: grüß\nruncmd:\n- [touch, /etc/own-command]\n"
        )
        script.write_text("#!/bin/sh\ntouch /etc/own-script\n")
        words += ["--join", str(own), "--join", str(script)]
    first_boot(host, user_data(bundle, lab_repositories, *words))
    end = wait_for_end(host)
    assert (end["state"], end["ok"], end.get("reboots", [])) == ("nothing-to-do", True, []), end
    assert packages(host) == before
    assert not host.path(f"/etc/systemd/system/{UNIT}").exists()
    assert json.loads(host.ssh("cloud-init", "status", "--wait", "--format", "json").stdout)["status"] == "done"
    if shape == "mime":
        assert host.path("/etc/own-file").read_text() == "grüß"
        assert host.path("/etc/own-command").exists()
        assert host.path("/etc/own-script").exists()
