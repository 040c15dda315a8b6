# ruff: noqa: ARG002, SLF001 - the methods are named and explained by Ansible, and so is what they are given
"""Ansible callback for other projects: record when each task of a host began and ended, like gpusetup's events."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible has no types
    """The callback; BENCH_STEPS names its output file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "bench_steps"
    CALLBACK_NEEDS_ENABLED = True

    def _write(self, event: str, task: Any) -> None:
        told = {"event": event, "time": time.time(), "task": str(task._uuid), "name": str(task.get_name())}
        with Path(os.environ["BENCH_STEPS"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(told) + "\n")

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._write("begin", task)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write("ok", result._task)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._write("skipped", result._task)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write("failed", result._task)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._write("unreachable", result._task)
