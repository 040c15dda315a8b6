"""Send a role's program along with a module: one round trip, and the module stays small."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpusetup.stack.plugins.plugin_utils import programs


class WithProgram(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action whose module gets a program as its argument O(program)."""

    TRANSFERS_FILES = False
    ENTRIES: tuple[str, ...] = ()
    """Where the program begins among the role's files; without one it is all of them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module of the action's name, whose role has the same."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        name = self._task.action.rpartition(".")[2]
        arguments = dict(self._task.args, program=programs.packed(name, *self.ENTRIES))
        result.update(
            self._execute_module(module_name=f"gpusetup.stack.{name}", module_args=arguments, task_vars=task_vars)
        )
        result.get("invocation", {}).get("module_args", {}).pop("program", None)
        return result
