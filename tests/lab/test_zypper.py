"""A SUSE-like host through the command line: real zypper, libzypp and rpm, stand-in packages (see README.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.applying import apply
from tests.lab.lifecycle import drift, host_of, rpms, stand_ins
from tests.lab.plays import files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.applying import Answer
    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

DRIVER = "580.142"
CONFIGURATION = ("/etc/zypp", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/default", "/etc/systemd/system")
HEADERS, NEXT_HEADERS = "6.4.0-150600.23.47.2", "6.4.0-150600.23.60.1"


NAMES = {
    "nvidia-open-driver-G06",
    "nvidia-common-G06",
    "nvidia-compute-G06",
    "nvidia-compute-utils-G06",
    "libnvidia-ml",
    "nvidia-modprobe",
    "nvidia-persistenced",
}


def locked(host: Host) -> set[str]:
    text = host.path("/etc/zypp/locks").read_text() if host.path("/etc/zypp/locks").exists() else ""
    return {line.split(": ")[1] for line in text.splitlines() if line.startswith("solvable_name: ")}


def arguments(host: Host) -> str:
    return host.path("/boot/grub2/grub.cfg").read_text()


def stands(host: Host, version: str) -> None:
    """The whole driver of that version and no other is there, locked and loaded."""
    now = rpms(host)
    stack = {name: now[name] for name in now if "nvidia" in name}
    assert stack == dict.fromkeys(stack, f"{version}-1")
    assert NAMES <= set(stack) <= locked(host)
    assert version in host.ssh("nvidia-smi").stdout


def test_apply_again_and_what_an_update_leaves_alone(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    tmp_path: Path,
) -> None:
    (host,) = lab_hosts(flavour="leap15-like", machine="t4")
    inventory = lab_inventory([host], stand_ins(lab_repositories))
    untouched = rpms(host), files_below(host, *CONFIGURATION), arguments(host)

    def asked(version: str, *words: str) -> Answer:
        return apply(tmp_path, inventory, "-w", f"driver=={version}", *words)

    looked = asked(DRIVER, "--check")
    assert (rpms(host), files_below(host, *CONFIGURATION), arguments(host)) == untouched, "a look changes nothing"
    done = asked(DRIVER)
    assert (done.code, host_of(done)["state"]) == (0, "done"), done.out + done.err
    stands(host, DRIVER)
    first = rpms(host)
    assert first["kernel-default-devel"] == HEADERS, "the headers of this kernel, not the newest"
    for part in ("actions", "changed", "removals", "reboot"):
        assert host_of(looked)[part] == host_of(done)[part], "apply does what the look said"
    for word in ("modprobe.blacklist=nouveau,nova_core", "rd.driver.blacklist=nouveau"):
        assert word in arguments(host), "one is ours, one is of the driver's own package"
    again = asked(DRIVER)
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out
    assert drift(tmp_path, inventory)[1] == {}

    host.ssh("zypper", "--non-interactive", "update")
    stands(host, DRIVER)
    side_by_side = {f"kernel-default-devel-{version}" for version in (HEADERS, NEXT_HEADERS)}
    assert side_by_side <= set(rpms(host)), "zypper keeps both, and the module is still built for the old one"
    assert drift(tmp_path, inventory)[1] == {}


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
    before = rpms(host)
    refused = apply(tmp_path, inventory)
    assert refused.code == 5, refused.out + refused.err
    (refusal,) = host_of(refused)["refusals"]
    assert refusal["reference"] == "GS-469"
    assert "nvidia-modprobe" in refusal["message"]
    assert locked(host) == {"nvidia-modprobe"}
    assert rpms(host) == before
