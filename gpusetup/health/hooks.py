"""The scripts and manifests with which Slurm and Kubernetes act on a machine's health."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.health.schedulers import condition_patch

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "/etc/gpusetup/hooks"
# While its health program fails, slurmd does not register: a bad node would be down, not drained.
_ALWAYS = "exit 0"
# Only 8 means a bad machine; a verification that could not run must not keep jobs away.
_IF_BAD = '[ "$code" -ne 8 ]'
_TEMPLATES = Path(__file__).with_name("templates")


def files(kind: str, words: Sequence[str]) -> dict[str, str]:
    """Return the text of each file by its name; `words` are options of the verification."""
    if kind == "kubernetes":
        patches = {"unhealthy": "gpu.recovery: GPU 0: asks for: Reset", "healthy": ""}
        day = "2026-01-01T00:00:00Z"
        # With this account a timer may set a node's taint and condition; a kubelet's own may set no taint.
        return {"kubernetes.json": _template("kubernetes.json")} | {
            f"kubernetes-{name}.json": _json(condition_patch(reason, day, day)) for name, reason in patches.items()
        }

    def script(name: str, place: str, what: str, end: str) -> str:
        command = shlex.join(
            [sys.executable, "-m", "gpusetup", "fleet", "health", "--quarantine", place, *words, "--format", "json"]
        )
        return _template("slurm-script").format(name=name, what=what, command=command, end=end)

    return {
        "slurm-health": script("health", "slurm", "Slurm's HealthCheckProgram; it drains a bad node", _ALWAYS),
        "slurm-job": script("job", "slurm-job", "Slurm's Prolog and Epilog; they fail on a bad node", _IF_BAD),
        "slurm.conf.example": _template("slurm.conf.example").format(folder=FOLDER),
    }


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
