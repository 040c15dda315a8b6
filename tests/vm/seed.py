"""What a cloud hands to a new machine: the user-data as it is, the cloud's own settings, and here also the GPU on its PCI."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab import captures
from tests.lab.network import PREFIX, hardware_address
from tests.lab.places import SSH_KEY
from tests.lab.process import run

MOUNTED = "/run/gpusetup-lab/seed"


def write_seed(
    image: Path, *, name: str, address: str, machine: str, user_data: str, host_key: Path, faults: Mapping[str, str]
) -> None:
    """Write the seed of a machine on the lab's bridge. What gpusetup made is its user-data, unchanged; the rest is vendor-data."""
    vendor = {
        "locale": False, "disable_root": False, "ssh_deletekeys": False, "apt": {"preserve_sources_list": True},
        "ssh_keys": _host_key(host_key),
    }  # fmt: skip
    key = SSH_KEY.with_suffix(".pub").read_text().strip()
    documents = {
        "user-data": user_data, "vendor-data": cloud_config(vendor),
        "network-config": fixed_address(hardware_address(address), f"{address}/{PREFIX}"),
        "meta-data": json.dumps({"instance-id": name, "local-hostname": name, "public-keys": [key]}) + "\n",
    }  # fmt: skip
    write_image(image, documents, machine, faults)


def cloud_documents(name: str, user: str, key: str, host_key: Path, *, simulates: bool) -> dict[str, str]:
    """What a cloud's own image is given: a user and root who may log in by key, and the host key that they will meet."""
    own = {"name": user, "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash", "ssh_authorized_keys": [key]}
    config: dict[str, Any] = {
        "users": ["default", own], "disable_root": False, "ssh_authorized_keys": [key], "ssh_deletekeys": True,
        "ssh_keys": _host_key(host_key),
    }  # fmt: skip
    documents = {}
    if simulates:  # at every boot, before anything asks for a display's driver
        mounts = f"mkdir -p {MOUNTED} && mount -o ro LABEL=cidata {MOUNTED}; sh {MOUNTED}/start"
        config["bootcmd"] = [["sh", "-c", mounts]]
        documents["start"] = (Path(__file__).parent / "image" / "machine").read_text()
    return {
        **documents, "user-data": cloud_config(config),
        "meta-data": json.dumps({"instance-id": name, "local-hostname": name}) + "\n",
    }  # fmt: skip


def cloud_config(content: Mapping[str, Any]) -> str:
    return "#cloud-config\n" + json.dumps(content, indent=1) + "\n"


def fixed_address(card: str, address: str, **more: Any) -> str:
    """A network card with one address; without this document a machine asks by DHCP."""
    subnet = {"type": "static", "address": address, **more}
    card_config = {"type": "physical", "name": "eth0", "mac_address": card, "subnets": [subnet]}
    return json.dumps({"version": 1, "config": [card_config]}, indent=1) + "\n"


def write_image(
    image: Path, documents: Mapping[str, str], machine: str, faults: Mapping[str, str] | None = None
) -> None:
    """Write a NoCloud image, with the GPU that the machine shall have on its PCI."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, text in documents.items():
            (folder / name).write_text(text)
        if captures.MACHINES[machine].gpus:
            captures.write(captures.MACHINES[machine], folder / "machine")
            shutil.rmtree(folder / "machine" / "proc")  # the kernel of a virtual machine speaks for itself
        for what, how in (faults or {}).items():
            (folder / "faults").mkdir(exist_ok=True)
            (folder / "faults" / what).write_text(how + "\n")
        new = image.with_suffix(".new")
        run(["genisoimage", "-quiet", "-output", new, "-volid", "cidata", "-joliet", "-rock", folder])
        new.replace(image)


def _host_key(path: Path) -> dict[str, str]:
    public = path.with_suffix(".pub").read_text().strip()
    return {"ed25519_private": path.read_text(), "ed25519_public": public}


def asset_tag(machine: str) -> str:
    """How the firmware names the display that no emulator has: as udev would ask for its driver."""
    for gpu in captures.MACHINES[machine].gpus:
        low = "00" if gpu.display else "02"
        words = [int(word, 16) for word in (gpu.device, gpu.subsystem)]
        return f"pci:v000010DEd{words[0]:08X}sv000010DEsd{words[1]:08X}bc03sc{low}i00"
    return "none"
