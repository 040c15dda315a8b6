"""The inventory as this run has read it: an adapter over `gpusetup.drive.inventory_memory` in Ansible."""

import os
from typing import Any

from ansible.plugins.inventory import BaseInventoryPlugin

from gpusetup.drive.inventory_memory import is_source, take_over

DOCUMENTATION = """
name: gpusetup_memory
short_description: the inventory as the run's first Ansible process read it
description: Used by gpusetup itself between the Ansible processes of one run; see GPUSETUP_INVENTORY.
options: {}
"""


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    """Takes the place of the plugins that read the inventory."""

    NAME = "gpusetup_memory"

    def verify_file(self, path: str) -> bool:
        """Tell whether this is the inventory that was handed over."""
        return is_source(path, os.environ)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:  # noqa: ARG002 - Ansible's
        """Take it."""
        take_over(inventory, loader, os.environ)
