"""Debian's real Slurm: nodes are drained, changed and given back; slurmd waits for its GPU by the files of the hand-over."""

import json
import re
import shlex
import shutil

import pytest

from gpusetup.cli.main import main
from tests.lab.applying import apply
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages
from tests.lab.process import until
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.slow


def test_slurm_nodes_are_freed_changed_and_given_back(lab_hosts, lab_inventory, wishes, tmp_path):
    """Debian's own Slurm: jobs, reservations and other people's drains; its packages come from the Debian mirror."""
    head, node = lab_hosts(
        head={"flavour": "debian12", "network": "mirror"},
        node={"flavour": "debian12", "machine": "t4", "network": "mirror"},
    )
    cluster = Slurm(head, [node])
    inventory = lab_inventory([node], wishes)
    how = ("--drain", "slurm", "--drain-via", shlex.join(head.ssh_argv()))

    # A running job is waited for; then the node changes, reboots, is verified, and works again with a new slurmd.
    started = cluster.node(node).partition("SlurmdStartTime=")[2].split()[0]
    cluster.job(node, 20)
    done = apply(tmp_path, inventory, *how).well()
    assert {name: outcome["state"] for name, outcome in done.hosts.items()} == {node.name: "done"}
    assert node.path("/var/tmp/job-ended").read_text() == "ended\n"
    assert cluster.state(node) == "IDLE"
    assert cluster.node(node).partition("SlurmdStartTime=")[2].split()[0] != started
    before = packages(node)
    inventory.write_text(inventory.read_text().replace("=580.*", "=570.*"))

    # A job that does not end in time keeps its node, and the node goes on working.
    number = cluster.job(node, 3600)
    late = apply(tmp_path, inventory, *how, "--drain-wait", "0.1")
    assert late.code == 9, late.out + late.err
    assert late.hosts[node.name]["pending"] == [f"jobs run: {number}"]
    assert cluster.state(node) == "ALLOCATED"
    head.ssh("scancel", number)
    cluster.wait(node, "IDLE")

    # A reservation is respected.
    reserve = ["ReservationName=mine", "StartTime=now", "Duration=30", "Users=root", f"Nodes={node.name}"]
    head.ssh("scontrol", "create", "reservation", *reserve)
    reserved = apply(tmp_path, inventory, *how)
    assert reserved.code == 9, reserved.out + reserved.err
    assert reserved.hosts[node.name]["pending"] == ["reserved: mine"]
    head.ssh("scontrol", "delete", "ReservationName=mine")
    assert packages(node) == before

    # What somebody else drained is changed, and still drained.
    head.ssh("scontrol", "update", f"NodeName={node.name}", "State=DRAIN", "Reason=bad fan")
    foreign = apply(tmp_path, inventory, *how).well()
    assert "bad fan" in json.dumps(foreign.hosts[node.name]["warnings"])
    assert cluster.state(node) == "IDLE+DRAIN"
    assert packages(node) != before


@pytest.fixture(scope="module")
def cluster(lab_hosts_module):
    node = {"flavour": "debian12", "machine": "t4", "network": "mirror"}
    head, node = lab_hosts_module(head={"flavour": "debian12", "network": "mirror"}, a=node)
    slurm = Slurm(head, [node])
    node.ssh("systemctl", "enable", "--quiet", "slurmd", "munge")
    return slurm, node


def test_slurmd_waits_for_a_gpu_by_the_files_of_the_hand_over(cluster, lab_inventory, wishes, tmp_path):
    """The GPU is a captured one, its device file a link to another device; slurmd, slurmctld and systemd are real."""
    slurm, node = cluster
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
        until(lambda: state_of(node) == "activating", "slurmd to wait")
        node.ssh("sleep", "3")
        assert state_of(node) == "activating", "no device file, no slurmd"
        assert node.ssh("pgrep", "-x", "slurmd", check=False).stdout == ""
        node.ssh("ln", "-s", "/dev/zero", "/dev/nvidia0")
        until(lambda: state_of(node) == "active", "slurmd to start")
        slurm.wait(node, "IDLE")
        assert f" {wanted[1]} " in slurm.node(node)
        head.ssh(
            "sbatch", "--wait", "--parsable", "--chdir=/tmp", f"--gres=gpu:{wanted[2]}:1", f"--nodelist={node.name}",
            "--wrap=true",
        )  # fmt: skip
    finally:
        node.ssh("umount", devices)


def state_of(node):
    return node.ssh("systemctl", "is-active", "slurmd", check=False).stdout.strip()
