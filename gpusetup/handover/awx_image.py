"""The execution environment in which AWX runs gpusetup: a definition for ansible-builder."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from typing import Any

__all__ = ["PYTHON", "WHEELS", "execution_environment"]

PYTHON = "3.12"
WHEELS = "gpusetup-bundle/wheels"
_COLLECTIONS = "/usr/share/ansible/collections/ansible_collections"

_LINK = (
    f"RUN mkdir -p {_COLLECTIONS} && "
    f'ln -s "$($PYCMD -m gpusetup export content collections)/ansible_collections/gpusetup" {_COLLECTIONS}'
)
"""Playbooks name the collection; AWX looks for it there."""


def execution_environment() -> dict[str, Any]:
    """Return the definition, version 3; gpusetup itself comes from a bundle, whose Python is that of the image."""
    return {
        "version": 3,
        "images": {"base_image": {"name": "quay.io/rockylinux/rockylinux:9"}},
        "dependencies": {
            "python_interpreter": {"package_system": f"python{PYTHON}", "python_path": f"/usr/bin/python{PYTHON}"},
            "ansible_core": {"package_pip": _range_of("ansible-core")},
            "ansible_runner": {"package_pip": _range_of("ansible-runner")},
            # A line of its own would be taken for the name of a file.
            "system": ["openssh-clients [platform:rpm]"],
        },
        "additional_build_files": [{"src": WHEELS, "dest": "wheels"}],
        "additional_build_steps": {
            "append_final": [
                "COPY _build/wheels /tmp/wheels",
                "RUN $PYCMD -m pip install --no-index --find-links /tmp/wheels gpusetup && rm -r /tmp/wheels",
                _LINK,
            ]
        },
    }


def _range_of(package: str) -> str:
    """Return a package with the versions that gpusetup asks for, as its own metadata has them."""
    try:
        needs = requires("gpusetup") or []
    except PackageNotFoundError:
        needs = []
    found = [need.partition(";")[0].strip() for need in needs if need.startswith(package)]
    return found[0] if found else package
