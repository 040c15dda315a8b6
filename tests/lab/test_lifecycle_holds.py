"""Holds that hold: what moves packages by itself, run for real, moves nothing of the stack; switches of source and branch do."""

import re

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of, rpms, stand_ins
from tests.lab.plays import files_below, packages

pytestmark = pytest.mark.slow
ALLOW_EVERYTHING = 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };\nUnattended-Upgrade::MinimalSteps "false";\n'
DNF = ("/etc/dnf", "/etc/yum.repos.d", "/etc/pki/rpm-gpg")
AUTOMATIC = "import sys; from dnf.automatic.main import main; sys.exit(main(['--installupdates']))"
"""What the dnf-automatic command runs; Debian's dnf carries the code without the command."""


def of_the_stack(host):
    return {name: version for name, version in packages(host).items() if "nvidia" in name or name.startswith("libcuda")}


def test_unattended_upgrades_leaves_the_stack_and_a_held_kernel_alone(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    inventory = lab.asking(host, gpusetup_driver="==580.142", gpusetup_hold_kernel="true")
    host.ssh("apt-get", "update")
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "install", "unattended-upgrades")
    host.path("/etc/apt/apt.conf.d/99everything").write_text(ALLOW_EVERYTHING)
    apply(lab.folder, inventory).well()
    held = host.ssh("apt-mark", "showhold").stdout.split()
    assert {"linux-image-amd64", "linux-headers-amd64"} <= set(held), held
    stack = of_the_stack(host)
    assert set(stack) <= set(held), set(stack) - set(held)

    ran = host.ssh("unattended-upgrade", "-v", "--debug").stdout
    chosen = [line for line in ran.splitlines() if line.startswith("Packages that will be upgraded")]
    assert chosen or "No packages found that can be upgraded" in ran, ran
    assert not [line for line in chosen if "nvidia" in line or "linux-" in line], chosen
    assert of_the_stack(host) == stack
    assert drift(lab.folder, inventory)[1] == {}

    host.ssh("apt-mark", "unhold", *held)
    pins = host.path("/etc/apt/preferences.d").glob("*gpusetup*")
    for path in (host.path("/etc/apt/apt.conf.d/52gpusetup-unattended-upgrades"), *pins):
        path.unlink()
    would = host.ssh("unattended-upgrade", "-v", "--dry-run").stdout + host.ssh("apt-get", "-s", "full-upgrade").stdout
    moved = re.search(r"Inst (nvidia-\S+|libcuda1) \[580\.142", would)
    assert moved, "without our holds it would have moved: the run above proves something\n" + would


def test_dnf_automatic_leaves_the_stack_alone(lab):
    (host,) = lab.hosts(flavour="rocky9-like", machine="t4")
    epel = lab.repositories.beside("epel", f"{lab.repositories.rocky}/epel")
    inventory = lab.asking(host, gpusetup_driver="==580.142", **epel)
    untouched = rpms(host), files_below(host, *DNF)
    apply(lab.folder, inventory).well()
    before = rpms(host)
    assert before["nvidia-driver-cuda"].startswith("580.142")
    host.ssh("/usr/bin/python3", "-c", AUTOMATIC)
    assert rpms(host) == before
    assert drift(lab.folder, inventory)[1] == {}

    host.ssh("dnf", "versionlock", "clear")
    host.ssh("/usr/bin/python3", "-c", AUTOMATIC)
    assert rpms(host) != before, "without our locks it would have moved: the run above proves something"
    assert host_of(lab.removed(inventory))["left_over"] == {}
    assert rpms(host) == untouched[0]
    differ = {path for path, _ in set(untouched[1].items()) ^ set(files_below(host, *DNF).items())}
    assert not differ, "module streams and repositories are as they were"


def test_sources_branches_and_flavours_are_exchanged_as_a_whole(lab):
    """Ubuntu's own archive ↔ NVIDIA's repository, names with the branch ↔ a pinning package, open ↔ proprietary, and away."""
    host, inventory = lab.one(stand_ins(lab.repositories), flavour="ubuntu2404-like", machine="t4")
    before = packages(host)
    for source, branch in (
        ("distro", "570"),
        ("nvidia", "570"),
        ("nvidia", "590"),
        ("nvidia", "535"),
        ("distro", "580"),
    ):
        wish = {"gpusetup_components": '["driver"]', "gpusetup_driver": f"=={branch}.*"}
        where_from = {"gpusetup_source": "distro"} if source == "distro" else lab.repositories.variables
        inventory = lab.inventory([host], {**wish, **where_from})
        step = apply(lab.folder, inventory)
        where = f"{source} {branch}"
        assert step.code == 0, where + step.out + step.err
        told = host_of(step)["stack"]["driver"]
        assert told["branch"] == branch, f"asking for {branch} must not give {told}"
        stack = {name: version for name, version in of_the_stack(host).items() if version[:4].rstrip(".").isdigit()}
        alien = {
            name: version
            for name, version in stack.items()
            if version.startswith("5") and not version.startswith(branch)
        }
        assert not alien, f"{where}: {alien}"
        assert told["version"] in host.ssh("nvidia-smi").stdout
        lab.settled(inventory)
    gpusetup(lab.folder, "remove", inventory, "--yes")
    assert packages(host) == before
