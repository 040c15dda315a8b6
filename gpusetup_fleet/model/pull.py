"""Documents between hosts that pull and their collector: signed offers to hosts, reports to the collector."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpusetup.model import Document, Success, whole
from gpusetup.model.lock import Lock

Name = Annotated[str, whole(r"[A-Za-z0-9][A-Za-z0-9._-]*", max_length=253)]
"""The name of a host, class or failure domain; used in file paths and in keys of the lease store."""
Text = Annotated[str, Meta(max_length=4000)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Digest = Annotated[str, Meta(max_length=64)]

PullState = Literal[
    "done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "failed", "verify-failed", "waiting", "no-lock"
]


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many hosts may change at the same time."""

    leases: str = ""
    """Comma-separated addresses of the etcd that holds the leases; empty: no limit on concurrent changes."""
    at_a_time: Number = 0
    """Limit for the whole fleet; 0: none."""
    of_a_domain: Number = 0
    """Limit for each failure domain; 0: none."""
    failures: Number = 0
    """After a lock failed on this many hosts, no other host starts it; 0: no limit."""
    reboot_hours: Number = 0
    """How long a host keeps its lease while it waits for its reboot; 0: it releases it."""


class Offer(Document, frozen=True, kw_only=True, tag="gpusetup/offer/1"):
    """The lock for the hosts of a class; this is the part that is signed."""

    kind: Name
    serial: Number
    """Increases with each offer of the class: a host refuses one older than the newest it has seen."""
    made: str
    expires: str = ""
    """After this time no host applies it; empty: never."""
    wave: Number = 0
    """Hosts up to this wave may change; 0: all."""
    budget: Budget = Budget()
    lock: Lock


class SignedOffer(Document, frozen=True, kw_only=True, tag="gpusetup/signed-offer/1"):
    """An offer as hosts fetch it: its exact text, and the signature of that text by `ssh-keygen -Y sign`."""

    offer: str
    signature: str


class PullReport(Document, frozen=True, kw_only=True, tag="gpusetup/pull-report/1"):
    """The result of one host's pull."""

    host: Name
    number: Number
    """Increases with each report of the host; a repeated number is a replay."""
    time: Annotated[str, Meta(max_length=40)]
    kind: Name
    domain: Name | Literal[""] = ""
    wave: Number = 1
    state: PullState
    serial: Number = 0
    """Serial of the host's current offer; 0: it has none."""
    wanted: Digest = ""
    """Digest of that offer's lock."""
    lock: Digest = ""
    """Digest of the applied lock."""
    stack: Annotated[str, Meta(max_length=1000)] = ""
    """The applied stack on one line."""
    reference: Annotated[str, Meta(max_length=20)] = ""
    message: Text = ""
    """Why the offer is not applied."""
    hint: Text = ""
    notes: tuple[Text, ...] = ()
    """Other remarks: no lease was requested, the collector was unreachable."""
    changed: Number = 0
    seconds: float = 0.0
    gpusetup: Annotated[str, Meta(max_length=60)] = ""


class FleetHost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The collector's state of one host."""

    received: str
    """When its newest report arrived; empty: it has a token and never reported."""
    report: PullReport | None = None


class FleetState(Success, frozen=True, kw_only=True, tag="gpusetup/fleet/1"):
    """The newest report of each host."""

    time: str
    hosts: dict[str, FleetHost]


class OfferMade(Success, frozen=True, kw_only=True, tag="gpusetup/offer-made/1"):
    """An offer that was written to a collector's folder."""

    path: str
    kind: str
    serial: int
    wave: int
    expires: str
    lock: str


class HostForgotten(Success, frozen=True, kw_only=True, tag="gpusetup/host-forgotten/1"):
    """A host that was removed from a collector."""

    name: str
    token: bool
    """Its token was revoked too."""


class TokenMade(Success, frozen=True, kw_only=True, tag="gpusetup/token-made/1"):
    """A token that was written to a file, or revoked if `path` is empty."""

    name: str
    role: Literal["host", "reader"]
    path: str
