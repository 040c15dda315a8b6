"""Send the probe along with the module and judge its observations: one round trip per host."""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code import WithProgram

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def judged(observations: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the results of gpusetup's checks; None if its package cannot be imported by Ansible's Python."""
    if os.path.isdir(os.path.join(COLLECTION, "gpusetup")) and COLLECTION not in sys.path:
        sys.path.append(COLLECTION)
    try:
        import msgspec

        from gpusetup.verify.machine import Machine
        from gpusetup.verify.registry import judge
    except ImportError:
        return None
    return [msgspec.to_builtins(result) for result in judge(Machine(observations))]


class ActionModule(WithProgram):
    """The plugin."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module with the probe; unless `fail` is off, judge the observations and fail on a failed check."""
        result = super().run(tmp, task_vars)
        wants_failure = str(self._task.args.get("fail", True)).lower() not in ("false", "no", "0")
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
