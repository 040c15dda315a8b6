"""Run modules from code that the host keeps: it is sent once for a boot and version, and a task is some kilobytes.

Ansible packs a module with all that it imports and sends it anew for each task; the host compiles it each time.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gpusetup.stack.plugins.plugin_utils import programs

OURS = "gpusetup.stack"
PLUGINS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def code() -> dict[str, bytes]:
    """Return what modules consist of: places in the folder of plugins → contents."""
    found = {}
    for part in ("modules", "module_utils"):
        for folder, _folders, names in os.walk(os.path.join(PLUGINS, part)):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as stream:
                        found[os.path.relpath(path, PLUGINS)] = stream.read()
    return dict(sorted(found.items()))


def digest(files: dict[str, bytes]) -> str:
    """Return what names the code; the host makes the same sum of what it is sent."""
    total = hashlib.sha256()
    for name, content in files.items():
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


DIGEST = digest(code())


class SharedCode(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action that runs the module of its name."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    @staticmethod
    def keeps_nothing(arguments: dict[str, Any]) -> bool:
        """Tell whether a task with these arguments comes to a host that cannot have the code: it need not say so."""
        del arguments
        return False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module with the task's arguments."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self.ask(dict(self._task.args), task_vars))
        return result

    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, program: str = "") -> dict[str, Any]:
        """Run the module from the host's code, and send what the host asks for; where it keeps nothing send all."""
        name = self._task.action.rpartition(".")[2]
        later = bool(self._task.async_val) and not self._connection.has_native_async
        kept = {"program": program.encode()} if program else {}
        wanted = {"code": DIGEST, "program": digest(kept) if program else ""}
        sent = {DIGEST: programs.archive(code())} if self.keeps_nothing(arguments) else {}
        for _attempt in () if later else range(2):
            request = {"module": name, "arguments": arguments, "sent": sent, **wanted}
            answer: dict[str, Any] = self._execute_module(f"{OURS}.gpu_shared_code", request, task_vars=task_vars)
            if "missing" not in answer:
                return answer
            sent = {one: programs.archive(code() if one == DIGEST else kept) for one in answer["missing"]}
            if not sent:
                break
        whole = {**arguments, "program": program} if program else arguments
        return dict(self._execute_module(f"{OURS}.{name}", whole, task_vars=task_vars, wrap_async=later))
