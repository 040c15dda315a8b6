"""`gpusetup facts`: what it prints, where, and how it ends."""

import sys
from pathlib import Path

HOSTS = Path(__file__).parents[1] / "hosts"
T4 = str(HOSTS / "debian12-t4-open/root")


def test_a_capture_can_be_looked_at(tmp_path, printed):
    live, again = (
        printed(0, "facts", *words, tmp_path / "capture")["hosts"]["localhost"]
        for words in (("--no-candidates", "--capture"), ("--root",))
    )
    for part in ("os", "kernel", "gpus", "driver", "nouveau", "virtualisation", "pythons"):
        assert again[part] == live[part]


def test_an_inventory_is_asked_through_ansible(tmp_path, monkeypatch, printed):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\nansible_become=false\n[all]\na\n"
        f"b gpusetup_simulated_root={T4}\nc ansible_python_interpreter=/no/python\n"
    )
    document = printed(5, "facts", inventory, "--no-candidates", "-e", "gpusetup_become=false")
    assert set(document["hosts"]) == {"a", "b"}
    assert document["ok"] is False
    assert document["hosts"]["b"]["simulated"] is True
    assert document["hosts"]["b"]["gpus"][0]["name"] == "T4"
    assert document["hosts"]["a"]["simulated"] is False
    assert document["failures"]["c"]["reference"] == "GS-309"
