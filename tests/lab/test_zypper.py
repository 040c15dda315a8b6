"""A SUSE-like host through the command line: real zypper, libzypp and rpm, stand-in packages (see README.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.applying import apply
from tests.lab.lifecycle import drift, host_of, stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

DRIVER = "580.142"
NAMES = (
    "nvidia-open-driver-G06",
    "nvidia-compute-utils-G06",
    "nvidia-compute-G06",
    "libnvidia-ml",
    "nvidia-persistenced",
)


def packages(host: Host) -> dict[str, str]:
    text = host.ssh("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n").stdout
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, version = line.split()
        if name != "gpg-pubkey":
            found[name] = version
    return found


def locked(host: Host) -> set[str]:
    text = host.path("/etc/zypp/locks").read_text() if host.path("/etc/zypp/locks").exists() else ""
    return {line.split(": ")[1] for line in text.splitlines() if line.startswith("solvable_name: ")}


def test_apply_again_and_what_an_update_leaves_alone(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    tmp_path: Path,
) -> None:
    (host,) = lab_hosts(flavour="leap15-like", machine="t4")
    inventory = lab_inventory([host], stand_ins(lab_repositories))

    first = _applied(host, tmp_path, inventory, DRIVER)
    assert packages(host)["kernel-default-devel"] == "6.4.0-150600.23.47.2", (
        "the headers of this kernel, not the newest"
    )
    again = apply(tmp_path, inventory, "-w", f"driver=={DRIVER}")
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out
    assert drift(tmp_path, inventory)[1] == {}

    host.ssh("zypper", "--non-interactive", "update")
    assert {name: packages(host)[name] for name in NAMES} == {name: first[name] for name in NAMES}, "an update moved it"
    assert not [name for name in drift(tmp_path, inventory)[1] if "nvidia" in name]


def _applied(host: Host, folder: Path, inventory: Path, version: str) -> dict[str, str]:
    done = apply(folder, inventory, "-w", f"driver=={version}")
    assert (done.code, host_of(done)["state"]) == (0, "done"), done.out + done.err
    now = packages(host)
    assert {name: now[name] for name in NAMES} == dict.fromkeys(NAMES, f"{version}-1")
    assert locked(host) >= set(NAMES)
    assert host.ssh("nvidia-smi", "-L").stdout.startswith("GPU 0:")
    return now


def test_what_somebody_else_locked_is_not_moved(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    tmp_path: Path,
) -> None:
    (host,) = lab_hosts(flavour="leap15-like", machine="t4")
    inventory = lab_inventory([host], stand_ins(lab_repositories, gpusetup_driver=f"=={DRIVER}"))
    url = lab_repositories.url("opensuse15")
    host.ssh(
        "zypper", "-n", "--no-gpg-checks", "--plus-repo", url, "install", "--oldpackage", "nvidia-modprobe=580.159.04-1"
    )
    host.ssh("zypper", "addlock", "nvidia-modprobe")
    before = packages(host)
    refused = apply(tmp_path, inventory)
    assert refused.code == 5, refused.out + refused.err
    (refusal,) = host_of(refused)["refusals"]
    assert refusal["reference"] == "GS-469"
    assert "nvidia-modprobe" in refusal["message"]
    assert locked(host) == {"nvidia-modprobe"}
    assert packages(host) == before
