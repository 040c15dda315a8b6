"""Kubernetes, through kubectl: cordon, wait for pods with a GPU, drain the rest; uncordon afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpusetup.content import host_code
from gpusetup.drive.scheduler.base import Caller, Drained, check_node, given_back, wait_until

_ANNOTATION = "gpusetup.drained"
_EVICTION_SECONDS = 300
gpu_pods = host_code("gpu_probe.sessions").gpu_pods
"""Returns the running pods with a GPU; hosts use the same code."""


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """Kubernetes, on this machine or wherever the caller's prefix leads."""

    call: Caller = field(default_factory=Caller)
    name: str = "kubernetes"

    def drain(self, node: str, seconds: float) -> Drained:
        """Wait for pods with a GPU; evict the rest with `kubectl drain`, which respects disruption budgets."""
        cordoned, ours = self._node(node)
        if not cordoned:
            self.call.output_of("kubectl", "annotate", "node", node, f"{_ANNOTATION}=true", "--overwrite")
            self.call.output_of("kubectl", "cordon", node)
        with given_back(not cordoned, partial(self._back, node), self.by_hand(node)):
            left = wait_until(lambda: self._with_gpu(node), seconds, self.call.stop)
        if not left:
            wait = f"--timeout={_EVICTION_SECONDS}s"
            done = self.call("kubectl", "drain", node, "--ignore-daemonsets", wait, seconds=_EVICTION_SECONDS + 30)
            left = (
                "" if done.ok else " ".join((done.err or done.out).split())[-400:] or f"kubectl drain: exit {done.code}"
            )
        if left:
            if not cordoned:
                self._back(node)
            return Drained(ok=False, why=left)
        return Drained(
            ok=True, ours=not cordoned or ours, why="" if not cordoned or ours else "cordoned by someone else"
        )

    def undrain(self, node: str) -> str:
        """Uncordon a node."""
        self._back(node)
        return ""

    def drained_by_us(self, node: str) -> bool:
        """Return whether the node is cordoned and has our annotation."""
        return self._node(node) == (True, True)

    def by_hand(self, node: str) -> str:
        """Return the command that returns the node to service."""
        return " ".join([*self.call.prefix, "kubectl", "uncordon", node])

    def _node(self, node: str) -> tuple[bool, bool]:
        """Return whether a node is cordoned, and whether it has our annotation."""

        def look(told: Any) -> tuple[bool, bool]:
            ours = _ANNOTATION in (told["metadata"].get("annotations") or {})
            return bool((told.get("spec") or {}).get("unschedulable")), ours

        return self.call.read(look, "kubectl", "get", "node", check_node(node), "--output=json")

    def _with_gpu(self, node: str) -> str:
        where = ("--all-namespaces", f"--field-selector=spec.nodeName={node}", "--output=json")
        pods = self.call.read(gpu_pods, "kubectl", "get", "pods", *where)
        return f"pods with a GPU run: {', '.join(pods[:8])}" if pods else ""

    def _back(self, node: str) -> None:
        self.call.output_of("kubectl", "uncordon", node)
        self.call.output_of("kubectl", "annotate", "node", node, f"{_ANNOTATION}-")
