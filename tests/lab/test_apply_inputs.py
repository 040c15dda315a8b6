"""What is wanted, from every place that can say it: gpusetup.toml, a vault, a plan made before, a lock, a hostile hand."""

import json

import pytest

from tests.lab.applying import apply, gpusetup, vault
from tests.lab.plays import loaded, packages


@pytest.mark.slow
def test_a_file_beside_the_inventory_a_vault_and_a_plan(lab_hosts, lab_inventory, lab_repositories, tmp_path):
    """Two hosts want what gpusetup.toml says, one of them something else; the sudo password is in a vault."""
    like = {"flavour": "ubuntu2404-like", "machine": "t4"}
    plain, own = lab_hosts(plain=like, own=like)
    common = {**lab_repositories.variables, "ansible_user": "ops"}
    inventory = lab_inventory([plain, own], common, {own: {"gpusetup_driver": "570.*"}})
    (tmp_path / "gpusetup.toml").write_text('components = ["driver"]\ndriver = "580.*"\n')
    password = "the vault's own password"
    vault(tmp_path / "group_vars/all/vault.yml", "ansible_become_password: lab-password\n", password)
    asked = {"stdin": f"{password}\n"}

    before = [packages(host) for host in (plain, own)]
    made = tmp_path / "plan.json"
    plan = gpusetup(
        tmp_path, "plan", inventory, "--ask-vault-pass", "--exit-code", "--format", "json", "--out", made, **asked
    )
    assert plan.code == 9, plan.out + plan.err
    planned = json.loads(made.read_text())["hosts"]
    assert planned[plain.name]["stack"]["driver"]["branch"] == "580"
    assert planned[own.name]["stack"]["driver"]["branch"] == "570"
    assert [packages(host) for host in (plain, own)] == before

    wrong = apply(tmp_path, inventory, "--ask-vault-pass", "--plan", made, stdin="something else\n")
    assert wrong.code in {3, 5, 6}, wrong.out + wrong.err
    assert [packages(host) for host in (plain, own)] == before

    done = apply(tmp_path, inventory, "--ask-vault-pass", "--plan", made, **asked).well()
    assert "580." in loaded(plain)
    assert "570." in loaded(own)
    again = apply(tmp_path, inventory, "--ask-vault-pass", **asked)
    assert {outcome["state"] for outcome in again.hosts.values()} == {"unchanged"}, again.out
    kept = "".join(path.read_text(errors="replace") for path in (tmp_path / "state").rglob("*") if path.is_file())
    for word in ("lab-password", "the vault's own password", "something else"):
        assert word not in kept + done.out + done.err + wrong.out + wrong.err + plan.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpusetup_driver", "580.*; touch {owned}"), ("gpusetup_source", "http://x/$(touch {owned})"),
        ("gpusetup_python_path", "/opt/x;touch {owned}"), ("gpusetup_source_key", "/etc/`touch {owned}`"),
        ("gpusetup_containers", "docker;touch {owned}"), ("gpusetup_signing_key", "/root/$(touch {owned})"),
    ],
)  # fmt: skip
def test_what_an_inventory_says_reaches_no_shell(tmp_path, name, value):
    """Refused as bad input, on this machine itself, before any host is asked for anything but its facts."""
    owned = tmp_path / "owned"
    inventory = tmp_path / "inventory.ini"
    value = value.replace("{owned}", str(owned))
    inventory.write_text(f"[all]\nhere ansible_connection=local\n[all:vars]\n{name}={json.dumps(value)}\n")
    done = apply(tmp_path, inventory, "--check")
    assert done.code == 3, done.out + done.err
    assert name in json.dumps(done.document["error"])
    assert not owned.exists()
