"""Run a module from code that the host keeps; `meta/runtime.yml` lists the modules."""

from __future__ import annotations

from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import SharedCode


class ActionModule(SharedCode):
    """The plugin."""
