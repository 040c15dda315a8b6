"""What a finding needs before the GPU is well again, and what became of the attempt."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Need = Literal[
    "nothing", "program", "update", "look", "reset", "drain", "drain-reset", "reboot", "hands", "support",
]  # fmt: skip
"""From the least to the gravest."""
Step = Literal["drain", "reset", "reboot"]
"""What gpusetup can do about it itself."""


class Recovery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed, who says so, and of which GPUs (PCI addresses; none: of the host as a whole)."""

    need: Need
    text: str
    why: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """What `gpusetup doctor --apply` does, in this order; none where a person must act."""
    commands: tuple[str, ...] = ()


class Recovered(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of one host's recovery."""

    state: Literal[
        "nothing-to-do", "by-hand", "planned", "refused", "unreachable", "failed", "pending-reboot", "done", "not-gone",
    ]  # fmt: skip
    """`planned`: only shown; `by-hand`: none of it is ours to do; `not-gone`: done, and the finding is still there."""
    recovery: Recovery | None = None
    did: tuple[str, ...] = ()
    reference: str = ""
    message: str = ""
    hint: str = ""
