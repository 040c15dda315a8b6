"""Facts of real Debian hosts over real SSH: what changes on the host changes in the facts."""

import json

import pytest

from gpusetup.cli.main import main


@pytest.fixture
def looked_at(lab_hosts, lab_inventory, monkeypatch, tmp_path, capsys):
    """Make a host; what comes back beside it reads its facts, each time anew."""
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))

    def made(user="root", **wanted):
        (host,) = lab_hosts(**wanted)
        inventory = lab_inventory([host], {"ansible_user": user})

        def facts(*arguments):
            code = main(["facts", str(inventory), "--format", "json", *arguments])
            document = json.loads(capsys.readouterr().out)
            assert code == 0, document
            return document["hosts"][host.name]

        return host, facts

    return made


def test_nouveau_from_the_initramfs_to_out_of_the_way(looked_at):
    host, facts = looked_at(flavour="debian12", machine="t4")

    before = facts()
    assert before["simulated"] is True
    assert before["kernel"]["running"] == before["kernel"]["next"]
    assert before["nouveau"]["loaded"] is True
    assert before["nouveau"]["in_initramfs"] is True
    assert before["nouveau"]["loads_at_boot"] is True
    assert before["unreadable"] == []

    host.path("/etc/modprobe.d/keep-nouveau-out.conf").write_text("blacklist nouveau\n")
    stale = facts("--no-candidates")["nouveau"]
    assert (stale["blacklisted"], stale["loads_at_boot"]) == (True, True)

    host.ssh("update-initramfs", "-u")
    rebuilt = facts("--no-candidates")["nouveau"]
    assert (rebuilt["loaded"], rebuilt["loads_at_boot"]) == (True, False)
    assert rebuilt["initramfs"][0]["blacklist"] is True

    host.reboot()
    after = facts("--no-candidates")
    assert after["nouveau"]["loaded"] is False
    assert after["boot"]["id"] != before["boot"]["id"]


def test_a_plain_user_gets_facts_and_is_told_what_was_not_read(looked_at):
    host, facts = looked_at("guest", flavour="debian12-bare", machine="v100")
    host.ssh("chmod", "0700", "/etc/modprobe.d")
    told = facts("-e", "gpusetup_become=false")
    assert told["gpus"][0]["name"].startswith("Tesla V100")
    assert "nouveau.blacklisted" in {item["field"] for item in told["unreadable"]}


def test_a_host_captured_over_ssh_has_the_same_facts_again(looked_at, tmp_path, capsys):
    host, facts = looked_at(flavour="debian12", machine="none")
    folder = tmp_path / "captures"
    own = ("-e", "gpusetup_simulated_root=")
    live = facts(*own, "--capture", str(folder))
    assert live["virtualisation"]["container"] == "systemd-nspawn"
    assert main(["facts", "--root", str(folder / host.name), "--format", "json"]) == 0
    again = json.loads(capsys.readouterr().out)["hosts"]["localhost"]
    # A capture tells nobody which machine it was.
    assert (again["boot"]["id"], again["boot"]["machine"]) == (None, None)
    live["boot"] |= {"id": None, "machine": None}
    assert again == live
    written = "".join(path.read_text(errors="replace") for path in (folder / host.name).rglob("*") if path.is_file())
    assert host.name not in written
    assert host.address not in written
