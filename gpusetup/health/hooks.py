"""The files by which Slurm and Kubernetes act on a machine's health."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from gpusetup.health.schedulers import condition_patch

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "/etc/gpusetup/hooks"
_SCRIPT = """#!/bin/sh
# Written by gpusetup: {what}
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="${{HOME:-/root}}" OMP_NUM_THREADS=1
said=$({command} 2>&1 >/dev/null)
code=$?
[ -z "$said" ] || printf '%s\\n' "$said" | logger -t gpusetup-{name}
{end}
"""
# slurmd does not register while its health program fails: a bad node would be down, not drained.
_ALWAYS = "exit 0"
# 8 alone says that the machine is bad; a look that could not be made keeps no job away.
_IF_BAD = '[ "$code" -ne 8 ]'
_SLURM = """# Lines for slurm.conf, the same on all nodes. Written by gpusetup.
HealthCheckProgram={folder}/slurm-health
HealthCheckInterval=300
HealthCheckNodeState=ANY,CYCLE
Prolog={folder}/slurm-job
Epilog={folder}/slurm-job
# The prolog runs when a job gets its nodes, not at its first step.
PrologFlags=Alloc
# Without this Slurm holds a job whose prolog failed; with it the job runs elsewhere.
SchedulerParameters=nohold_on_prolog_fail
"""
_ACCOUNT = {"name": "gpusetup-health", "namespace": "kube-system"}
_RULES = [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "list", "patch"]}]
_RBAC = "rbac.authorization.k8s.io"


def files(kind: str, words: Sequence[str]) -> dict[str, str]:
    """Return the text of each file; `words` are options of the verification."""
    if kind == "kubernetes":
        patches = {"unhealthy": "gpu.recovery: GPU 0: asks for: Reset", "healthy": ""}
        day = "2026-01-01T00:00:00Z"
        return {"kubernetes.json": _json({"apiVersion": "v1", "kind": "List", "items": _access()})} | {
            f"kubernetes-{name}.json": _json(condition_patch(reason, day, day)) for name, reason in patches.items()
        }

    def script(name: str, place: str, what: str, end: str) -> str:
        command = shlex.join(
            [sys.executable, "-m", "gpusetup", "fleet", "health", "--quarantine", place, *words, "--format", "json"]
        )
        return _SCRIPT.format(name=name, what=what, command=command, end=end)

    return {
        "slurm-health": script("health", "slurm", "Slurm's HealthCheckProgram; it drains a bad node", _ALWAYS),
        "slurm-job": script("job", "slurm-job", "Slurm's Prolog and Epilog; they fail on a bad node", _IF_BAD),
        "slurm.conf.example": _SLURM.format(folder=FOLDER),
    }


def _access() -> list[dict[str, Any]]:
    """Return what lets a timer set a node's taint and condition; a kubelet's own access may set no taint."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _ACCOUNT},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _ACCOUNT["name"]},
            "rules": _RULES,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _ACCOUNT["name"]},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _ACCOUNT["name"]},
            "subjects": [{"kind": "ServiceAccount", **_ACCOUNT}],
        },
    ]


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
