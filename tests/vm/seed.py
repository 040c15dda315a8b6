"""What a cloud hands to a new machine: the user-data as it is, the cloud's own settings, and here also the GPU on its PCI."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import captures
from tests.lab.network import PREFIX, hardware_address
from tests.lab.places import SSH_KEY
from tests.lab.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["asset_tag", "write_seed"]


def write_seed(
    image: Path,
    *,
    name: str,
    address: str,
    machine: str,
    user_data: str,
    host_key: Path,
    faults: Mapping[str, str],
) -> None:
    """Write a NoCloud image. What gpusetup made is its user-data, unchanged; the rest is vendor-data."""
    vendor = {
        "locale": False,
        "disable_root": False,
        "ssh_deletekeys": False,
        "apt": {"preserve_sources_list": True},
        "ssh_keys": {
            "ed25519_private": host_key.read_text(),
            "ed25519_public": host_key.with_suffix(".pub").read_text().strip(),
        },
    }
    net = {
        "version": 1,
        "config": [
            {
                "type": "physical", "name": "eth0", "mac_address": hardware_address(address),
                "subnets": [{"type": "static", "address": f"{address}/{PREFIX}"}],
            }
        ],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "user-data").write_text(user_data)
        (folder / "vendor-data").write_text("#cloud-config\n" + json.dumps(vendor, indent=1) + "\n")
        (folder / "network-config").write_text(json.dumps(net, indent=1) + "\n")
        key = SSH_KEY.with_suffix(".pub").read_text().strip()
        (folder / "meta-data").write_text(
            json.dumps({"instance-id": name, "local-hostname": name, "public-keys": [key]}) + "\n"
        )
        if captures.MACHINES[machine].gpus:
            captures.write(captures.MACHINES[machine], folder / "machine")
            shutil.rmtree(folder / "machine" / "proc")  # the kernel of a virtual machine speaks for itself
        for what, how in faults.items():
            (folder / "faults").mkdir(exist_ok=True)
            (folder / "faults" / what).write_text(how + "\n")
        new = image.with_suffix(".new")
        run(["genisoimage", "-quiet", "-output", new, "-volid", "cidata", "-joliet", "-rock", folder])
        new.replace(image)


def asset_tag(machine: str) -> str:
    """How the firmware names the display that no emulator has: as udev would ask for its driver."""
    for gpu in captures.MACHINES[machine].gpus:
        low = "00" if gpu.display else "02"
        words = [int(word, 16) for word in (gpu.device, gpu.subsystem)]
        return f"pci:v000010DEd{words[0]:08X}sv000010DEsd{words[1]:08X}bc03sc{low}i00"
    return "none"
