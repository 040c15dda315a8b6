"""One run reads its inventory once, and every Ansible process of it sees what it would have read by itself."""

import json
import os
import subprocess
import sys

import pytest

from gpusetup.drive.inventory_memory import InventoryMemory
from tests.lab.process import run
from tests.modules.stand_ins import write
from tests.simulated_fleet import SimulatedFleet
from tests.stored import stored

SECRET, PASSWORD = "vault-word-7f3c", "in-the-vault-51ab"
HOSTS = stored("handed_hosts.txt")
SCRIPT = """#!{python}
import json, sys
from pathlib import Path
with Path(__file__).parents[1].joinpath("asked.log").open("a") as log:
    log.write("x")
hosts = {{f"dyn{{n}}": {{"gpusetup_domain": f"rack-{{n % 2}}", "ansible_password": "told-by-script"}} for n in range(5)}}
print(json.dumps({{"dynamic": {{"hosts": list(hosts), "vars": {{"clash": "script"}}}}, "_meta": {{"hostvars": hosts}}}}))
"""
BUILT = """
plugin: ansible.builtin.constructed
strict: false
groups: {even: "inventory_hostname[-1] in '02468'"}
compose: {composed: "'x-' ~ inventory_hostname"}
keyed_groups: [{key: gpusetup_domain | default('none'), prefix: domain}]
"""
LOOK = stored("inventory-look.py.txt")


@pytest.fixture
def inventory(tmp_path):
    """A folder with everything that inventories are made of: YAML, INI, a program, a plugin, vaults."""
    folder = tmp_path / "inventory"
    (folder / "group_vars" / "all").mkdir(parents=True)
    (folder / "host_vars").mkdir()
    key = tmp_path / "key"
    key.write_text(SECRET)
    vault = [sys.executable, "-m", "ansible", "vault"]
    argv = [*vault, "encrypt_string", "--vault-password-file", key, PASSWORD]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    vaulted = "\n".join(" " * 16 + line.strip() for line in told.splitlines()[1:])
    (folder / "01-hosts.yml").write_text(HOSTS.format(vaulted=vaulted))
    (folder / "02-more.ini").write_text(
        "[rack-b]\ngpu06 ansible_port=2022 said_by='host six'\n[more:children]\nrack-a\n[more:vars]\nclash=more\nlist=[1, 2]\n"
    )
    write(folder, {"03-script": SCRIPT.format(python=sys.executable)}, 0o755)
    (folder / "04-built.yml").write_text(BUILT)
    whole = folder / "group_vars" / "all" / "vault.yml"
    whole.write_text(f"from_group_vars: {PASSWORD}-whole\n")
    subprocess.run([*vault, "encrypt", "--vault-password-file", key, whole], check=True, capture_output=True)
    (folder / "group_vars" / "slow.yml").write_text("clash: slow-file\n")
    (folder / "host_vars" / "gpu01.yml").write_text("clash: host-file\n")
    return folder


def look(source, handed, *others):
    told, descriptors = handed.to_processes(str(source), ())
    environment = dict(os.environ) | {"GPUSETUP_EVENTS": str(source.parent / "run" / "events.jsonl")} | told
    argv, how = [sys.executable, "-c", LOOK, str(source), *map(str, others)], {"capture_output": True, "text": True}
    done = subprocess.run(argv, env=environment, pass_fds=descriptors, check=False, **how)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def memory(handed):
    return os.pread(handed._memory.fileno(), 1 << 24, 0)


def test_what_is_handed_on_is_what_ansible_would_read(inventory):
    handed = InventoryMemory()
    first, said = look(inventory, handed)
    assert "why: \n" in said
    second, _ = look(inventory, handed)
    assert (inventory.parent / "asked.log").read_text() == "x", "the program was asked once"
    assert first["hosts"].keys() == second["hosts"].keys()
    assert first == second
    rendered = second["hosts"]["gpu05"]["rendered"]
    assert rendered["ansible_become_password"][1] == PASSWORD
    assert rendered["from_group_vars"][1] == f"{PASSWORD}-whole"
    assert PASSWORD.encode() not in memory(handed), "what a vault holds stays encrypted"
    assert SECRET.encode() not in memory(handed)


