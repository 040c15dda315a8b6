"""`gpusetup fleet health --timer` on one host with a real systemd: looks, measures only what is idle, ends in its budget, acts, and can be ended."""

import pytest

from tests.lab import health

GPUSETUP = ("python3", "-m", "gpusetup")
TEXTFILES = "/var/lib/prometheus/node-exporter"


@pytest.fixture(scope="module")
def machine(lab_hosts_module):
    """A host whose nvidia-smi is a stand-in, and whose measuring Python never answers."""
    (host,) = lab_hosts_module(flavour="debian12")
    smi = health.install(host)
    for image in host.path("/boot").glob("initrd.img*"):
        image.unlink()  # with nouveau in it, as on every host whose driver nobody installed
    host.path(TEXTFILES).mkdir(parents=True)
    hangs = host.path("/opt/hangs")
    hangs.write_text("#!/bin/sh\nexec sleep 77777\n")
    hangs.chmod(0o755)
    host.path("/etc/systemd/system/gpu-unfit.target").write_text("[Unit]\nDescription=the GPUs must not be used\n")
    return host, smi


def run(host, name):
    """Let the timer's service run once; return how it ended and what it said."""
    since = host.ssh("date", "+%s.%N").stdout.strip()
    host.ssh("systemctl", "start", name, check=False, timeout=120)
    end = host.ssh("systemctl", "show", name, "--property=ExecMainStatus", "--value").stdout.strip()
    return end, host.ssh("journalctl", "--no-pager", "-o", "cat", "-u", name, f"--since=@{since}").stdout


def active(host, unit):
    return host.ssh("systemctl", "is-active", unit, check=False).stdout.strip()


def test_a_bad_gpu_is_a_failed_unit_and_units_of_one_s_own_follow(machine):
    host, smi = machine
    act = ("--on-bad", "systemctl start gpu-unfit.target", "--on-good", "systemctl stop gpu-unfit.target")
    host.ssh(*GPUSETUP, "fleet", "health", "--timer", "hourly", *act, "--leave-after", "1", "--return-after", "1")
    assert active(host, "gpusetup-health.timer") == "active"
    end, said = run(host, "gpusetup-health")
    assert (end, active(host, "gpu-unfit.target")) == ("0", "inactive"), said
    assert "gpusetup_verify" in host.path(f"{TEXTFILES}/gpusetup-verify.prom").read_text()
    health.goes_bad(smi)
    end, said = run(host, "gpusetup-health")
    assert (end, active(host, "gpu-unfit.target")) == ("8", "active"), said
    assert "leaves service: gpu.recovery" in said
    assert host.ssh("systemctl", "--failed", "--plain", "--no-legend").stdout.startswith("gpusetup-health.service")
    health.recovers(smi)
    end, said = run(host, "gpusetup-health")
    assert (end, active(host, "gpu-unfit.target")) == ("0", "inactive"), said
    told = host.ssh(*GPUSETUP, "fleet", "history").stdout
    assert "localhost: 3 verifications" in told
    assert "left service: gpu.recovery" in told
    assert "removed" in host.ssh(*GPUSETUP, "fleet", "health", "--timer", "never").stdout
    assert active(host, "gpusetup-health.timer") == "inactive"


def test_measuring_leaves_a_gpu_in_use_alone_and_ends_in_its_budget(machine):
    host, smi = machine
    host.ssh(
        *GPUSETUP, "fleet", "health", "--level", "full", "--timer", "daily", "--budget", "2", "--python", "/opt/hangs"
    )
    health.is_used(smi, "train.py")
    end, said = run(host, "gpusetup-health-full")
    assert end == "0", said
    assert "GPU 0: train.py (4242)" in said
    health.is_used(smi)
    end, said = run(host, "gpusetup-health-full")
    assert end == "0", said
    assert "the budget of 2 s was over" in said
    assert host.ssh("pgrep", "-f", "sleep 77777", check=False).stdout == "", "what measured has ended"
    host.ssh(*GPUSETUP, "fleet", "health", "--level", "full", "--timer", "never")
