"""Send the shared code along to a host that has just rebooted."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import SharedCode


class ActionModule(SharedCode):
    """The plugin."""

    @staticmethod
    def keeps_nothing(arguments: dict[str, Any]) -> bool:
        """Return whether the task follows a reboot, in which the host lost the code."""
        return bool(arguments.get("after_reboot"))
