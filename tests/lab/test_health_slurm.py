"""A node that goes bad leaves a real Slurm and returns: by its health program, prolog and epilog; only our own drain is undone."""

import json
import time

import pytest

from tests.lab import health
from tests.lab.slurm import Slurm

pytestmark = pytest.mark.slow
HOOKS = "/etc/gpusetup/hooks"
GPUSETUP = ("python3", "-m", "gpusetup")


@pytest.fixture(scope="module")
def cluster(lab_hosts_module):
    """Debian's Slurm with our hooks on its node; between tests the health program runs when one says so."""
    head, node = lab_hosts_module(
        head={"flavour": "debian12", "network": "mirror"}, node={"flavour": "debian12", "network": "mirror"}
    )
    smi = health.install(node)
    told = node.ssh(
        *GPUSETUP, "fleet", "health", "--hooks", "slurm", "--return-after", "2", "--ignore", health.NOT_HERE
    ).stdout
    assert f"{HOOKS}/slurm-health\n" in told
    slurm = Slurm(head, [node])
    lines = node.path(f"{HOOKS}/slurm.conf.example").read_text().replace("Interval=300", "Interval=3600")
    for host in (head, node):
        conf = host.path("/etc/slurm/slurm.conf")
        conf.write_text(conf.read_text() + lines)
    head.ssh("systemctl", "restart", "slurmctld")
    node.ssh("systemctl", "restart", "slurmd")
    slurm.wait(node, "IDLE")
    return slurm, head, node, smi


@pytest.fixture(autouse=True)
def good(cluster):
    """Each test begins with a good node in service, whose past is forgotten."""
    slurm, head, node, smi = cluster
    health.recovers(smi)
    node.ssh("rm", "-f", "/var/lib/gpusetup/verifications.sqlite3")
    if "DRAIN" in slurm.state(node):
        head.ssh("scontrol", "update", f"NodeName={node.name}", "State=RESUME")
    slurm.wait(node, "IDLE")


def look(node):
    """What slurmd runs now and then; what it says is in the journal."""
    since = node.ssh("date", "+%s.%N").stdout.strip()
    node.ssh(f"{HOOKS}/slurm-health", timeout=120)
    return node.ssh("journalctl", "--no-pager", "-o", "cat", "-t", "gpusetup-health", f"--since=@{since}").stdout


def runs(head, node, seconds=60):
    """Whether a job gets to run; one that does not waits for a node, and is not held."""
    number = head.ssh("sbatch", "--parsable", "--chdir=/tmp", f"--nodelist={node.name}", "--wrap=true").stdout.strip()
    until, state = time.monotonic() + seconds, ""
    while time.monotonic() < until + 60 * state.startswith("COMPLETING"):  # its prolog has failed: it goes back soon
        state = head.ssh("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T %r").stdout.strip()
        if state.startswith("COMPLETED"):
            return True
        time.sleep(0.5)
    head.ssh("scancel", number)
    assert state.startswith("PENDING"), state
    assert "Held" not in state, state
    assert "held" not in state, state
    return False


def reason(slurm, node):
    return slurm.node(node).partition("Reason=")[2].partition(" [")[0]


def test_a_bad_node_is_drained_gets_no_jobs_and_returns(cluster):
    slurm, head, node, smi = cluster
    assert look(node) == "", "a good node is nothing to speak of"
    assert runs(head, node)
    health.goes_bad(smi)
    assert "1 of 2 verifications" in look(node)
    assert slurm.state(node) == "IDLE", "one bad look is not believed"
    look(node)
    slurm.wait(node, "IDLE+DRAIN")
    assert reason(slurm, node).startswith("gpusetup-health: gpu.recovery: ")
    assert not runs(head, node, 8)
    health.recovers(smi)
    assert "passed 1 of 2" in look(node)
    assert slurm.state(node) == "IDLE+DRAIN"
    assert "returns to service" in look(node)
    slurm.wait(node, "IDLE")
    assert runs(head, node)
    told = node.ssh(*GPUSETUP, "fleet", "history").stdout
    assert "left service: gpu.recovery" in told
    assert "returned to service" in told


def test_what_an_administrator_drained_stays_so(cluster):
    slurm, head, node, smi = cluster
    head.ssh("scontrol", "update", f"NodeName={node.name}", "State=DRAIN", "Reason=bad fan")
    health.goes_bad(smi)
    said = [look(node) for _ in range(3)][-1]
    assert "someone else drained it: bad fan" in said
    assert reason(slurm, node) == "bad fan"
    health.recovers(smi)
    for _ in range(3):
        look(node)
    assert (slurm.state(node), reason(slurm, node)) == ("IDLE+DRAIN", "bad fan")


def test_the_prolog_keeps_a_job_away_and_health_tells_why(cluster):
    slurm, head, node, smi = cluster
    health.goes_bad(smi)
    assert not runs(head, node, 12)
    slurm.wait(node, "IDLE+DRAIN")
    assert reason(slurm, node) == "Prolog error", "Slurm's own words, until the health program runs"
    look(node)
    assert reason(slurm, node).startswith("gpusetup-health: gpu.recovery: ")
    health.recovers(smi)
    look(node), look(node)
    slurm.wait(node, "IDLE")
    assert runs(head, node)


def test_the_epilog_sees_what_a_job_left(cluster):
    slurm, _head, node, smi = cluster
    number = slurm.job(node, 20)
    (work,) = json.loads(node.ssh(*GPUSETUP, "facts", "--format", "json").stdout)["hosts"]["localhost"]["work"]
    assert [work[key] for key in ("scheduler", "id", "user", "name")] == ["slurm", number, "root", "wrap"]
    health.goes_bad(smi)
    slurm.wait(node, "IDLE+DRAIN", 120)
    look(node)
    assert reason(slurm, node).startswith("gpusetup-health: gpu.recovery: ")
    health.recovers(smi)
    look(node), look(node)
    slurm.wait(node, "IDLE")


def test_slurmd_itself_runs_it_and_comes_up_on_a_bad_node(cluster):
    """slurmd runs its health program when it starts; a bad node is there and drained, not down."""
    slurm, _head, node, smi = cluster
    health.goes_bad(smi)
    look(node)
    node.ssh("systemctl", "restart", "slurmd")
    slurm.wait(node, "IDLE+DRAIN", 120)
    assert reason(slurm, node).startswith("gpusetup-health: ")


def test_a_controller_that_is_away_changes_nothing(cluster):
    slurm, head, node, smi = cluster
    health.goes_bad(smi)
    head.ssh("systemctl", "stop", "slurmctld")
    said = look(node)
    assert "nothing was done about its health" in said
    assert "scontrol" in said
    head.ssh("systemctl", "start", "slurmctld")
    slurm.wait(node, "IDLE")
    look(node), look(node)
    slurm.wait(node, "IDLE+DRAIN")
