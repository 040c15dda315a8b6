"""Nodes of a real Slurm held by jobs, changed over SSH, rebooted by `scontrol reboot`, and given back; nothing stays in the queue."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from gpusetup.cli.main import main
from tests.lab.applying import REPOSITORY, apply
from tests.lab.moments import installing, until
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.slow
SECRET = "s3cret-77ab1e"
NODE = {"flavour": "debian12", "machine": "t4", "network": "mirror"}


@pytest.fixture(scope="module")
def cluster(lab_hosts_module):
    head, *nodes = lab_hosts_module(head={"flavour": "debian12", "network": "mirror"}, a=NODE, b=NODE)
    slurm = Slurm(head, nodes, "RebootProgram=/sbin/reboot\nResumeTimeout=300\n", "-b")
    for node in nodes:
        node.ssh("systemctl", "enable", "--quiet", "slurmd", "munge")
        if "DOWN" in slurm.state(node):
            head.ssh("scontrol", "update", f"NodeName={node.name}", "State=RESUME")
    return slurm, *nodes


def how(slurm):
    return ("--engine", "slurm", "--drain-via", shlex.join(slurm.head.ssh_argv()))


def started(slurm, folder, inventory, *words):
    """An apply that runs beside the test."""
    argv = [sys.executable, "-m", "gpusetup", "apply", str(inventory), "--format", "json", *how(slurm), *words]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GPUSETUP_STATE": str(folder / "state")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(argv, cwd=REPOSITORY, env=environment, **pipes)


def reason(slurm, node):
    return slurm.node(node).partition("Reason=")[2].partition(" [")[0]


def test_held_changed_rebooted_cancelled_killed_and_gone_on_with(cluster, lab_inventory, wishes, tmp_path):
    slurm, first, second = cluster
    head, inventory = slurm.head, lab_inventory([first, second], wishes)

    # A job cannot start: each way out is told and nothing is left behind.
    head.ssh("scontrol", "update", "PartitionName=all", "State=DOWN")
    down = apply(tmp_path, inventory, *how(slurm))
    assert down.code == 5, down.out + down.err
    refusals = [outcome["refusals"][0] for outcome in down.hosts.values()]
    assert [refusal["reference"] for refusal in refusals] == ["GS-819", "GS-819"]
    assert "the partition all is down" in refusals[0]["message"]
    head.ssh("scontrol", "update", "PartitionName=all", "State=UP", "MaxTime=10")
    long = apply(tmp_path, inventory, *how(slurm), "--engine-option", "time=60", "--limit", first.name)
    assert "PartitionTimeLimit" in long.hosts[first.name]["refusals"][0]["message"], long.out
    head.ssh("scontrol", "update", "PartitionName=all", "MaxTime=UNLIMITED")
    head.ssh("scontrol", "update", f"NodeName={second.name}", "State=DOWN", "Reason=burnt")
    broken = apply(tmp_path, inventory, *how(slurm), "--limit", second.name)
    assert broken.hosts[second.name]["refusals"][0]["reference"] == "GS-817", broken.out
    assert "burnt" in broken.out
    head.ssh("scontrol", "update", f"NodeName={second.name}", "State=RESUME")
    assert slurm.queue() == []
    assert not any("nvidia" in name for name in packages(first))

    # One node works and one is drained by somebody else.
    head.ssh("scontrol", "update", f"NodeName={second.name}", "State=DRAIN", "Reason=bad fan")
    slurm.job(first, 25)
    boots = [host.ssh("cat", "/proc/sys/kernel/random/boot_id").stdout for host in (first, second)]
    done = apply(tmp_path, inventory, *how(slurm), GPUSETUP_TEST_SECRET=SECRET)
    assert done.code == 0, done.out + done.err
    assert {outcome["state"] for outcome in done.hosts.values()} == {"done"}
    assert first.path("/var/tmp/job-ended").read_text() == "ended\n"
    assert slurm.state(first) == "IDLE"
    assert slurm.state(second) == "IDLE+DRAIN"
    assert reason(slurm, second).startswith("bad fan")
    log = head.path("/var/log/slurm/slurmctld.log").read_text()
    for node, boot in zip((first, second), boots, strict=True):
        assert re.search(rf"reboot request .*{node.name}|{node.name} reboot|{node.name}.*rebooted", log), log[-4000:]
        assert node.ssh("cat", "/proc/sys/kernel/random/boot_id").stdout != boot
    assert slurm.queue() == []
    assert "gpusetup" in head.ssh("squeue", "--noheader", "--states=COMPLETED", "--format=%j").stdout
    assert head.ssh("grep", "-rlc", SECRET, "/var/lib/slurm", "/var/log/slurm", check=False).stdout == ""

    newer = packages(first)

    # scancel in the middle ends it as Ctrl-C does; the node stays drained until it is gone on with.
    one = lab_inventory([first], wishes)
    one.write_text(one.read_text().replace("=580.*", "=570.*"))
    with started(slurm, tmp_path, one) as running:
        until(lambda: installing(first) or running.poll() is not None, "the package step", 300)
        assert slurm.queue() == ["RUNNING/gpusetup"]
        head.ssh("scancel", "--name=gpusetup")
        out, err = running.communicate(timeout=300)
    assert running.returncode == 130, out + err
    assert "its job has ended (cancelled): stopping" in err
    assert slurm.queue() == []
    assert slurm.state(first) == "IDLE+DRAIN"
    resumed = apply(tmp_path, one, "--resume", *how(slurm))
    assert resumed.code == 0, resumed.out + resumed.err
    assert slurm.state(first) == "IDLE"

    assert packages(first) != newer

    # A controller that is killed leaves its job, which the next one takes over.
    one.write_text(one.read_text().replace("=570.*", "=580.*"))
    with started(slurm, tmp_path, one) as running:
        until(lambda: installing(first) or running.poll() is not None, "the package step", 300)
        running.send_signal(signal.SIGKILL)
    assert slurm.queue() == ["RUNNING/gpusetup"]
    resumed = apply(tmp_path, one, "--resume", *how(slurm))
    assert resumed.code == 0, resumed.out + resumed.err
    assert slurm.state(first) == "IDLE"
    assert slurm.queue() == []
    assert packages(first) == newer


def test_slurmd_waits_for_a_gpu_by_the_files_of_the_hand_over(cluster, lab_inventory, wishes, tmp_path):
    """The GPU is a captured one, its device file a link to another device; slurmd, slurmctld and systemd are real."""
    slurm, node, _ = cluster
    head, folder = slurm.head, tmp_path / "handover"
    main(["export", "handover", "slurm", str(lab_inventory([node], wishes)), "--out", str(folder)])
    place = node.path("/root/handover")
    shutil.copytree(folder, place)
    steps = re.search(r"```bash\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    node.ssh("sh", "-ec", f"cd /root/handover\n{steps}")
    wanted = re.search(
        rf"# NodeName={node.name} (Gres=gpu:(\S+):1)$", (folder / "slurm.conf.example").read_text(), re.MULTILINE
    )
    for host in (head, node):
        shutil.copy(folder / "gres.conf", host.path("/etc/slurm/gres.conf"))
        conf = host.path("/etc/slurm/slurm.conf")
        line = f"NodeName={node.name} CPUs=1 RealMemory=100 "
        conf.write_text(conf.read_text().replace(f"{line}Gres=gpu:1", line + wanted[1]))
    node.ssh("systemctl", "stop", "slurmd")
    head.ssh("systemctl", "restart", "slurmctld")
    devices = "/sys/bus/pci/devices"
    node.ssh("mount", "--bind", f"{SIMULATED_ROOT}{devices}", devices)
    try:
        node.ssh("systemctl", "start", "--no-block", "slurmd")
        until(lambda: state_of(node) == "activating", "slurmd to wait", 30)
        node.ssh("sleep", "3")
        assert state_of(node) == "activating", "no device file, no slurmd"
        assert node.ssh("pgrep", "-x", "slurmd", check=False).stdout == ""
        node.ssh("ln", "-s", "/dev/zero", "/dev/nvidia0")
        until(lambda: state_of(node) == "active", "slurmd to start", 30)
        slurm.wait(node, "IDLE")
        assert f" {wanted[1]} " in slurm.node(node)
        job = head.ssh(
            "sbatch", "--wait", "--parsable", "--chdir=/tmp", f"--gres=gpu:{wanted[2]}:1", f"--nodelist={node.name}",
            "--wrap=true",
        )  # fmt: skip
        assert job.returncode == 0, job.stderr
    finally:
        node.ssh("umount", devices)


def state_of(node):
    return node.ssh("systemctl", "is-active", "slurmd", check=False).stdout.strip()
