"""A host as the probe tells it, small enough to change one thing at a time."""

import copy
from typing import Any

import pytest

VERSION = "580.95.05"
PATH = "/lib/modules/6.1.0-2/updates/dkms/nvidia.ko"
MODULE = {"path": PATH, "version": VERSION, "flavour": "open", "signed": None, "signer": None, "key": None}
FACTS: dict[str, Any] = {
    "simulated": False,
    "kernel": {"running": "6.1.0-2", "next": "6.1.0-2", "installed": [{"release": "6.1.0-2", "nvidia": MODULE}]},
    "modules": ["nvidia"],
    "module_users": {"nvidia": {"references": 0, "holders": []}},
    "driver": {
        "loaded": {"version": VERSION, "flavour": "open"},
        "library": VERSION,
        "libraries": {"libcuda.so.1": [VERSION]},
    },
    "nouveau": {"loaded": False, "blacklisted": True, "initramfs": []},
    "secure_boot": False,
    "firmware": {"signing_keys": [], "password": None},
    "processes": [],
    "packages": {"installed": {}, "held": [], "problems": []},
    "services": {},
    "pythons": [],
}


@pytest.fixture
def facts():
    """The wanted driver runs and nothing is wrong."""
    return copy.deepcopy(FACTS)
