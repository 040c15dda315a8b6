"""`doctor --apply` on real hosts: SSH, the host's lock, the reboot and the record are real; nvidia-smi is a stand-in."""

import json

import pytest

from tests.lab.applying import gpusetup

FIGURES = "/var/lib/gpusetup-lab/simulated/lab/figures.json"
VOLATILE = "/run/gpusetup-lab-mig.json"
INSTALL = """
set -e
apt-get update -qq
apt-get install -y -qq nvidia-driver-580-open=580.159.04-0ubuntu1 nvidia-dkms-580-open=580.159.04-0ubuntu1 \\
  nvidia-utils-580=580.159.04-0ubuntu1 libnvidia-compute-580=580.159.04-0ubuntu1 nvidia-kernel-common-580=580.159.04-0ubuntu1 \\
  libnvidia-gl-580=580.159.04-0ubuntu1 nvidia-compute-utils-580=580.159.04-0ubuntu1
update-initramfs -u
"""


def asks(host, **actions):
    """What the driver of the simulated boards asks for: first="Reset"."""
    numbers = {"first": "0", "second": "1"}
    told = {number: {"gpu_recovery_action": actions.get(name, "None")} for name, number in numbers.items()}
    host.path(FIGURES).write_text(json.dumps(told))


def boards_do(host, **state):
    """What the boards are busy with until the next boot."""
    host.ssh("sh", "-c", f"echo '{json.dumps(state)}' >{VOLATILE}")


def recovered(answer, host):
    return dict(answer.document["recovered"][host.name])


def record(host):
    path = host.path("/var/lib/gpusetup/recoveries.json")
    return json.loads(path.read_text()) if path.exists() else []


@pytest.mark.slow
def test_what_the_driver_asks_for_is_shown_done_looked_at_and_written_down(lab):
    (host,) = lab.hosts(flavour="ubuntu2404-like", machine="h200-x2")
    host.use(lab.repositories)
    host.ssh("sh", "-c", INSTALL, timeout=300)
    host.reboot()
    inventory = lab.inventory([host])

    def doctor(*words):
        return gpusetup(lab.folder, "doctor", inventory, "--format", "json", *words)

    # Nothing to do, and a need that is only shown.
    asks(host)
    well = doctor("--apply", "--yes")
    assert (well.code, recovered(well, host)["state"]) == (0, "nothing-to-do"), well.out + well.err
    asks(host, first="Reset")
    first = json.loads(host.ssh("cat", "/var/lib/gpusetup-lab/simulated/lab/gpus.json").stdout)[0]["address"]
    shown = doctor("--apply")
    told = recovered(shown, host)
    assert (shown.code, told["state"], told["recovery"]["gpus"]) == (9, "planned", [first]), shown.out + shown.err
    assert shown.document["hosts"][host.name]["cause"]["cause"] == "gpu-needs-reset"
    assert record(host) == []

    # A program on that GPU keeps it, and is named; one on the other GPU does not matter.
    boards_do(host, apps=[{"gpu": 0, "pid": 4711, "name": "/usr/bin/python3"}])
    busy = doctor("--apply", "--yes")
    assert (busy.code, recovered(busy, host)["reference"]) == (5, "GS-423"), busy.out + busy.err
    assert "python3 (4711)" in recovered(busy, host)["message"]
    boards_do(host, apps=[{"gpu": 1, "pid": 4711, "name": "/usr/bin/python3"}])
    done = doctor("--apply", "--yes")
    assert (done.code, recovered(done, host)["state"]) == (0, "done"), done.out + done.err
    assert done.document["hosts"][host.name]["healthy"] is True
    assert [(entry["action"], entry["gpus"], entry["outcome"]) for entry in record(host)] == [
        ("reset", [first], "done")
    ]
    assert not host.path("/var/lib/gpusetup/owner.json").exists()

    # A reset that does not help is not called done.
    boards_do(host, stubborn=True)
    asks(host, second="Reset")
    same = doctor("--apply", "--yes")
    assert (same.code, recovered(same, host)["state"]) == (8, "not-gone"), same.out + same.err
    assert "still asks for Reset" in record(host)[-1]["outcome"]

    # A reboot, where it may; the boards' wish goes with the boot, as a test says it.
    asks(host, first="Reboot")
    never = doctor("--apply", "--yes", "--reboot", "never")
    assert (never.code, recovered(never, host)["state"]) == (9, "pending-reboot"), never.out + never.err
    before = host.boot_id()
    rebooted = doctor("--apply", "--yes")
    assert host.boot_id() != before
    assert (rebooted.code, recovered(rebooted, host)["state"]) == (8, "not-gone"), rebooted.out + rebooted.err
    assert [(entry["action"], entry["outcome"]) for entry in record(host)[-2:]] == [
        ("reboot", "pending"), ("reboot", "done"),
    ]  # fmt: skip
