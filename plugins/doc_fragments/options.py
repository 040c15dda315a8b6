"""Documentation of the modules' options, made from the specifications that the modules give to Ansible."""

from __future__ import annotations

import importlib
import json

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params


class ModuleDocFragment:
    """One fragment for each module, under the module's name, and one of the options of the host."""

    def __getattr__(self, name: str) -> str:
        if name == "HOST":
            return json.dumps({"options": params.documentation(params.COMMON)})
        if not name.startswith("GPU_"):
            raise AttributeError(name)
        module = importlib.import_module("ansible_collections.gpusetup.stack.plugins.modules." + name.lower())
        return json.dumps({"options": params.documentation(module.SPEC)})
