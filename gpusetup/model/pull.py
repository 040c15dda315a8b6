"""What passes between hosts that pull and their collector: signed offers one way, reports the other way."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpusetup.model import Document
from gpusetup.model.lock import Lock

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
"""A host, a class, a failure domain: part of a path here and of a key in the lease store."""
Text = Annotated[str, Meta(max_length=4000)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Digest = Annotated[str, Meta(max_length=64)]

PullState = Literal[
    "done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "failed", "verify-failed", "waiting", "no-lock"
]


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many hosts may change at the same moment."""

    leases: str = ""
    """Addresses of the etcd that holds the leases, with commas; empty: every host changes when it likes."""
    at_a_time: Number = 0
    """In the whole fleet; 0: any number."""
    of_a_domain: Number = 0
    """Of one failure domain; 0: any number."""
    failures: Number = 0
    """After so many hosts on which a lock failed no other host begins it; 0: however many fail."""
    reboot_hours: Number = 0
    """So long at most a host keeps its place while it waits for its reboot; 0: it gives it back."""


class Offer(Document, frozen=True, kw_only=True, tag="gpusetup/offer/1"):
    """What the hosts of a class are to have; the part that is signed."""

    kind: Name
    serial: Number
    """Grows with each offer of the class: a host refuses one that is older than what it has seen."""
    made: str
    expires: str = ""
    """From then on no host changes by it; empty: never."""
    wave: Number = 0
    """Hosts up to this wave may change; 0: all."""
    budget: Budget = Budget()
    lock: Lock


class SignedOffer(Document, frozen=True, kw_only=True, tag="gpusetup/signed-offer/1"):
    """An offer as it is fetched: its exact text, and what `ssh-keygen -Y sign` said about that text."""

    offer: str
    signature: str


class PullReport(Document, frozen=True, kw_only=True, tag="gpusetup/pull-report/1"):
    """How a pull of one host went."""

    host: Name
    number: Number
    """Grows with each report of the host; the same one twice is a replay."""
    time: Annotated[str, Meta(max_length=40)]
    kind: Name
    domain: Name | Literal[""] = ""
    wave: Number = 1
    state: PullState
    serial: Number = 0
    """Of the offer that the host goes by; 0: it has none."""
    wanted: Digest = ""
    """Digest of that offer's lock."""
    lock: Digest = ""
    """Digest of the lock that is applied."""
    stack: Annotated[str, Meta(max_length=1000)] = ""
    """What that lock brought, in a line."""
    reference: Annotated[str, Meta(max_length=20)] = ""
    message: Text = ""
    """Why it is not done."""
    hint: Text = ""
    notes: tuple[Text, ...] = ()
    """What else to know: no lease was asked for, the collector was away."""
    changed: Number = 0
    seconds: float = 0.0
    gpusetup: Annotated[str, Meta(max_length=60)] = ""


class FleetHost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host as the collector knows it."""

    received: str
    """When its newest report came; empty: it has a token and never reported."""
    report: PullReport | None = None


class FleetState(Document, frozen=True, kw_only=True, tag="gpusetup/fleet/1"):
    """The newest report of each host."""

    ok: Literal[True] = True
    time: str
    hosts: dict[str, FleetHost]


class OfferMade(Document, frozen=True, kw_only=True, tag="gpusetup/offer-made/1"):
    """An offer that was put into a collector's folder."""

    ok: Literal[True] = True
    path: str
    kind: str
    serial: int
    wave: int
    expires: str
    lock: str


class HostForgotten(Document, frozen=True, kw_only=True, tag="gpusetup/host-forgotten/1"):
    """A host of which a collector knows nothing any more."""

    ok: Literal[True] = True
    name: str
    token: bool
    """Its token was taken back too."""


class TokenMade(Document, frozen=True, kw_only=True, tag="gpusetup/token-made/1"):
    """A token that was written to a file, or taken back where `path` is empty."""

    ok: Literal[True] = True
    name: str
    role: Literal["host", "reader"]
    path: str
