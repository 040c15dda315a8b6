"""Real Ansible over hosts that are answers: several processes, one answer, whoever fails is named with the reason."""

import json
import os
import subprocess
import sys

import pytest

from gpusetup.drive.shards import SIZE
from tests.lab.process import until
from tests.simulated_fleet import FAULTS, SimulatedFleet, working


def test_facts_of_a_fleet_in_shards_of_which_some_fail_in_every_way(tmp_path):
    fleet = SimulatedFleet(tmp_path / "fleet", 30, kinds=("ubuntu24.04-h200-keep", "debian12-t4-open"))
    bad = fleet.break_every(6)
    assert set(bad.values()) == set(FAULTS)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), SIZE: "11"}
    argv = [sys.executable, "-m", "gpusetup", "facts", str(fleet.inventory), "--format", "json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    assert list(told["hosts"]) == [name for name in fleet.names if name not in bad]
    assert {name: failure["exit"] for name, failure in told["failures"].items()} == {
        name: 6 if fault in {"refused", "key"} else 5 for name, fault in bad.items()
    }
    assert done.returncode == 6
    assert told["hosts"][fleet.names[0]]["boot"]["machine"] == f"machine-{fleet.names[0]}"
    (run,) = (tmp_path / ".local/state/gpusetup/runs").iterdir()
    shards = {json.loads(line).get("shard", 0) for line in (run / "events.jsonl").read_text().splitlines()}
    assert shards == {0, 1, 2}
    counts = [len((fleet.folder / "calls" / name).read_text().split()) for name in fleet.names if name not in bad]
    assert set(counts) == {1}


def test_a_rollout_goes_on_after_its_controller_was_killed_and_nobody_is_done_twice(tmp_path):
    fleet = SimulatedFleet(tmp_path / "fleet", 6, kinds=("ubuntu24.04-h200-keep",))
    fleet.answer("gpu_state", {"converged": True, "gpu_result": {"state": "unchanged"}})
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), SIZE: "4"}
    argv = [sys.executable, "-m", "gpusetup", "apply", str(fleet.inventory), "--verify", "never", "--format", "json"]
    runs = tmp_path / ".local/state/gpusetup/runs"
    with subprocess.Popen([*argv, "--batch", "2"], env=environment, stdout=subprocess.DEVNULL) as process:
        until(lambda: len(left(runs)) <= 4 or process.poll() is not None, "the first two are done")
        process.kill()
    until(lambda: not working(tmp_path), "its processes end", 20)
    rest = left(runs)
    assert rest in (fleet.names[2:], fleet.names[4:])
    before = {name: asked(fleet, name).count("gpu_state") for name in fleet.names}
    done = subprocess.run([*argv, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {name: host["state"] for name, host in json.loads(done.stdout)["hosts"].items()} == dict.fromkeys(
        rest, "unchanged"
    )
    again = {name for name in fleet.names if asked(fleet, name).count("gpu_state") > before[name]}
    assert again == set(rest)
    assert left(runs) == []


@pytest.mark.parametrize(
    ("said", "called"), [("", ["gpu_facts", "gpu_preview"]), (" gpu_preflight_timeout=soon", ["gpu_facts"])]
)
def test_roles_check_the_variables_that_an_inventory_gives_them_and_not_ours(tmp_path, said, called):
    fleet = SimulatedFleet(tmp_path / "fleet", 1, kinds=("ubuntu24.04-h200-keep",))
    fleet.inventory.write_text(fleet.inventory.read_text().replace("_domain", f"_node=n{said} gpusetup_domain", 1))
    argv = [sys.executable, "-m", "gpusetup", "plan", str(fleet.inventory)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(argv, env=environment, capture_output=True, check=False)
    assert asked(fleet, fleet.names[0])[:2] == called
    (events,) = tmp_path.glob(".local/state/gpusetup/runs/*/events.jsonl")
    assert ("validate_argument_spec" in events.read_text()) == bool(said)


def left(runs):
    found = sorted(runs.glob("*/rollout.json"), key=lambda path: path.stat().st_mtime_ns)
    return json.loads(found[-1].read_text())["left"] if found else list(range(100))


def asked(fleet, name):
    calls = fleet.folder / "calls" / name
    return calls.read_text().split() if calls.exists() else []
