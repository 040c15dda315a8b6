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


_SOURCE = """\
#include <linux/module.h>
static int __init begin(void) { return 0; }
static void __exit end(void) {}
module_init(begin);
module_exit(end);
MODULE_VERSION("580.95.05");
MODULE_LICENSE("%s");
"""
_DKMS = """\
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="580.95.05"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""


def test_a_module_that_dkms_really_builds(looked_at):
    """A stand-in module by the driver's name: real sources, compiler, DKMS and ELF file."""
    host, facts = looked_at(flavour="debian12", machine="t4")
    source = host.path("/usr/src/nvidia-580.95.05")
    source.mkdir()
    (source / "nvidia.c").write_text(_SOURCE % "Dual MIT/GPL")
    (source / "Makefile").write_text("obj-m := nvidia.o\n")
    (source / "dkms.conf").write_text(_DKMS)

    before = facts("--no-candidates")
    kernel = before["kernel"]["next"]
    assert before["dkms"] == []
    seen = []
    for step in ("add", "build", "install"):
        words = ["-m", "nvidia", "-v", "580.95.05", *(["-k", kernel] if step != "add" else [])]
        host.ssh("dkms", step, *words)
        told = facts("--no-candidates")
        seen.append((told["dkms"][0]["state"], told["dkms"][0]["kernel"]))
    assert seen == [("added", None), ("built", kernel), ("installed", kernel)]
    (installed,) = [item for item in told["kernel"]["installed"] if item["release"] == kernel]
    assert (installed["nvidia"]["version"], installed["nvidia"]["flavour"]) == ("580.95.05", "open")
    assert (told["driver"]["module"], told["driver"]["loaded"], told["driver"]["origins"]) == ("580.95.05", None, [])

    (source / "nvidia.c").write_text("this does not compile\n")
    host.ssh("dkms", "remove", "-m", "nvidia", "-v", "580.95.05", "--all")
    host.ssh("dkms", "add", "-m", "nvidia", "-v", "580.95.05")
    assert host.ssh("dkms", "build", "-m", "nvidia", "-v", "580.95.05", "-k", kernel, check=False).returncode != 0
    broken = facts("--no-candidates")
    assert [item["state"] for item in broken["dkms"]] == ["failed"]
    assert broken["driver"] is None
