"""Take a machine out of service and back, in Slurm or Kubernetes; the scripts and manifests with which they act on it.

A place reads the machine's state and changes it where needed. It does not undo what somebody else did.
"""

import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from gpusetup.drive.schedulers import HEALTH_MARK, Caller, check_node, parse_node
from gpusetup_fleet.health.service import Standing

CONDITION = "GpuUnhealthy"
TAINT = "gpusetup/gpu-unhealthy"
_BY_SLURM = ("Prolog error", "Epilog error")
_NODES = (
    r'{range .items[*]}{.metadata.name}{"\t"}{.status.capacity.nvidia\.com/gpu}{"\t"}{.spec.taints[*].key}{"\n"}{end}'
)
_LONGEST = 200
_SECONDS = 12.0
"""The deadline of one scheduler command; there are two, and Slurm ends its health program after 60 s."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The state of the machine in a place."""

    ours: bool = False
    """It is out of service with our mark."""
    theirs: str = ""
    """The reason that somebody else gave, who took it out of service."""
    refused: bool = False
    """The scheduler drained it after a failed prolog or epilog, which may have been ours."""
    reason: str = ""


class Place(Protocol):
    """A scheduler that can take machines out of service."""

    def seen(self) -> Seen:
        """Read the machine's state."""

    def others_out(self) -> tuple[int, int]:
        """Return how many other machines are out of service with our mark, and the number of machines with GPUs."""

    def settle(self, seen: Seen, reason: str, since: str, now: str) -> None:
        """Take the machine out of service with a reason, or put it back without one.

        `since`: the time of the last such change, empty if there was none.
        """

    def give_back(self, seen: Seen) -> None:
        """Put the machine back in service if it is out with our mark, whatever its health."""


