"""Reboot a host, and continue as soon as it answers with another boot id."""

from __future__ import annotations

import re
import shlex
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PLACES = "/sbin:/bin:/usr/sbin:/usr/bin"
"""Where shutdown is; a plain user's PATH may lack these folders."""
_ID = re.compile(r"^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.MULTILINE)  # a terminal ends lines with \r
_FIRST, _LONGEST, _SHARE = 0.3, 10.0, 20.0
"""Seconds between two attempts: a twentieth of the time waited so far, within these bounds."""
_PATIENCE, _GROWS = 5.0, 10.0
"""Connection timeout in seconds: several short attempts notice a host sooner than a long one. It grows by a tenth of
the time waited, up to the configured timeout, so that slow hosts can answer."""


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """The plugin."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("text", "timeout"))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Reboot the host and wait for it; refuse to reboot the machine that Ansible runs on."""
        self._supports_check_mode = True
        if str(self._connection.transport).rpartition(".")[2] == "local":
            msg = "that would reboot the machine that this runs on"
            return {"failed": True, "changed": False, "rebooted": False, "msg": msg}
        if self._task.check_mode:
            return {"changed": True, "rebooted": True, "elapsed": 0}
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            before = self._boot_id()
        except (AnsibleError, ValueError) as error:
            return {**result, "failed": True, "changed": False, "rebooted": False, "msg": f"not rebooted: {error}"}
        # ssh may be set to repeat what it could not finish, and the host may be up again by then.
        command = f'[ "$({BOOT_ID})" != {before} ] || shutdown -r now {shlex.quote(self._text())}'
        command = f"PATH={PLACES}:$PATH; export PATH; {command}"
        try:
            made = self._low_level_execute_command(command)
        except AnsibleConnectionFailure:
            made = {"rc": 0}  # it went down before it could answer
        if made["rc"]:
            said = f"{made['stdout'].strip()} {made['stderr'].strip()}".strip()
            msg = f"the reboot command failed (exit {made['rc']}): {said}"
            return {**result, "failed": True, "changed": False, "rebooted": False, "msg": msg}
        return {**result, **self._wait(before, float(self._task.args.get("timeout") or 600))}

    def _text(self) -> str:
        return " ".join(str(self._task.args.get("text") or "gpusetup").split())

    def _wait(self, before: str, timeout: float) -> dict[str, Any]:
        """Poll until the host has another boot id; connection errors count only once the timeout has passed."""
        began, last = time.monotonic(), "it has not gone down"
        configured = self._patience()
        waited, connected = 0.0, True
        while waited < timeout:
            time.sleep(min(max(_FIRST, waited / _SHARE), _LONGEST))
            try:
                self._set_patience(min(configured, _PATIENCE + waited / _GROWS) if configured else None)
                if connected:  # a connection from before the reboot would hang
                    self._connection.reset()
                if self._boot_id() != before:
                    return {"changed": True, "rebooted": True, "elapsed": int(time.monotonic() - began)}
                last, connected = "it has not gone down", True
            except (AnsibleError, ValueError) as error:
                connected = not isinstance(error, AnsibleConnectionFailure)
                last = " ".join(str(error).split())[-300:]
            finally:
                self._set_patience(configured)
            waited = time.monotonic() - began
        msg = f"the host did not come back from its reboot within {timeout:.0f} s: {last}"
        return {"failed": True, "changed": True, "rebooted": True, "elapsed": int(timeout), "msg": msg}

    def _boot_id(self) -> str:
        """Return the boot id, read as root, since the tasks that follow need root too."""
        told = self._low_level_execute_command(BOOT_ID)
        found = _ID.search(told["stdout"])
        if told["rc"] or found is None:
            raise ValueError(f"its boot id is not readable: {told['stderr'].strip() or told['stdout'].strip()}")
        return str(found.group(1))

    def _patience(self) -> float | None:
        try:
            return float(self._connection.get_option("timeout"))
        except (KeyError, TypeError, ValueError):
            return None  # a connection without one

    def _set_patience(self, seconds: float | None) -> None:
        if seconds is not None:
            self._connection.set_option("timeout", int(seconds))
