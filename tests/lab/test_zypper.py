"""A SUSE-like host through the command line: real zypper, libzypp and rpm, stand-in packages (see README.md)."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of, rpms, stand_ins
from tests.lab.plays import files_below

pytestmark = pytest.mark.long
OLDER, NEWER = "580.142", "595.91.07"
CONFIGURATION = ("/etc/zypp", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/default", "/etc/systemd/system")
HEADERS, NEXT_HEADERS = "6.4.0-150600.23.47.2", "6.4.0-150600.23.60.1"


def names(version):
    """What belongs to a driver: the generation that its branch is of, and what is of both."""
    generation = "G07" if version.startswith("59") else "G06"
    own = ("open-driver", "common", "compute", "compute-utils")
    return (*(f"nvidia-{name}-{generation}" for name in own), "libnvidia-ml", "nvidia-persistenced", "nvidia-modprobe")


def locked(host):
    text = host.path("/etc/zypp/locks").read_text() if host.path("/etc/zypp/locks").exists() else ""
    return {line.split(": ")[1] for line in text.splitlines() if line.startswith("solvable_name: ")}


def arguments(host):
    return host.path("/boot/grub2/grub.cfg").read_text()


def stands(host, version):
    """The whole driver of that version and no other is there, locked and loaded."""
    now = rpms(host)
    stack = {name: now[name] for name in now if "nvidia" in name}
    assert stack == dict.fromkeys(stack, f"{version}-1")
    assert set(names(version)) <= set(stack) <= locked(host)
    assert version in host.ssh("nvidia-smi").stdout


def test_one_hosts_whole_life(lab):
    """Looked at, applied, again, up, down where a script fails, rolled back, mended, updated by others, removed."""
    host, inventory = lab.one(stand_ins(lab.repositories), flavour="leap15-like", machine="t4")
    untouched = rpms(host), files_below(host, *CONFIGURATION), arguments(host)

    def asked(version, *words):
        return apply(lab.folder, inventory, "-w", f"driver=={version}", *words)

    looked = asked(OLDER, "--check")
    assert (rpms(host), files_below(host, *CONFIGURATION), arguments(host)) == untouched, "a look changes nothing"
    done = asked(OLDER)
    assert (done.code, host_of(done)["state"]) == (0, "done"), done.out + done.err
    stands(host, OLDER)
    first = rpms(host)
    assert first["kernel-default-devel"] == HEADERS, "the headers of this kernel, not the newest"
    for part in ("actions", "changed", "removals", "reboot"):
        assert host_of(looked)[part] == host_of(done)[part], "apply does what the look said"
    for word in ("modprobe.blacklist=nouveau,nova_core", "rd.driver.blacklist=nouveau"):
        assert word in arguments(host), "one is ours, one is of the driver's own package"
    lab.settled(inventory, "-w", f"driver=={OLDER}")

    up = asked(NEWER)
    assert up.code == 0, up.out + up.err
    stands(host, NEWER)
    newer, held = rpms(host), locked(host)

    host.break_packages("nvidia-compute-utils-G06", "fail")
    failed = asked(OLDER)
    assert (failed.code, host_of(failed)["state"]) == (7, "failed"), failed.out + failed.err
    told = host_of(failed)["failure"]
    assert "nvidia-compute-utils-G06" in told["note"], told
    assert "zypper ended with" in told["note"], told
    assert "the host has its previous packages" in told["note"], told
    assert (rpms(host), locked(host)) == (newer, held)
    assert drift(lab.folder, inventory)[1] == {}, "it stands on what was applied before, whole"
    host.break_packages("nvidia-compute-utils-G06", "")

    lab.rolled_back(inventory)
    stands(host, OLDER)
    assert rpms(host) == first, "down again is the same set as before"

    host.ssh("zypper", "removelock", "nvidia-persistenced")
    host.ssh("rpm", "-e", "--nodeps", "nvidia-persistenced")
    lost, found = drift(lab.folder, inventory)
    assert (lost.code, found["package-nvidia-persistenced"]) == (9, "not installed"), found
    gpusetup(lab.folder, *host_of(lost)["mend"].split()[1:]).well()
    stands(host, OLDER)

    host.ssh("zypper", "--non-interactive", "update")
    stands(host, OLDER)
    side_by_side = {f"kernel-default-devel-{version}" for version in (HEADERS, NEXT_HEADERS)}
    assert side_by_side <= set(rpms(host)), "zypper keeps both, and the module is still built for the old one"
    assert drift(lab.folder, inventory)[1] == {}

    removed = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert (removed.code, host_of(removed)["state"]) == (9, "pending-reboot"), removed.out + removed.err
    assert host_of(removed)["left_over"] == {}, removed.out
    assert (rpms(host), files_below(host, *CONFIGURATION), arguments(host)) == untouched
    assert not host.path("/var/lib/gpusetup").exists()


def test_what_somebody_else_locked_is_not_moved(lab):
    host, inventory = lab.one(
        stand_ins(lab.repositories, gpusetup_driver=f"=={OLDER}"), flavour="leap15-like", machine="t4"
    )
    url = lab.repositories.url("opensuse15")
    host.ssh(
        "zypper", "-n", "--no-gpg-checks", "--plus-repo", url, "install", "--oldpackage", "nvidia-modprobe=580.159.04-1"
    )
    host.ssh("zypper", "addlock", "nvidia-modprobe")
    before = rpms(host)
    refusal = lab.refused(inventory)
    assert refusal["reference"] == "GS-469"
    assert "nvidia-modprobe" in refusal["message"]
    assert locked(host) == {"nvidia-modprobe"}
    assert rpms(host) == before