def test_the_overlay_of_a_run_is_its_own_each_time(inventory, tmp_path):
    def overlay(name, *hosts):
        folder = tmp_path / "run" / name
        folder.mkdir(parents=True)
        named = {host: {} for host in hosts}
        document = {"all": {"children": {"gpusetup_selected": {"hosts": named, "vars": {"gpu_x": "{{ clash }}"}}}}}
        (folder / "hosts.json").write_text(json.dumps(document))
        return folder

    one, other = overlay("overlay-only", "gpu01", "alone", "vanished"), overlay("overlay", "gpu03", "dyn1")
    handed = InventoryMemory()
    look(inventory, handed, one)
    second, _ = look(inventory, handed, other)
    alone, _ = look(inventory, InventoryMemory(), other)
    assert second["groups"]["gpusetup_selected"]["hosts"] == ["gpu03", "dyn1"]
    assert "vanished" not in second["hosts"]
    # Below `all` the overlay's group comes last here, first there: the order is all that differs.
    assert _without_order(second) == _without_order(alone)


def _without_order(value):
    if isinstance(value, dict):
        return {key: _without_order(item) for key, item in value.items()}
    return sorted(map(_without_order, value), key=repr) if isinstance(value, list) else value


def test_what_cannot_be_handed_on_is_read_again(inventory, tmp_path, monkeypatch):
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "odd.py").write_text(
        "from ansible.plugins.inventory import BaseInventoryPlugin\n"
        "DOCUMENTATION = 'name: odd\\nshort_description: odd\\noptions: {}'\n"
        "class Odd:\n    pass\n"
        "class InventoryModule(BaseInventoryPlugin):\n    NAME = 'odd'\n"
        "    def verify_file(self, path):\n        return path.endswith('odd.yml')\n"
        "    def parse(self, inventory, loader, path, cache=True):\n"
        "        inventory.add_host('odd1')\n"
        "        getattr(inventory, '__wrapped__', inventory).hosts['odd1'].vars['thing'] = Odd()\n"
    )
    (inventory / "05-odd.yml").write_text("")
    monkeypatch.setenv("ANSIBLE_INVENTORY_PLUGINS", str(plugins))
    monkeypatch.setenv("ANSIBLE_INVENTORY_ENABLED", "odd,script,auto,yaml,ini")
    handed = InventoryMemory()
    first, said = look(inventory, handed)
    assert "Odd" in said
    assert memory(handed) == b""
    second, _ = look(inventory, handed)
    assert first["hosts"].keys() == second["hosts"].keys()
    assert (inventory.parent / "asked.log").read_text() == "xx"


def test_an_inventory_that_is_named_past_us_is_ansibles_alone():
    assert InventoryMemory().to_processes("fleet.ini", ("-i", "other.ini")) == ({}, ())
    assert InventoryMemory().to_processes(None, ()) == ({}, ())


@pytest.mark.parametrize("command", ["facts", "verify", "apply"])
def test_a_run_asks_a_slow_inventory_once_however_many_processes_it_has(tmp_path, command):
    fleet = SimulatedFleet(tmp_path / "fleet", 12, kinds=("ubuntu24.04-h200-keep",))
    shared = {"ansible_user": "root", "ansible_python_interpreter": "/usr/bin/python3", "gpusetup_become": False}
    shared |= {"ansible_ssh_executable": str(fleet.folder / "ssh"), "site_token": "told-by-script"}
    told = {"fleet": {"hosts": fleet.names, "vars": shared}, "_meta": {"hostvars": {}}}
    script = f"#!/bin/sh\nprintf x >> {tmp_path}/asked.log\ncat <<'END'\n{json.dumps(told)}\nEND\n"
    write(tmp_path, {"dynamic": script}, 0o755)
    state = tmp_path / "state"
    environment = dict(os.environ) | {"GPUSETUP_STATE": str(state), "GPUSETUP_SHARD_SIZE": "4"}
    words = ["--format", "json", *(["--verify", "never"] if command == "apply" else [])]
    done = run(
        [sys.executable, "-m", "gpusetup", command, tmp_path / "dynamic", *words],
        env=environment,
        check=False,
        timeout=900,
    )
    assert len(json.loads(done.stdout)["hosts"]) == 12, done.stderr
    (folder,) = (state / "runs").iterdir()
    log = (folder / "ansible.log").read_text()
    assert log.count("==== ") >= 3, "several processes"
    assert (tmp_path / "asked.log").read_text() == "x"
    kept = [path for path in folder.rglob("*") if path.is_file() and b"told-by-script" in path.read_bytes()]
    assert not kept, "what the inventory said is on no disk"