def limit_of(text: str, machines: int) -> int:
    """Return how many machines may be out at once: a number, or a percentage of all and at least one."""
    number = int(text.removesuffix("%"))
    return max(1, machines * number // 100) if text.endswith("%") else number


def agreed(kept: Standing, seen: Seen, now: float) -> tuple[Standing, bool]:
    """Return the standing, corrected by the place's state, and whether somebody returned or took over the machine."""
    refused = seen.refused and bool(kept.refused)
    if kept.out and not seen.ours and not refused:
        return Standing(told=kept.told, since=now, forgotten=now), True
    if not kept.out and (seen.ours or refused):
        reason = kept.refused if refused else seen.reason.partition(": ")[2] or "bad"
        return replace(kept, out=True, reason=reason, since=now, good=0, departures=kept.departures + 1), False
    return kept, False


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Slurm by scontrol: a drain with our mark and the reason."""

    node: str
    call: Caller = field(default_factory=Caller)

    def seen(self) -> Seen:
        """Read the node's state, and from its reason who drained it."""
        node = parse_node(self._output_of("--oneliner", "show", "node", check_node(self.node)))
        if not node.drained:
            return Seen()
        if node.reason.startswith(HEALTH_MARK):
            return Seen(ours=True, reason=node.reason)
        return Seen(theirs=node.reason or "no reason given", refused=node.reason.startswith(_BY_SLURM))

    def others_out(self) -> tuple[int, int]:
        """Count Slurm's nodes with GPUs; all nodes if Slurm lists no GPUs."""
        lines = self._output_of("--oneliner", "show", "node").splitlines()
        lines = [line for line in lines if re.search(r"\bGres=\S*gpu", line)] or lines
        others = [line for line in lines if not line.startswith(f"NodeName={self.node} ")]
        marked = [node for node in map(parse_node, others) if node.drained and node.reason.startswith(HEALTH_MARK)]
        return len(marked), len(lines)

    def settle(self, seen: Seen, reason: str, since: str, now: str) -> None:
        """Drain the node, correct its reason, or resume it."""
        del since, now
        text = f"{HEALTH_MARK}: {plain(reason)}"
        if reason and seen.reason != text:
            self._output_of("update", f"NodeName={self.node}", "State=DRAIN", f"Reason={text}")
        elif not reason:
            self.give_back(seen)

    def give_back(self, seen: Seen) -> None:
        """Resume the node if we drained it."""
        if seen.ours:
            self._output_of("update", f"NodeName={self.node}", "State=RESUME")

    def _output_of(self, *words: str) -> str:
        return self.call.output_of("scontrol", *words, seconds=_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """Kubernetes by kubectl: a taint keeps pods away, a condition shows why. Cordons of others stay as they are."""

    node: str
    call: Caller = field(default_factory=Caller)

    def seen(self) -> Seen:
        """Read the node's taints."""

        def look(node: Any) -> Seen:
            return Seen(ours=any(taint.get("key") == TAINT for taint in node["spec"].get("taints") or ()))

        words = ("kubectl", "get", "node", check_node(self.node), "--output=json")
        return self.call.read(look, *words, seconds=_SECONDS)

    def others_out(self) -> tuple[int, int]:
        """Count our taints on nodes with GPUs in their capacity; on all nodes if none has any."""
        lines = self._output_of("get", "nodes", f"--output=jsonpath={_NODES}").splitlines()
        nodes = [line.split("\t") for line in lines if line.count("\t") == 2]  # a banner of ssh is none
        with_gpus = [node for node in nodes if node[1]] or nodes
        others = [taints for name, _gpus, taints in with_gpus if name != self.node]
        return sum(TAINT in taints.split() for taints in others), len(with_gpus)

    def settle(self, seen: Seen, reason: str, since: str, now: str) -> None:
        """Set or remove the taint; then write the condition, whose heartbeat every verification renews."""
        if reason and not seen.ours:
            self._output_of("taint", "node", self.node, f"{TAINT}:NoSchedule")
        elif not reason:
            self.give_back(seen)
        patch = json.dumps(condition_patch(reason, since, now))
        self._output_of("patch", "node", self.node, "--subresource=status", "--type=strategic", f"--patch={patch}")

    def give_back(self, seen: Seen) -> None:
        """Remove our taint; the condition still shows what is bad."""
        if seen.ours:
            self._output_of("taint", "node", self.node, f"{TAINT}:NoSchedule-")

    def _output_of(self, *words: str) -> str:
        return self.call.output_of("kubectl", *words, seconds=_SECONDS)


def condition_patch(reason: str, since: str, now: str) -> dict[str, Any]:
    """Return the patch of a node's status with our condition; True is bad, as in all conditions but Ready."""
    condition = {
        "type": CONDITION,
        "status": "True" if reason else "False",
        "reason": "GpusetupCheckFailed" if reason else "GpusetupChecksPass",
        "message": plain(reason) or "no check of gpusetup failed",
        "lastHeartbeatTime": now,
    }
    return {"status": {"conditions": [{**condition, "lastTransitionTime": since} if since else condition]}}


def plain(text: str) -> str:
    """Return a reason on one line, without characters that shells read, short enough for a list of nodes."""
    return re.sub(r"[\x00-\x1f\x7f'\"\\`$=]+", " ", text)[:_LONGEST].strip()


FOLDER = "/etc/gpusetup/hooks"
# While its health program fails, slurmd does not register: a bad node would be down, not drained.
_ALWAYS = "exit 0"
# Only 8 means a bad machine; a verification that could not run must not keep jobs away.
_IF_BAD = '[ "$code" -ne 8 ]'
_TEMPLATES = Path(__file__).with_name("templates")


def hook_files(kind: str, words: Sequence[str]) -> dict[str, str]:
    """Return the text of each file by its name; `words` are options of the verification."""
    if kind == "kubernetes":
        patches = {"unhealthy": "gpu.recovery: GPU 0: asks for: Reset", "healthy": ""}
        day = "2026-01-01T00:00:00Z"
        # With this account a timer may set a node's taint and condition; a kubelet's own may set no taint.
        return {"kubernetes.json": _template("kubernetes.json")} | {
            f"kubernetes-{name}.json": json.dumps(condition_patch(reason, day, day), indent=1) + "\n"
            for name, reason in patches.items()
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
