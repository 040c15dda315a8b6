"""Send along what writes the textfile of node_exporter."""

from __future__ import annotations

from ansible_collections.gpusetup.stack.plugins.plugin_utils.with_program import WithProgram


class ActionModule(WithProgram):
    """The plugin."""

    ENTRIES = ("gpu_textfile/look.py",)
