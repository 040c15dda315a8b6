#!/usr/bin/env python3
"""Ten throw-away hosts of mixed kind with stand-in packages; dynamic, because the lab makes its own signing key.

./dev lab up --inventory inventory/lab-mixed.py && ./dev apply inventory/lab-mixed.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.lab.host import SSH_COMMON
from tests.lab.places import SIMULATED_ROOT, SSH_KEY
from tests.lab.repository import build

# name: flavour, simulated machine
HOSTS = {
    "u22-h200x8": ("ubuntu2204-like", "h200-x8"),
    "u24-nvswitch": ("ubuntu2404-like", "h200-x8-nvswitch"),
    "u24-t4": ("ubuntu2404-like", "t4"),
    "u22-v100": ("ubuntu2204-like", "v100"),
    "u24-t4-v100": ("ubuntu2404-like", "t4-v100"),
    "d12-t4x4": ("debian12", "t4-x4"),
    "d13-rtx4090": ("debian13", "rtx4090"),
    "el9-t4": ("rocky9-like", "t4"),
    "el9-v100x8": ("rocky9-like", "v100-x8"),
    "d12-none": ("debian12", "none"),
}


def inventory() -> dict[str, object]:
    """Return what Ansible asks a dynamic inventory for."""
    repositories = build.ready()
    key = f"{repositories.base}/lab-key.asc"
    prints = [repositories.fingerprint]
    epel = {"name": "epel", "urls": [f"{repositories.rocky}/epel"], "fingerprints": prints, "key": key}
    hosts: dict[str, dict[str, object]] = {}
    for number, (name, (flavour, machine)) in enumerate(HOSTS.items()):
        hosts[name] = {"ansible_host": f"10.77.0.{31 + number}", "lab_flavour": flavour, "lab_machine": machine}
        if flavour == "rocky9-like":  # dkms
            hosts[name]["gpusetup_extra_sources"] = [epel]
    common = {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(SSH_KEY),
        "ansible_ssh_common_args": SSH_COMMON,
        "gpusetup_simulated_root": SIMULATED_ROOT,
        "gpusetup_source": repositories.base,
        "gpusetup_source_fingerprints": prints,
        "gpusetup_components": ["driver", "cuda", "nccl"],
    }
    return {"lab": {"hosts": list(hosts), "vars": common}, "_meta": {"hostvars": hosts}}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({} if "--host" in sys.argv else inventory(), indent=1) + "\n")
