"""Send a role's program along with a module: it needs one round trip, and the module stays small."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpusetup.stack.plugins.plugin_utils import programs
from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import SharedCode


class WithProgram(SharedCode):
    """An action that passes a program to its module as the argument O(program)."""

    ENTRIES: tuple[str, ...] = ()
    """The role's files where the program starts; empty means all of them."""

    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, program: str = "") -> dict[str, Any]:
        """Run the module of the action's name with the program of the role of that name."""
        role = self._task.action.rpartition(".")[2]
        result = super().ask(arguments, task_vars, program or programs.packed(role, *self.ENTRIES))
        result.get("invocation", {}).get("module_args", {}).pop("program", None)
        return result
