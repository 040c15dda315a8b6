"""A vGPU guest's driver from its file, its whole life: the file is a stand-in, the vGPU a PCI capability; DKMS is real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab import runfile
from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.host import Host

OLDER, NEWER, FOREIGN = "570.211.01", "580.178.04", "595.71.05"


def lend(host: Host) -> None:
    """Make the GPU a vGPU: its vendor capability says so."""
    config = bytearray(256)
    config[0x34] = 0x40
    config[0x40:0x45] = b"\x09\x00\x1bVF"
    for device in host.path(f"{SIMULATED_ROOT}/sys/bus/pci/devices").iterdir():
        if (device / "vendor").read_text().strip() == "0x10de":
            (device / "config").write_bytes(bytes(config))


@pytest.mark.slow
def test_from_its_file_to_a_newer_one_and_back(
    lab_hosts: Callable[..., list[Host]], lab_inventory: Callable[..., Path], tmp_path: Path
) -> None:
    (host,) = lab_hosts(flavour="debian12", machine="t4", network="mirror")
    lend(host)
    before = packages(host)
    files = {}
    for version in (OLDER, NEWER, FOREIGN):
        made = runfile.write(host.path("/root"), version)
        files[version] = made.rename(made.with_name(f"NVIDIA-Linux-x86_64-{version}-grid.run"))

    def wanted(version: str) -> Path:
        source = f"/root/{files[version].name}"
        return lab_inventory(
            [host],
            {"gpusetup_source": source, "gpusetup_vgpu_host": "19.6", "gpusetup_components": '["driver"]'},
        )

    plain = apply(tmp_path, lab_inventory([host], {"gpusetup_components": '["driver"]'}))
    assert plain.code in (4, 5), plain.out + plain.err
    foreign = apply(tmp_path, wanted(FOREIGN))
    assert (foreign.code, host_of(foreign)["refusals"][0]["reference"]) == (5, "GS-354"), foreign.out
    assert packages(host) == before

    for version in (OLDER, NEWER):
        done = apply(tmp_path, wanted(version))
        assert done.code == 0, done.out + done.err
        assert version in host.ssh("nvidia-smi").stdout
        again = apply(tmp_path, wanted(version))
        assert (again.code, host_of(again)["state"]) == (0, "unchanged"), again.out
        assert drift(tmp_path, wanted(version))[1] == {}

    back = gpusetup(tmp_path, "rollback", wanted(NEWER), "--format", "json")
    assert back.code == 0, back.out + back.err
    assert OLDER in host.ssh("nvidia-smi").stdout
    gone = gpusetup(tmp_path, "remove", wanted(NEWER), "--yes", "--format", "json")
    assert gone.code in (0, 9), gone.out + gone.err
    assert not host.path("/usr/bin/nvidia-uninstall").exists()
    assert packages(host) == before
