"""Send the program that writes node_exporter's textfile along with the module."""

from __future__ import annotations

from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import WithProgram


class ActionModule(WithProgram):
    """The plugin."""

    ENTRIES = ("gpu_textfile/look.py",)
