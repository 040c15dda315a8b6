"""A vGPU guest's driver from its file and from an address, its whole life: the file is a stand-in, the vGPU a PCI
capability; DKMS is real.
"""

import functools
import http.server

import pytest

from tests.flaky import listening
from tests.lab import runfile
from tests.lab.applying import apply
from tests.lab.network import GATEWAY
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages

OLDER, NEWER = "570.211.01", "580.178.04"


def lend(host):
    """Make the GPU a vGPU: its vendor capability says so."""
    config = bytearray(256)
    config[0x34] = 0x40
    config[0x40:0x45] = b"\x09\x00\x1bVF"
    for device in host.path(f"{SIMULATED_ROOT}/sys/bus/pci/devices").iterdir():
        if (device / "vendor").read_text().strip() == "0x10de":
            (device / "config").write_bytes(bytes(config))


@pytest.mark.slow
def test_from_its_file_to_a_newer_one_and_back(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    lend(host)
    before = packages(host)
    older = runfile.write(host.path("/root"), OLDER)
    older = older.rename(older.with_name(f"NVIDIA-Linux-x86_64-{OLDER}-grid.run"))
    site = lab.folder / "site"
    site.mkdir()
    newer = runfile.write(site, NEWER)
    newer.rename(newer.with_name(f"NVIDIA-Linux-x86_64-{NEWER}-grid.run"))

    def wanted(version, place):
        more = {"gpusetup_vgpu_host": "19.6", "gpusetup_components": '["driver"]'}
        return lab.inventory([host], {"gpusetup_source": f"{place}/NVIDIA-Linux-x86_64-{version}-grid.run", **more})

    plain = apply(lab.folder, lab.inventory([host], {"gpusetup_components": '["driver"]'}))
    assert plain.code in (4, 5), plain.out + plain.err
    # It knows no ranges, as simple servers do not.
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with listening(handler, GATEWAY) as web:
        address = web.url
        for version, place in ((OLDER, "/root"), (NEWER, address)):
            apply(lab.folder, wanted(version, place)).well()
            assert version in host.ssh("nvidia-smi").stdout
            lab.settled(wanted(version, place))

    lab.rolled_back(wanted(NEWER, address))
    assert OLDER in host.ssh("nvidia-smi").stdout
    assert host.path("/var/lib/gpusetup/installers").is_dir(), "a rollback forwards needs it without its server"
    apply(lab.folder, wanted(NEWER, address)).well()
    lab.removed(wanted(NEWER, address))
    assert not host.path("/usr/bin/nvidia-uninstall").exists()
    assert not host.path("/var/lib/gpusetup/installers").exists()
    assert packages(host) == before
