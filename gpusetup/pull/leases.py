"""Permission to change now: a lease in etcd, asked for through its JSON gateway. Who counts is etcd, never a host.

A host that changes is one key, PREFIX/DOMAIN/HOST, that lives as long as its lease. It is written by a transaction that
fails when any other key below the prefix was written since the keys were counted, so two hosts never take one place.
"""

from __future__ import annotations

import base64
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup.bootstrap.web import Unfetched, session

if TYPE_CHECKING:
    from gpusetup.model.pull import Budget

__all__ = ["PREFIX", "Lease", "Refused", "take"]

PREFIX = "gpusetup/changing/"
_LIFE = 900
"""Seconds that a place stays taken after its host was cut off."""
_TRIES = 12
_TIMEOUT = 15.0
_NO_DOMAIN = "-"


class Refused(NamedTuple):
    """Why there is no lease."""

    away: bool
    """The store did not answer; else all places are taken."""
    text: str


class Lease:
    """A place that is held until it is given back, or for a quarter of an hour after this process was cut off."""

    def __init__(self, store: _Etcd, number: str) -> None:
        self.store, self.number = store, number
        self.ended = threading.Event()
        self.lost = False
        """It could not be kept alive for the time it lives: others may have taken the place."""
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()

    def give_back(self) -> None:
        """Make the place free; when the store is away, time does."""
        self.ended.set()
        self.keeper.join()
        with suppress(Unfetched):
            self.store.ask("lease/revoke", ID=self.number)

    def _keep(self) -> None:
        alive = time.monotonic()
        while not self.ended.wait(_LIFE / 6):
            with suppress(Unfetched):
                if int(self.store.ask("lease/keepalive", ID=self.number).get("result", {}).get("TTL", 0)) > 0:
                    alive = time.monotonic()
            self.lost = self.lost or time.monotonic() - alive > _LIFE


def take(budget: Budget, host: str, domain: str, ca: str | bool = True) -> Lease | Refused:
    """Take a place within the budget, or say why there is none."""
    store = _Etcd(budget.leases.rstrip("/"), ca)
    try:
        number = str(store.ask("lease/grant", TTL=_LIFE)["ID"])
        full = ""
        for attempt in range(_TRIES):
            counted, others = store.changing(host, domain or _NO_DOMAIN)
            full = _full(budget, others, domain)
            if full:
                break
            if store.put(f"{PREFIX}{domain or _NO_DOMAIN}/{host}", host, number, counted):
                return Lease(store, number)
            time.sleep(random.uniform(0, 0.1 * (attempt + 1)))  # noqa: S311 - spreads load, guards nothing
        with suppress(Unfetched):
            store.ask("lease/revoke", ID=number)
    except Unfetched as error:
        return Refused(True, f"the lease store does not answer: {error}")
    except (KeyError, TypeError, ValueError) as error:
        return Refused(True, f"the lease store does not answer as etcd does: {error!r}")
    return Refused(False, full or "others took the places while this host asked")


def _full(budget: Budget, others: list[str], domain: str) -> str:
    near = [key for key in others if key.startswith(f"{PREFIX}{domain or _NO_DOMAIN}/")]
    if budget.at_a_time and len(others) >= budget.at_a_time:
        return f"{len(others)} hosts change now, as many as the budget allows"
    if domain and budget.of_a_domain and len(near) >= budget.of_a_domain:
        return f"{len(near)} hosts of {domain} change now, as many as the budget allows"
    return ""


class _Etcd:
    """etcd's JSON gateway; its version 3 API, for 3.4 and newer."""

    def __init__(self, address: str, ca: str | bool) -> None:
        self.address, self.ca = address, ca

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Return an answer."""
        with session(self.ca) as opened:
            answer = opened.post(f"{self.address}/v3/{what}", json=fields, timeout=_TIMEOUT, allow_redirects=False)
            if answer.status_code != 200:
                raise Unfetched(f"{answer.status_code} {answer.reason} for {self.address}/v3/{what}")
            found = answer.json()
        if not isinstance(found, dict):
            raise TypeError(found)
        return found

    def changing(self, host: str, domain: str) -> tuple[int, list[str]]:
        """Return the revision at which was counted, and the keys of the other hosts that change."""
        found = self.ask("kv/range", key=_coded(PREFIX), range_end=_coded(_after(PREFIX)), keys_only=True)
        keys = [base64.b64decode(one["key"]).decode() for one in found.get("kvs", ())]
        own = f"{PREFIX}{domain}/{host}"
        return int(found["header"]["revision"]), [key for key in keys if key != own]

    def put(self, key: str, value: str, lease: str, counted: int) -> bool:
        """Write a key unless any of the keys that were counted was written since."""
        untouched = {
            "key": _coded(PREFIX), "range_end": _coded(_after(PREFIX)),
            "target": "MOD", "result": "LESS", "mod_revision": str(counted + 1),
        }  # fmt: skip
        put = {"request_put": {"key": _coded(key), "value": _coded(value), "lease": lease}}
        return bool(self.ask("kv/txn", compare=[untouched], success=[put]).get("succeeded"))


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
