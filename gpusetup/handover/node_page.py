"""What people do with the package for nodes: the page beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.handover.daemonset import daemonset_text
from gpusetup.handover.nodewright import IMAGE, LABEL, label_value, nodewright_files

if TYPE_CHECKING:
    from gpusetup.model.lock import Lock

__all__ = ["node_files"]


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
