"""The examples in the documentation work: the inventory script through Ansible, for each cloud's list."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
AWS = {"Reservations": [{"Instances": [
    {"InstanceId": "i-1", "InstanceType": "p5.48xlarge", "State": {"Name": "running"}, "PrivateIpAddress": "10.0.0.1"},
    {"InstanceId": "i-2", "InstanceType": "p5.48xlarge", "State": {"Name": "stopped"}},
]}]}  # fmt: skip
GOOGLE = [
    {"name": "a", "status": "RUNNING", "machineType": "https://x/machineTypes/a3-highgpu-8g", "networkInterfaces": [{"networkIP": "10.0.0.1"}]},
    {"name": "b", "status": "TERMINATED", "machineType": "x/n1", "networkInterfaces": [{"networkIP": "10.0.0.2"}]},
]  # fmt: skip
PLAIN = [{"name": "h", "address": "10.0.0.1", "type": "gn7i"}]


@pytest.mark.parametrize(
    ("document", "name", "group"),
    [(AWS, "i-1", "type_p5_48xlarge"), (GOOGLE, "a", "type_a3_highgpu_8g"), (PLAIN, "h", "type_gn7i")],
)
def test_instances_are_an_inventory(tmp_path, document, name, group):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document))
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", str(EXAMPLES / "instances.py"), "--list"]
    environment = {**os.environ, "GPUSETUP_INSTANCES": str(path), "HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    listed = json.loads(done.stdout)
    assert listed["_meta"]["hostvars"] == {name: {"ansible_host": "10.0.0.1"}}
    assert listed[group]["hosts"] == [name]
