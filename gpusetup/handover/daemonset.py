"""The same package by a plain DaemonSet, for clusters without NodeWright: nodes come to a lock, nobody reboots them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup import __version__
from gpusetup.handover.nodewright import IMAGE, LABEL, configuration, label_value
from gpusetup.handover.text import yaml_text

if TYPE_CHECKING:
    from gpusetup.model.lock import Lock

__all__ = ["daemonset_text"]

_NAMESPACE = "gpusetup"
_ON_NODE = "/var/lib/gpusetup-node"
_ENTER = f"nsenter -t 1 -m -u -i -n -p -- env SKYHOOK_DIR={_ON_NODE} HOME=/root sh {_ON_NODE}/skyhook_dir"
_COPY = "rm -rf /node/* && cp -r /skyhook-package/. /node/ && mkdir -p /node/configmaps && cp /lock/* /node/configmaps/"


def daemonset_text(lock: Lock, text: str) -> str:
    """Return namespace, lock and DaemonSet as one file."""
    name = f"gpusetup-{label_value(lock)}"
    labels = {"app.kubernetes.io/name": "gpusetup", LABEL: label_value(lock)}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": _NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "data": configuration(text),
    }
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": _NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            # The next node is changed when the one before it is ready, which is when its checks pass.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(lock, name)},
        },
    }
    return "".join(yaml_text(document, made="") for document in (namespace, config, daemonset))


def _pod(lock: Lock, name: str) -> dict[str, Any]:
    return {
        "nodeSelector": {LABEL: label_value(lock)},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "hostPID": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1800,
        "initContainers": [_container("apply", f"{_COPY} && exec {_ENTER}/node.sh", mounts=True)],
        "containers": [
            {
                **_container("verified", "exec sleep 2147483647"),
                "readinessProbe": {
                    "exec": {"command": ["sh", "-c", f"exec {_ENTER}/verify.sh"]},
                    "periodSeconds": 600,
                    "timeoutSeconds": 120,
                    "failureThreshold": 1,
                },
            }
        ],
        "volumes": [
            {"name": "node", "hostPath": {"path": _ON_NODE, "type": "DirectoryOrCreate"}},
            {"name": "lock", "configMap": {"name": name}},
        ],
    }


def _container(name: str, script: str, *, mounts: bool = False) -> dict[str, Any]:
    container = {
        "name": name,
        "image": f"{IMAGE}:{__version__}",
        "command": ["sh", "-c", script],
        "securityContext": {"privileged": True},
    }
    if mounts:
        return {
            **container,
            "volumeMounts": [
                {"name": "node", "mountPath": "/node"},
                {"name": "lock", "mountPath": "/lock", "readOnly": True},
            ],
        }
    return container
