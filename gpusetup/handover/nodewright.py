"""What brings nodes to a lock: a package for NodeWright (once NVIDIA Skyhook), or a DaemonSet.

NodeWright drains a node, runs the steps of the package, reboots and goes on. The package is a container image:
`config.json`, the steps and a bundle of gpusetup. The steps run on the node. A node is changed only when it has the
label `gpusetup/lock` with the lock's digest: nobody changes a whole cluster by mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.handover.files import rendered

if TYPE_CHECKING:
    from gpusetup.model.lock import Lock


def node_files(lock: Lock, text: str, first_stage: str) -> dict[str, str]:
    """Return all that brings nodes to a lock, by name; `text` is the lock's file."""
    files = rendered("node", version=__version__, label=lock.digest[:12], lock=text)
    return files | {"node/skyhook_dir/first-stage": first_stage}
