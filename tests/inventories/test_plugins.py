"""The inventory plugins of AWS, Azure, Google Cloud and NetBox under gpusetup, with the configuration that the guide gives.

Plugins, collections and SDKs are the real ones; the clouds are answers in their documented form (`recorded.py`).
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.inventories.answers import ROLES
from tests.inventories.recorded import SECRETS, clouds
from tests.lab.process import run
from tests.simulated_fleet import SimulatedFleet

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples/inventories"
H100, T4 = ("gpu00000", "gpu00001", "gpu00002"), ("gpu00003",)
CASES = {
    "aws": ("gpus.aws_ec2.yml", "boto3", {
        "gpu_h100": H100, "gpu_t4": T4, "type_p5_48xlarge": H100, "type_g4dn_xlarge": T4,
        "zone_eu_west_1a": ("gpu00000", "gpu00002"),
    }, ["eu-west-1a-1", "eu-west-1b-1", "eu-west-1a-2", "eu-west-1b-0"]),
    "azure": ("gpus.azure_rm.yml", "azure.mgmt.core", {
        "gpu_h100": H100, "gpu_t4": T4, "type_Standard_ND96isr_H100_v5": H100, "location_westeurope": (*H100, *T4),
    }, ["westeurope-1", "westeurope-2", "westeurope-1", "westeurope-2"]),
    "gcp": ("gpus.gcp_compute.yml", "google.auth", {
        "gpu_h200": H100, "gpu_l4": T4, "type_a3_ultragpu_8g": H100, "zone_europe_west4_a": ("gpu00000", "gpu00002"),
    }, ["block0", "block0", "block1", "europe-west4-b"]),
    "netbox": ("gpus.netbox.yml", "pynetbox", {
        "gpu_h100": H100, "site_ams1": (*H100, *T4), "rack_A01": ("gpu00001",), "device_type_dgx-h100": H100,
    }, ["A00", "A01", "A02", "ams1"]),
}  # fmt: skip
"""The file, what it needs, groups and their hosts, the failure domain of each host."""


def _has(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not _has("ansible_collections.amazon"), reason="no inventory plugins here: ./dev test inventories installs them"
)


@pytest.fixture(params=CASES)
def case(request, tmp_path, monkeypatch):
    """A cloud that answers, and an inventory folder with the guide's file whose hosts are simulated."""
    file, needs, groups, domains = CASES[request.param]
    if not _has(needs):
        pytest.skip(f"{needs} is not installed: ./dev test inventories installs it")
    fleet = SimulatedFleet(tmp_path / "fleet", 1, kinds=("ubuntu24.04-h200-keep",))
    answer = json.loads((tmp_path / "fleet/answers/gpu-00000/gpu_facts.json").read_text())
    fleet.answer("gpu_facts", answer)
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (folder / file).write_text((EXAMPLES / file).read_text())
    shared = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3", "gpusetup_become": False}
    shared |= {"ansible_ssh_executable": str(fleet.folder / "ssh")}
    (folder / "group_vars/all.json").write_text(json.dumps(shared))
    with clouds(tmp_path) as cloud:
        home = {"HOME": str(tmp_path), "GPUSETUP_STATE": str(tmp_path / "state"), "GPUSETUP_SHARD_SIZE": "2"}
        yield request.param, folder, groups, domains, cloud, dict(os.environ) | cloud.environment | home


def gpusetup(environment, *words):
    done = run([sys.executable, "-m", "gpusetup", *map(str, words)], env=environment, check=False, timeout=900)
    return done, json.loads(done.stdout) if done.stdout.startswith("{") else {}


def test_groups_addresses_and_failure_domains_are_what_the_guide_says(case):
    _, folder, groups, domains, _, environment = case
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", folder, "--list"]
    done = run(argv, env=environment, timeout=900)
    told = json.loads(done.stdout)
    hosts = told["_meta"]["hostvars"]
    assert sorted(hosts) == [*H100, *T4], done.stderr
    for group, members in groups.items():
        assert tuple(sorted(told.get(group, {}).get("hosts", ()))) == members, (group, sorted(told))
    assert [_plain(hosts[host]["gpusetup_domain"]) for host in sorted(hosts)] == domains
    assert [_plain(hosts[host]["ansible_host"]) for host in sorted(hosts)] == [f"10.0.0.{n}" for n in range(4)]


def _plain(value):
    """What a cloud said is no template: `ansible-inventory` marks it so."""
    return value["__ansible_unsafe"] if isinstance(value, dict) else value


def test_a_run_of_several_processes_asks_the_cloud_once_and_writes_no_secret_down(case, tmp_path):
    name, folder, groups, _, cloud, environment = case
    done, facts = gpusetup(environment, "facts", folder, "--format", "json")
    assert sorted(facts.get("hosts", ())) == [*H100, *T4], done.stderr
    assert {host["gpus"][0]["name"] for host in facts["hosts"].values()} == {"H200 SXM"}
    (run,) = (tmp_path / "state/runs").iterdir()
    events = (run / "events.jsonl").read_text()
    assert "read_again" not in events, events
    assert (run / "ansible.log").read_text().count("==== ") >= 2, "several processes"
    once = {
        "aws": "POST ec2.eu-west-1.amazonaws.com/",
        "azure": f"GET management.azure.com{ROLES}/Microsoft.Compute/virtualMachines/gpu00000/instanceView",
        "gcp": "GET www.googleapis.com/compute/v1/projects/example-project/aggregated/instances",
        "netbox": "GET netbox.example/api/dcim/devices/",
    }
    assert cloud.asked.count(once[name]) == (1 if name == "azure" else 2), "a machine's state; two pages"
    kept = [
        path
        for path in (tmp_path / "state").rglob("*")
        if path.is_file() and SECRETS[name].encode() in path.read_bytes()
    ]
    assert kept == []
    group, members = next(iter(groups.items()))
    _, limited = gpusetup(environment, "facts", folder, "--limit", group, "--format", "json")
    assert tuple(sorted(limited["hosts"])) == members


def test_a_plan_needs_no_more_than_the_plugin_gives(case):
    _, folder, _, _, _, environment = case
    done, plan = gpusetup(environment, "plan", folder, "-w", "driver==580.*", "--format", "json")
    assert sorted(plan.get("hosts", ())) == [*H100, *T4], done.stderr


def test_a_credential_that_is_refused_ends_in_words(case):
    name, folder, _, _, _, environment = case
    wrong = {"aws": "AWS_ACCESS_KEY_ID", "azure": "AZURE_SECRET", "gcp": "GCP_ACCESS_TOKEN", "netbox": "NETBOX_TOKEN"}
    done, _ = gpusetup(environment | {wrong[name]: "nobody"}, "facts", folder)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "ansible-inventory -i" in done.stderr
