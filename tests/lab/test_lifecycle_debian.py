"""The life of a Debian 12 host with Debian's own driver packages, whose DKMS here compiles tiny modules of the same names.

Newest of the security archive, down to that of backports, down to the older series under its own names, back, away.
"""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import CONFIGURATION, builds_tiny_modules, host_of, lock
from tests.lab.plays import files_below, packages

LIBRARY = {"": "libcuda1", "470": "libnvidia-tesla-470-cuda1"}


def enable_backports(host):
    """As a person does it: Debian's own archive, main alone, of the mirror that the host has."""
    (address,) = {line.split()[1] for line in host.path("/etc/apt/sources.list").read_text().splitlines()
                  if line.startswith("deb ") and line.split()[2] == "bookworm"}  # fmt: skip
    path = host.path("/etc/apt/sources.list.d/backports.list")
    path.write_text(f"deb {address} bookworm-backports main\n")


def versions(host, library):
    """The driver versions that apt can have for a library, newest first."""
    rows = host.ssh("apt-cache", "madison", library).stdout.splitlines()
    return list(dict.fromkeys(row.split("|")[1].strip().partition("-")[0] for row in rows))


def modules(host):
    """The version of each nvidia module on disk, as the kernel would read it."""
    found = {}
    for path in host.path("/lib/modules").glob("*/updates/dkms/nvidia*.ko*"):
        inside = "/" + str(path.relative_to(host.path("/")))
        found[path.name] = host.ssh("modinfo", "-F", "version", inside).stdout.strip()
    return {name: version for name, version in found.items() if version}


def settled(host, folder, inventory, version, step, *again):
    """The host has this driver and no other, compiled and whole; the same once more changes nothing."""
    assert step.code == 0, step.out + step.err
    now = packages(host)
    series = LIBRARY.get(version.partition(".")[0], LIBRARY[""])
    assert now[series].startswith(version), now[series]
    assert not set(LIBRARY.values()) - {series} & set(now), "one series at a time"
    built = modules(host)
    assert built, "no module was built"
    assert set(built.values()) == {version}, built
    held = set(host.ssh("apt-mark", "showhold").stdout.split())
    assert series in held, held
    gpusetup(folder, "drift", inventory, "--format", "json").well()
    second = gpusetup(folder, *again, "--format", "json")
    assert (second.code, host_of(second)["state"], host_of(second)["changed"]) == (0, "unchanged", 0), second.out


@pytest.mark.slow
def test_newest_backports_old_series_back_and_away(lab):
    wishes = {"gpusetup_source": "distro", "gpusetup_components": '["driver"]'}
    host, inventory = lab.one(wishes, flavour="debian12-bare", machine="t4", network="mirror")
    enable_backports(host)
    builds_tiny_modules(host)
    before, files_before = packages(host), files_below(host, *CONFIGURATION)

    first = apply(lab.folder, inventory)
    newest = first.hosts[host.name]["stack"]["driver"]["version"]
    settled(host, lab.folder, inventory, newest, first, "apply", inventory)
    from_backports, old = versions(host, LIBRARY[""])[-1], versions(host, LIBRARY["470"])[0]
    assert from_backports != newest, "nothing to go down to"
    for version in (from_backports, old):
        locked = lock(lab.folder, version, "t4", "debian12")
        down = apply(lab.folder, inventory, "--lock", locked)
        settled(host, lab.folder, inventory, version, down, "apply", inventory, "--lock", locked)

    listed = gpusetup(lab.folder, "rollback", inventory, "--list", "--format", "json").hosts[host.name]
    assert [past["verified"]["verdict"] for past in listed["applies"]] == ["skip"] * 3, "a simulated GPU proves nothing"
    back = gpusetup(lab.folder, "rollback", inventory, "--format", "json")
    settled(host, lab.folder, inventory, from_backports, back, "apply", inventory, "--recorded")
    identity = listed["applies"][0]["id"]
    up = gpusetup(lab.folder, "rollback", inventory, "--to", identity, "--format", "json")
    settled(host, lab.folder, inventory, newest, up, "apply", inventory)

    removed = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert removed.hosts[host.name]["left_over"] == {}, removed.out + removed.err
    assert packages(host) == before
    assert files_below(host, *CONFIGURATION) == files_before
    assert not host.path("/var/lib/gpusetup").exists()
    assert modules(host) == {}
    again = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out
