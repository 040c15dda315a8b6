"""A finished machine, looked at again: another pinned lock is applied, anything else is only told. Nothing reboots."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from gpusetup.bootstrap.callback import Callback
from gpusetup.bootstrap.effects import HOME, LOCK_FILE, Effects, boot_id
from gpusetup.bootstrap.record import alone, load, message, save
from gpusetup.bootstrap.run import bootstrap
from gpusetup.errors import PreflightError
from gpusetup.model.status import FINAL, Recheck, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.bootstrap.config import Config

__all__ = ["recheck", "why_apply"]


def recheck(config: Config, log: Callable[[str], None]) -> Status:
    """Apply when there is a reason to, else look what differs."""
    status = load()
    if status is None:
        raise PreflightError(
            "GS-752",
            "no bootstrap has run on this machine",
            note="nothing was changed",
            hint="gpusetup cloud-init bootstrap run",
        )
    reason = why_apply(status, _pinned(config), boot_id())
    if reason:
        log(f"re-check: {reason}")
        return bootstrap(config, log, asks=True)
    callback = Callback(config.callback)
    with alone(HOME / "lock"):
        _, text = Effects(config, log).gpusetup("drift")
        found = _drift(text)
        if found is None:
            log("re-check: could not examine this machine; the next re-check tries again")
            return status
        status = replace(status, recheck=found)
        save(status)
        log(message(status) if found.differences else f"re-check: {found.state}")
        callback.tell(status)
        callback.settle(20)
    return status


def why_apply(status: Status, pinned: str, boot: str) -> str:
    """Return why the stack is to be applied, or nothing."""
    if status.state not in FINAL:
        return "an apply was interrupted"
    if status.state == "nothing-to-do":
        return ""
    if pinned != status.lock:
        return f"the lock {pinned[:12]} is pinned, {status.lock[:12] or 'none'} was applied"
    if status.state == "pending-reboot" and status.boot != boot:
        return "the machine was rebooted"
    return ""


def _pinned(config: Config) -> str:
    if config.lock_url:
        return config.lock_sha256
    return hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest() if LOCK_FILE.exists() else ""


def _drift(text: str) -> Recheck | None:
    try:
        document: dict[str, Any] = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    told: dict[str, Any] = next(iter(document.get("hosts", {}).values()), {})
    if told.get("state") in {None, "failed", "unreachable"}:
        return None
    differences = tuple(
        f"{item['what']}: was {item['was']}, is {item['now']}" for item in told.get("differences") or ()
    )
    # The inventory that drift looked at is the bootstrap's own; the command for a person names none.
    by_hand = dict.fromkeys(item["hint"] for item in told.get("differences") or () if item.get("hint"))
    mend = "; ".join((*(["gpusetup cloud-init bootstrap run"] if told.get("mend") else []), *by_hand))
    return Recheck(
        time=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), state=str(told["state"]),
        differences=differences, mend=mend,
    )  # fmt: skip
