"""Send the probe along with the module, and judge what comes back: one round trip per host."""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible.plugins.action import ActionBase

PLUGINS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def bundle() -> dict[str, str]:
    """Return the files that measure, as the module writes them on the host to run by themselves, in another Python."""
    folder = os.path.join(PLUGINS, "module_utils", "gpu_measure")
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".cu")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name] = file.read()
    return found


def judged(observations: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Verdicts by gpusetup's own checks; None where its package is not importable from Ansible's Python."""
    checkout = os.path.dirname(PLUGINS)
    if os.path.isdir(os.path.join(checkout, "gpusetup")) and checkout not in sys.path:
        sys.path.append(checkout)
    try:
        import msgspec
        from gpusetup.verify.judge import judge
        from gpusetup.verify.machine import Machine
    except ImportError:
        return None
    return [msgspec.to_builtins(result) for result in judge(Machine(observations))]


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """The plugin."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module with the probe, judge, and fail when asked to."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args, bundle=bundle())
        wants_failure = str(arguments.get("fail", True)).lower() not in ("false", "no", "0")
        result.update(
            self._execute_module(module_name="gpusetup.stack.gpu_verify", module_args=arguments, task_vars=task_vars)
        )
        if result.get("failed") or "observations" not in result:
            return result
        if not wants_failure:
            return result
        results = judged(result["observations"])
        if results is None:
            result.update(
                failed=True,
                msg="the observations could not be evaluated: install gpusetup into the Python that runs Ansible",
            )
            return result
        result["results"] = results
        grave = [found for found in results if found["verdict"] == "fail"]
        if grave:
            named = "; ".join("{}: {}".format(found["id"], found["text"]) for found in grave)
            result.update(failed=True, msg="verification failed: " + named)
        return result
