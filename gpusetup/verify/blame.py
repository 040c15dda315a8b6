"""Whose fault a finding is: the GPU's, the driver's, the stack's that gpusetup made, an environment's, a job's.

What was wished for or is on record fails the host. What merely lies in somebody's environment, or runs out of memory
beside a job, is a warning: it never takes a node out of service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpusetup.model.verdict import Blame, Finding, Item, Verdict

_FAMILIES: dict[str, Blame] = {
    "cuda": "driver", "device": "driver", "driver": "driver", "fabric": "driver", "kernel": "driver",
    "nouveau": "driver", "gds": "host", "nccl": "host", "p2p": "host", "pcie": "host", "rdma": "host", "vgpu": "host",
    "container": "stack", "desktop": "stack", "monitoring": "stack", "python": "stack",
}  # fmt: skip
"""What the checks of a family look at; of all others, the GPU."""
_WHY = {
    "environment": "not installed by gpusetup: a warning for its owner",
    "job": "a running job is the cause: a warning",
}


def blamed(identity: str, finding: Finding, *, asked: bool | None) -> Finding:
    """Return a finding with whose fault it is; a failure that is not the host's becomes a warning that says so.

    `asked`: whether somebody asked for what the check looks at; None where that does not matter.
    """
    if finding.verdict not in ("fail", "warn"):
        return finding
    usual: Blame = finding.blame or _FAMILIES.get(identity.partition(".")[0], "gpu")
    if asked is not None and not finding.blame:
        usual = "stack" if asked else "environment"
    items = tuple(_judged(item, usual) for item in finding.items)
    causes = [item for item, before in zip(items, finding.items, strict=True) if before.verdict == finding.verdict]
    grave = [item for item in causes if item.verdict == finding.verdict] or causes
    blame: Blame = grave[0].blame if grave else usual
    verdict = _lenient(finding.verdict, blame)
    text = f"{finding.text} ({_WHY[blame]})" if verdict != finding.verdict else finding.text
    return msgspec.structs.replace(finding, verdict=verdict, blame=blame, items=items, text=text)


def _judged(item: Item, usual: Blame) -> Item:
    if item.verdict not in ("fail", "warn"):
        return item
    blame = item.blame or usual
    return msgspec.structs.replace(item, verdict=_lenient(item.verdict, blame), blame=blame)


def _lenient(verdict: Verdict, blame: Blame) -> Verdict:
    return "warn" if verdict == "fail" and blame in _WHY else verdict
