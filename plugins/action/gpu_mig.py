"""Send along what brings the MIG layout back at boot."""

from __future__ import annotations

from ansible_collections.gpusetup.stack.plugins.plugin_utils.with_program import WithProgram


class ActionModule(WithProgram):
    """The plugin."""
