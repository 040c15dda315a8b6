"""The life of a real Debian 12 host with Debian's own driver packages: every module is compiled, nothing is a stand-in.

Newest of the security archive, down to that of backports, down to the older series under its own names, back, away.
"""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import CONFIGURATION, lock
from tests.lab.plays import files_below, packages

LIBRARY = {"": "libcuda1", "470": "libnvidia-tesla-470-cuda1"}
HOUR = 3600.0


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
    (told,) = second.hosts.values()
    assert (second.code, told["state"], told["changed"]) == (0, "unchanged", 0), second.out


@pytest.mark.slow
def test_newest_backports_old_series_back_and_away(lab_hosts, lab_inventory, tmp_path):
    (host,) = lab_hosts(flavour="debian12-bare", machine="t4", network="mirror")
    enable_backports(host)
    inventory = lab_inventory([host], {"gpusetup_source": "distro", "gpusetup_components": '["driver"]'})
    before, files_before = packages(host), files_below(host, *CONFIGURATION)

    first = apply(tmp_path, inventory, timeout=HOUR)
    newest = first.hosts[host.name]["stack"]["driver"]["version"]
    settled(host, tmp_path, inventory, newest, first, "apply", inventory)
    from_backports, old = versions(host, LIBRARY[""])[-1], versions(host, LIBRARY["470"])[0]
    assert from_backports != newest, "nothing to go down to"
    for version in (from_backports, old):
        locked = lock(tmp_path, version, "t4", "debian12")
        down = apply(tmp_path, inventory, "--lock", locked, timeout=HOUR)
        settled(host, tmp_path, inventory, version, down, "apply", inventory, "--lock", locked)

    listed = gpusetup(tmp_path, "rollback", inventory, "--list", "--format", "json").hosts[host.name]
    assert [past["verified"]["verdict"] for past in listed["applies"]] == ["skip"] * 3, "a simulated GPU proves nothing"
    back = gpusetup(tmp_path, "rollback", inventory, "--format", "json", timeout=HOUR)
    settled(host, tmp_path, inventory, from_backports, back, "apply", inventory, "--recorded")
    identity = listed["applies"][0]["id"]
    up = gpusetup(tmp_path, "rollback", inventory, "--to", identity, "--format", "json", timeout=HOUR)
    settled(host, tmp_path, inventory, newest, up, "apply", inventory)

    removed = gpusetup(tmp_path, "remove", inventory, "--yes", "--format", "json", timeout=HOUR)
    assert removed.hosts[host.name]["left_over"] == {}, removed.out + removed.err
    assert packages(host) == before
    assert files_below(host, *CONFIGURATION) == files_before
    assert not host.path("/var/lib/gpusetup").exists()
    assert modules(host) == {}
    again = gpusetup(tmp_path, "remove", inventory, "--yes", "--format", "json")
    told = again.hosts[host.name]
    assert (again.code, told["state"], told["changed"]) == (0, "unchanged", 0), again.out
