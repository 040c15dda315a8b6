"""Observe this machine: the probe as a process with a deadline, its document back."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from gpusetup.content import collections_path, content_path, host_code
from gpusetup.drive.runner import run
from gpusetup.errors import VerifyFailedError
from gpusetup.verify.request import Ask, Observed, deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["observe_here", "observe_in_turn", "probe_argv"]


def probe_argv() -> list[str]:
    """Return the command that observes, with the same files that the action plugin sends to other machines."""
    program = content_path() / "roles/gpu_verify/files/gpu_measure/observe.py"
    return [sys.executable, str(program), str(collections_path())]


def observe_in_turn(ask: Ask, environment: Mapping[str, str]) -> Observed:
    """Run the probe here, as root with `when_idle` only while nobody changes this machine."""
    if not ask.when_idle or os.geteuid() != 0:
        return Observed(observe_here(ask, environment))
    failure, turn = host_code("gpu_host.failure"), host_code("gpu_host.turn")
    try:
        with turn.taken(turn.FOLDER):
            return Observed(observe_here(ask, environment))
    except failure.HostFailure as other:
        return Observed(None, "{message}: {context}".format(**other.fields), postponed=True)


def observe_here(ask: Ask, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run the probe here and return its document."""
    limit = deadline(ask)
    finished = run(
        probe_argv(),
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        deadline=limit,
        stdin=json.dumps({**ask.document(), "parent": os.getpid()}).encode(),
    )
    document = finished.document()
    if document is not None:
        return document
    why = f"it was stopped after {limit:.0f} s" if finished.timed_out else f"it exited with {finished.code}"
    raise VerifyFailedError(
        "GS-502",
        f"the probe on this machine gave no answer: {why}",
        context=finished.err.strip()[-800:],
        note="a broken driver can hang every program that uses it",
        hint="check `dmesg | grep -i nvrm`; `gpusetup verify --level quick` runs without CUDA",
    )
