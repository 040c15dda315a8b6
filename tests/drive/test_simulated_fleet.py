"""Real Ansible over hosts that are answers: several processes, one answer, whoever fails is named with the reason."""

import json
import os
import subprocess
import sys

from gpusetup.drive.shards import SIZE
from tests.simulated_fleet import FAULTS, SimulatedFleet


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
