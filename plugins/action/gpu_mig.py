"""Send the program that restores the MIG layout at boot along with the module."""

from __future__ import annotations

from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import WithProgram


class ActionModule(WithProgram):
    """The plugin."""
