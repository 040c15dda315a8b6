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

PREFIX = "gpusetup/changing/"
FAILED = "gpusetup/failed/"
"""Below it, for each lock, the hosts on which it failed: LOCK/HOST. They say it themselves and take it back."""
_LIFE = 900
"""Seconds that a place stays taken after its host was cut off."""
_TRIES = 12
_TIMEOUT = 15.0
_NO_DOMAIN = "-"


class Access(NamedTuple):
    """How the store is reached: whose word is trusted, and who asks."""

    ca: str | bool = True
    certificate: str = ""
    """The client's certificate and key, in one file or two."""
    key: str = ""
    login: tuple[str, str] | None = None
    """A user of etcd's own, and its password."""


class Refused(NamedTuple):
    """Why there is no lease."""

    away: bool
    """The store did not answer; else all places are taken."""
    text: str


class Lease:
    """A place that is held until it is given back, or for a quarter of an hour after this process was cut off."""

    def __init__(self, store: _Etcd, number: str, host: str, domain: str) -> None:
        self.store, self.number, self.host, self.domain = store, number, host, domain
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

    def hold(self, seconds: int) -> bool:
        """Leave the place taken for so long, though this process ends; tell whether it is."""
        self.ended.set()
        self.keeper.join()
        with suppress(Unfetched, KeyError):
            longer = str(self.store.ask("lease/grant", TTL=seconds)["ID"])
            key, value = _coded(_place(self.host, self.domain)), _coded(self.host)
            self.store.ask("kv/put", key=key, value=value, lease=longer)
            with suppress(Unfetched):
                self.store.ask("lease/revoke", ID=self.number)  # the key is no longer bound to it
            return True
        return False

    def tell(self, lock: str, *, failed: bool) -> bool:
        """Say that a lock failed here, or take that back; tell whether the store knows."""
        key = _coded(f"{FAILED}{lock}/{self.host}")
        with suppress(Unfetched):
            if failed:
                self.store.ask("kv/put", key=key, value=_coded(self.host))
            else:
                self.store.ask("kv/deleterange", key=key)
            return True
        return False

    def _keep(self) -> None:
        alive = time.monotonic()
        while not self.ended.wait(_LIFE / 6):
            with suppress(Unfetched):
                if int(self.store.ask("lease/keepalive", ID=self.number).get("result", {}).get("TTL", 0)) > 0:
                    alive = time.monotonic()
            self.lost = self.lost or time.monotonic() - alive > _LIFE


def take(budget: Budget, host: str, domain: str, access: Access | None = None, lock: str = "") -> Lease | Refused:
    """Take a place within the budget for a change to this lock, or say why there is none."""
    store = _Etcd(budget.leases, access or Access())
    try:
        if budget.failures and (stopped := _stopped(store, budget, host, lock)):
            return Refused(False, stopped)
        number = str(store.ask("lease/grant", TTL=_LIFE)["ID"])
        full = ""
        for attempt in range(_TRIES):
            counted, others = store.changing(_place(host, domain))
            full = _full(budget, others, domain)
            if full:
                break
            if store.put(_place(host, domain), host, number, counted):
                return Lease(store, number, host, domain)
            time.sleep(random.uniform(0, 0.1 * (attempt + 1)))  # noqa: S311 - spreads load, guards nothing
        with suppress(Unfetched):
            store.ask("lease/revoke", ID=number)
    except Unfetched as error:
        return Refused(True, f"the lease store does not answer: {error}")
    except (KeyError, TypeError, ValueError) as error:
        return Refused(True, f"the lease store does not answer as etcd does: {error!r}")
    return Refused(False, full or "others took the places while this host asked")


def _place(host: str, domain: str) -> str:
    return f"{PREFIX}{domain or _NO_DOMAIN}/{host}"


def _stopped(store: _Etcd, budget: Budget, host: str, lock: str) -> str:
    """Return why nobody begins any more: enough hosts failed. One of those may try again, or nobody could mend it."""
    failed = [key.rpartition("/")[2] for key in store.keys(f"{FAILED}{lock}/")[1]]
    if len(failed) < budget.failures or host in failed:
        return ""
    return f"lock {lock[:12]} failed on {len(failed)} hosts, and after {budget.failures} the fleet stops"


def _full(budget: Budget, others: list[str], domain: str) -> str:
    near = [key for key in others if key.startswith(f"{PREFIX}{domain or _NO_DOMAIN}/")]
    if budget.at_a_time and len(others) >= budget.at_a_time:
        return f"{len(others)} hosts change now, as many as the budget allows"
    if domain and budget.of_a_domain and len(near) >= budget.of_a_domain:
        return f"{len(near)} hosts of {domain} change now, as many as the budget allows"
    return ""


class _Etcd:
    """etcd's JSON gateway; its version 3 API, for 3.4 and newer. Of several members the first that answers is asked."""

    def __init__(self, addresses: str, access: Access) -> None:
        self.addresses = [address.strip().rstrip("/") for address in addresses.split(",")]
        self.access = access
        self.token = ""

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Return an answer."""
        if self.access.login is not None and not self.token:
            name, password = self.access.login
            self.token = str(self._asked("auth/authenticate", {"name": name, "password": password})["token"])
        return self._asked(what, fields)

    def _asked(self, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        troubles: list[str] = []
        for address in tuple(self.addresses):
            try:
                return self._of(address, what, fields)
            except Unfetched as error:  # noqa: PERF203 - each member is another one
                troubles.append(str(error))
                self.addresses = [*(one for one in self.addresses if one != address), address]
        raise Unfetched("; ".join(troubles))

    def _of(self, address: str, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        with session(self.access.ca) as opened:
            if self.access.certificate:
                opened.cert = (self.access.certificate, self.access.key or self.access.certificate)
            headers = {"Authorization": self.token} if self.token else {}
            answer = opened.post(
                f"{address}/v3/{what}", json=fields, timeout=_TIMEOUT, allow_redirects=False, headers=headers
            )
            if answer.status_code != 200:
                self.token = ""  # it ends after a while: the next question signs in anew
                said = " ".join(answer.text.split())[:200]
                raise Unfetched(f"{answer.status_code} {answer.reason} for {address}/v3/{what}: {said}")
            found = answer.json()
        if not isinstance(found, dict):
            raise TypeError(found)
        return found

    def keys(self, prefix: str) -> tuple[int, list[str]]:
        """Return the revision at which was counted, and the keys below a prefix."""
        found = self.ask("kv/range", key=_coded(prefix), range_end=_coded(_after(prefix)), keys_only=True)
        keys = [base64.b64decode(one["key"]).decode() for one in found.get("kvs", ())]
        return int(found["header"]["revision"]), keys

    def changing(self, own: str) -> tuple[int, list[str]]:
        """Return the revision at which was counted, and the keys of the other hosts that change."""
        counted, keys = self.keys(PREFIX)
        return counted, [key for key in keys if key != own]

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
