"""Offers: signed by an operator, put into the collector's folder, and verified by hosts."""

import fcntl
import re
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from gpusetup.drive import signatures
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError
from gpusetup.model import Reading, stamp
from gpusetup.model.lock import Lock
from gpusetup.plan.lock import read_lock
from gpusetup_fleet.model.pull import Budget, Offer, SignedOffer

NAMESPACE = "gpusetup-offer"
"""The signature's namespace: a signature that the same key made on a matrix release is not valid for an offer."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def checked_name(name: str, path: str) -> str:
    """Return the name of a host, class or domain; raise if it cannot be part of a URL."""
    if not NAME.fullmatch(name):
        raise BadInputError("GS-972", f"{name!r} cannot be used as a name", path=path)
    return name


def path_of(folder: Path, kind: str) -> Path:
    """Return the file of a class's offer in a collector's folder."""
    return folder / "offers" / f"{kind}.json"


def in_words(budget: Budget) -> str:
    """Return a budget as one line of text."""
    if not budget.leases:
        return "no budget"
    said = [f"{budget.at_a_time or 'any number'} at a time", f"{budget.of_a_domain or 'any number'} of a domain"]
    if budget.failures:
        said.append(f"no more after {budget.failures} failed")
    if budget.reboot_hours:
        said.append(f"a reboot is waited for {budget.reboot_hours} h")
    return ", ".join(said)


def publish(
    folder: Path, kind: str, lock: Lock | None, key: Path, *, wave: int, budget: Budget | None, days: float
) -> tuple[Path, Offer]:
    """Sign the next offer of a class and put it in place; a lock or budget of None stays as in the last offer."""
    path = path_of(folder, checked_name(kind, "CLASS"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # hosts refuse a second offer with a serial that they have seen
        before = parsed(path.read_bytes(), str(path))[1] if path.exists() else None
        if lock is None:
            if before is None:
                raise BadInputError(
                    "GS-973", f"there is no offer of class {kind} yet, so it needs a lock", path="--lock"
                )
            lock = before.lock
        now = datetime.now(timezone.utc)
        offer = Offer(
            kind=kind, serial=before.serial + 1 if before is not None else 1, made=stamp(now),
            expires=stamp(now + timedelta(days=days)) if days else "", wave=wave,
            budget=budget or (before.budget if before is not None else Budget()), lock=lock,
        )  # fmt: skip
        put(path, offer, key)
    return path, offer


def put(path: Path, offer: Offer, key: Path) -> None:
    """Sign an offer and write it with its signature, atomically."""
    text = msgspec.json.encode(offer)
    with tempfile.TemporaryDirectory() as scratch:
        content = Path(scratch) / "offer"
        content.write_bytes(text)
        signature = signatures.sign(content, key, use=NAMESPACE).read_text(encoding="ascii")
    raw = msgspec.json.encode(SignedOffer(offer=text.decode(), signature=signature)) + b"\n"
    parsed(raw, str(path))  # no host and no later offer could read what fails here
    write_whole(path, raw)


def opened(raw: bytes, source: str, signers: Path, kind: str) -> Offer:
    """Return an offer; raise if no trusted key signed it or it is for another class."""
    signed, offer = parsed(raw, source)
    with tempfile.TemporaryDirectory() as scratch:
        signature = Path(scratch) / "offer.sig"
        signature.write_text(signed.signature, encoding="utf-8")
        signatures.check(signed.offer.encode(), signature, signers, source, use=NAMESPACE)
    if offer.kind != kind:
        raise BadInputError(
            "GS-974", f"this is the offer of class {offer.kind}, not of {kind}", path=source,
            hint="tell the collector's operator: it serves one class's offer as another's",
        )  # fmt: skip
    read_lock(msgspec.json.encode(offer.lock), source)
    return offer


def expired(offer: Offer, now: datetime) -> bool:
    """Return whether the offer's time is over, so that no host may start."""
    return bool(offer.expires) and offer.expires <= stamp(now)


def parsed(raw: bytes, source: str) -> tuple[SignedOffer, Offer]:
    """Return an offer with and without its signature; does not verify it."""
    with Reading(source, ("GS-974", "this is not an offer of a lock"), hint="make it with: gpusetup fleet offer"):
        signed = msgspec.json.decode(raw, type=SignedOffer)
        return signed, msgspec.json.decode(signed.offer.encode(), type=Offer)
