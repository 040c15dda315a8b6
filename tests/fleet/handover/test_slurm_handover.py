"""The hand-over to Slurm: GPUs by their device files, and a slurmd that waits for them."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from gpusetup.model.facts import Facts
from gpusetup_fleet.handover.slurm import slurm_files, slurm_warnings
from tests.hosts.machines import machine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hosts():
    two = machine("ubuntu24.04-h200x2-keep")
    other = msgspec.structs.replace(two.gpus[1], name="L4", reported_name="NVIDIA L4")
    cut = tuple(msgspec.structs.replace(gpu, mig="Enabled") for gpu in two.gpus)
    kinds = {"mixed": (two.gpus[0], other), "cut": cut, "plain": ()}
    others = {name: msgspec.structs.replace(two, gpus=gpus) for name, gpus in kinds.items()}
    return {"n1": two, "n2": two, **others}


def test_alike_hosts_share_a_line_and_each_kind_has_its_device_files(hosts):
    files = slurm_files(hosts)
    kind = hosts["n1"].gpus[0].reported_name.lower().replace(" ", "_")
    assert files["gres.conf"].splitlines()[1:] == [
        f"NodeName=mixed Name=gpu Type={kind} File=/dev/nvidia0",
        "NodeName=mixed Name=gpu Type=nvidia_l4 File=/dev/nvidia1",
        f"NodeName=n1,n2 Name=gpu Type={kind} File=/dev/nvidia[0-1]",
    ]
    conf = files["slurm.conf.example"]
    assert f"# NodeName=mixed Gres=gpu:{kind}:1,gpu:nvidia_l4:1\n" in conf
    assert f"# NodeName=n1,n2 Gres=gpu:{kind}:2\n" in conf
    assert "\nRebootProgram=/sbin/reboot\n" in conf


def test_what_cannot_be_said_is_left_out_and_told(hosts):
    assert slurm_warnings(hosts) == (
        "cut: MIG is on; write AutoDetect=nvml for it, which knows the slices' device files",
        "plain: no NVIDIA GPU",
    )


def test_it_is_written_from_saved_facts(hosts, tmp_path, says):
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts={"n1": hosts["n1"]})))
    words, out = ("export", "handover", "slurm", "--from", facts, "--out"), tmp_path / "out"
    assert "gpusetup-wait-for-gpus" in says(0, *words, out)
    assert os.access(out / "gpusetup-wait-for-gpus", os.X_OK)
    assert not os.access(out / "gres.conf", os.X_OK)
    says(3, *words, out, "--lock", "x")
    says(3, *words, facts)


@pytest.fixture
def wait(hosts, tmp_path):
    """The script over a root with two NVIDIA GPUs, one GPU of somebody else's, and NVIDIA's sound device."""
    script = tmp_path / "wait"
    script.write_text(slurm_files(hosts)["gpusetup-wait-for-gpus"])
    root = tmp_path / "root"
    (root / "dev").mkdir(parents=True)
    for name in ("10de:0302", "10de:0300", "1002:0300", "10de:0403"):
        vendor, _, kind = name.partition(":")
        device = root / "sys/bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"0x{vendor}\n")
        (device / "class").write_text(f"0x{kind}00\n")

    def start(seconds):
        return subprocess.Popen(["sh", script, str(seconds), root], stderr=subprocess.PIPE, text=True)

    return root, start


def test_slurmd_waits_for_the_last_gpu(wait):
    root, start = wait
    (root / "dev/nvidia0").touch()
    (root / "dev/nvidiactl").touch()
    with start(60) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
        (root / "dev/nvidia1").touch()
        assert waiting.wait(30) == 0


def test_slurmd_starts_although_a_gpu_is_lost_and_says_so(wait):
    root, start = wait
    (root / "dev/nvidia0").touch()
    with start(1) as waiting:
        assert waiting.wait(30) == 0
        assert "1 of 2 GPUs have a device file" in waiting.stderr.read()
