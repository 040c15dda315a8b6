"""A package for NodeWright (once NVIDIA Skyhook), which drains, runs steps, reboots and goes on: nodes come to a lock.

The package is a container image: `config.json`, the steps and a bundle of gpusetup. The steps run on the node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup import __version__
from gpusetup.handover.text import yaml_text

if TYPE_CHECKING:
    from gpusetup.model.lock import Lock

LABEL = "gpusetup/lock"
"""A node is changed only when it has this label, with the lock's digest: nobody changes a whole cluster by mistake."""
_LOCK, _VARIABLES = "gpu.lock.json", "variables.json"
"""Files that the steps read."""
IMAGE = "registry.example.com/gpusetup-node"
_STEPS: dict[str, tuple[str, tuple[int, ...]]] = {
    "apply": ("install", (0,)),
    "apply-check": ("installed.sh", (0,)),
    "config": ("apply.sh", (0, 9)),
    "config-check": ("applied", (0,)),
    "post-interrupt-check": ("verify.sh", (0,)),
    "uninstall": ("remove.sh", (0, 9)),
    "uninstall-check": ("removed.sh", (0,)),
}
"""NodeWright's stage → our step, and its exit codes that are good; 9 is a reboot that is still to come."""
_SCRIPTS = Path(__file__).parent / "node"
_DOCKERFILE = """\
# NodeWright reads /skyhook-package; the DaemonSet too, with busybox's nsenter.
FROM busybox:1.37
COPY . /skyhook-package
"""


def label_value(lock: Lock) -> str:
    """Return what the label of a node says."""
    return lock.digest[:12]


def nodewright_files(lock: Lock, text: str, first_stage: str) -> dict[str, str]:
    """Return the package and the resource, by name; `text` is the lock's file."""
    files = {f"node/skyhook_dir/{path.name}": path.read_text(encoding="utf-8") for path in sorted(_SCRIPTS.iterdir())}
    return files | {
        "node/skyhook_dir/first-stage": first_stage,
        "node/config.json": json.dumps(_config(), indent=2) + "\n",
        "node/Dockerfile": _DOCKERFILE,
        "nodewright.yaml": yaml_text(_resource(lock, text)),
    }


def configuration(text: str) -> dict[str, str]:
    """Return the files that the steps read: the lock, and a site's variables, of which there are none yet."""
    return {_LOCK: text, _VARIABLES: "{}\n"}


def _config() -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "package_name": "gpusetup",
        "package_version": __version__,
        "expected_config_files": [_LOCK, _VARIABLES],
        "modes": {stage: [_step(stage, *step)] for stage, step in _STEPS.items()},
    }


def _step(stage: str, path: str, good: tuple[int, ...]) -> dict[str, Any]:
    return {
        "name": stage,
        "path": path,
        "arguments": [],
        "returncodes": list(good),
        "on_host": True,
        "env": {},
        "idempotence": True,
        "upgrade_step": False,
    }


def _resource(lock: Lock, text: str) -> dict[str, Any]:
    package = {
        "version": __version__,
        "image": IMAGE,
        "configMap": configuration(text),
        "interrupt": {"type": "reboot"},
        "configInterrupts": {_LOCK: {"type": "reboot"}},
        "gracefulShutdown": "30m",
        "stageTimeout": "2h",
        "uninstall": {"enabled": True, "apply": False},
    }
    return {
        "apiVersion": "nodewright.nvidia.com/v1alpha1",
        "kind": "NodeWright",
        "metadata": {"name": f"gpusetup-{label_value(lock)}"},
        "spec": {
            "nodeSelectors": {"matchLabels": {LABEL: label_value(lock)}},
            "interruptionBudget": {"count": 1},
            "drainConfig": {"timeout": "1h"},
            "additionalTolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "packages": {"gpusetup": package},
        },
    }


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


def node_files(lock: Lock, text: str, first_stage: str) -> dict[str, str]:
    """Return all that brings nodes to a lock, by name."""
    return nodewright_files(lock, text, first_stage) | {
        "daemonset.yaml": daemonset_text(lock, text),
        "NODES.md": _page(lock),
    }


def _page(lock: Lock) -> str:
    return f"""\
# Nodes to a lock

1. The image, with gpusetup inside. Write your registry into the files in place of registry.example.com.

   ```bash
   gpusetup bundle --controller-only --out node/bundle
   podman build --tag {IMAGE}:{__version__} node && podman push {IMAGE}:{__version__}
   ```

2. One of the two. A mirror and the like (`gpusetup_source`) belong into the key `variables.json`, as JSON.

   ```bash
   kubectl apply -f nodewright.yaml     # NodeWright drains a node, applies, reboots, verifies; one node at a time
   kubectl apply -f daemonset.yaml      # without NodeWright: applies and verifies; draining and rebooting are yours
   ```

3. The nodes, one first. Nothing happens on a node without this label.

   ```bash
   kubectl label node NODE {LABEL}={label_value(lock)}
   ```

Back: set `uninstall.apply: true` in nodewright.yaml (NodeWright), or `gpusetup remove --yes` on the node.
"""
