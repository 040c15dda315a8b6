"""Return how Ansible would connect to a host, without connecting: for programs that keep their own connection open."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

SSH = (
    "host", "port", "remote_user", "private_key_file", "ssh_args", "ssh_common_args", "ssh_extra_args",
    "ssh_executable", "host_key_checking", "timeout",
)  # fmt: skip


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """The plugin."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of the host's connection plugin; of a password only whether there is one."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        connection = self._connection
        name = str(getattr(connection, "transport", "")).rpartition(".")[2]
        options = {option: connection.get_option(option) for option in SSH} if name == "ssh" else {}
        return {
            **result,
            "changed": False,
            "connection": name,
            "options": options,
            "password": name == "ssh" and bool(connection.get_option("password") or self._play_context.password),
            "interpreter": str((task_vars or {}).get("ansible_python_interpreter") or ""),
        }
