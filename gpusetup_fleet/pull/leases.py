"""Permission to change now: a lease in etcd, through its JSON gateway.

A host that changes holds one key, PREFIX/HOST/DOMAIN, which lives as long as its lease. The transaction that writes it
fails if any key below the prefix was written after the keys were counted, so two hosts never take the same place.
Each key begins with its host: each host's etcd user can write that host's keys only, and a host counts once.
"""

import base64
import random
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

from gpusetup.bootstrap.web import Unfetched, session
from gpusetup.drive.causes import counted
from gpusetup_fleet.model.pull import Budget

PREFIX = "gpusetup/changing/"
FAILED = "gpusetup/failed/"
"""Keys HOST/LOCK for each lock that failed on a host; the host writes and deletes them."""
_LIFE = 900
"""Seconds until the place of a host that lost its connection is free again."""
_TRIES = 12
_TIMEOUT = 15.0
_NO_DOMAIN = "-"


class Access(NamedTuple):
    """How to reach the lease store: trusted authority, client certificate, login."""

    ca: str | bool = True
    certificate: str = ""
    """The client's certificate and key, in one file or two."""
    key: str = ""
    login: tuple[str, str] | None = None
    """An etcd user and its password."""


class Refused(NamedTuple):
    """Why there is no lease."""

    away: bool
    """True: the store did not answer. False: all places are taken."""
    text: str


class Lease:
    """A place in the budget: held until it is given back, or until `_LIFE` seconds after this process is gone."""

    def __init__(self, store: "_Etcd", number: str, host: str, domain: str) -> None:
        self.store, self.number, self.host, self.domain = store, number, host, domain
        self.ended = threading.Event()
        self.lost = ""
        """Why others may have taken the place: etcd ended the lease, or did not answer for as long as a lease lives."""
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()

    def give_back(self) -> None:
        """Free the place; without an answer from the store it expires."""
        self.ended.set()
        self.keeper.join()
        with suppress(Unfetched):
            self.store.ask("lease/revoke", ID=self.number)

    def hold(self, seconds: int) -> bool:
        """Keep the place taken for this many seconds after this process ends; return whether that worked."""
        self.ended.set()
        self.keeper.join()
        with suppress(Unfetched):
            longer = self.store.granted(seconds)
            key, value = _coded(_place(self.host, self.domain)), _coded(self.host)
            self.store.ask("kv/put", key=key, value=value, lease=longer)
            with suppress(Unfetched):
                self.store.ask("lease/revoke", ID=self.number)  # the key is no longer bound to it
            return True
        return False

    def tell(self, lock: str, *, failed: bool) -> bool:
        """Record that a lock failed on this host, or delete that record; return whether the store took it."""
        key = _coded(f"{FAILED}{self.host}/{lock}")
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
            try:
                if not self.store.kept_alive(self.number):
                    self.lost = "the lease store ended it"
                    return
                alive = time.monotonic()
            except Unfetched as error:  # noqa: PERF203 - each is another moment
                if time.monotonic() - alive > _LIFE:
                    self.lost = f"the lease store did not answer: {error}"


def take(budget: Budget, host: str, domain: str, access: Access | None = None, lock: str = "") -> Lease | Refused:
    """Take a place in the budget for a change to this lock, or return why there is none."""
    store = _Etcd(budget.leases, access or Access())
    try:
        if budget.failures and (stopped := _stopped(store, budget, host, lock)):
            return Refused(False, stopped)
        number = store.granted(_LIFE)
        full = ""
        for attempt in range(_TRIES):
            counted, others = store.changing(host)
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
    return Refused(False, full or "others took the places while this host asked")


def _place(host: str, domain: str) -> str:
    return f"{PREFIX}{host}/{domain or _NO_DOMAIN}"


def _parts(key: str, prefix: str) -> tuple[str, str]:
    host, _, text = key.removeprefix(prefix).partition("/")
    return host, text


def _stopped(store: "_Etcd", budget: Budget, host: str, lock: str) -> str:
    """Return why no other host may start with this lock: too many failed. Those that failed may retry."""
    failed = {name for name, other in (_parts(key, FAILED) for key in store.keys(FAILED)[1]) if other == lock}
    if len(failed) < budget.failures or host in failed:
        return ""
    return f"lock {lock[:12]} failed on {counted(len(failed), 'host')}, and after {budget.failures} the fleet stops"


def _full(budget: Budget, others: list[tuple[str, str]], domain: str) -> str:
    hosts = {name for name, _ in others}
    near = {name for name, place in others if place == domain}
    if budget.at_a_time and len(hosts) >= budget.at_a_time:
        return f"changing now: {counted(len(hosts), 'host')}, as many as the budget allows"
    if domain and budget.of_a_domain and len(near) >= budget.of_a_domain:
        return f"changing now: {counted(len(near), 'host')} of {domain}, as many as the budget allows"
    return ""


class _Etcd:
    """etcd's JSON gateway, API version 3 (etcd 3.4 and newer). Of several members the first that answers is used."""

    def __init__(self, addresses: str, access: Access) -> None:
        self.addresses = [address.strip().rstrip("/") for address in addresses.split(",")]
        self.access = access
        self.token = ""

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request; sign in first where a login is given."""
        if self.access.login is not None and not self.token:
            name, password = self.access.login
            self.token = _text(self._asked("auth/authenticate", {"name": name, "password": password}), "token")
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
                self.token = ""  # it may have expired: the next request signs in again
                said = " ".join(answer.text.split())[:200]
                raise Unfetched(f"{answer.status_code} {answer.reason} for {address}/v3/{what}: {said}")
            found = answer.json()
        if not isinstance(found, dict):
            raise Unfetched(f"{address} does not answer as etcd does: {str(found)[:80]!r}")
        return found

    def granted(self, seconds: int) -> str:
        """Return the number of a new lease with this lifetime."""
        return _text(self.ask("lease/grant", TTL=seconds), "ID")

    def kept_alive(self, number: str) -> bool:
        """Renew a lease; return whether it still exists."""
        result = self.ask("lease/keepalive", ID=number).get("result")
        if not isinstance(result, dict):
            raise Unfetched(f"the lease store does not answer as etcd does: {str(result)[:80]!r}")
        return _number(result.get("TTL", 0)) > 0

    def keys(self, prefix: str) -> tuple[int, list[str]]:
        """Return the store's revision and the keys below a prefix at that revision."""
        found = self.ask("kv/range", key=_coded(prefix), range_end=_coded(_after(prefix)), keys_only=True)
        try:
            keys = [base64.b64decode(one["key"]).decode() for one in found.get("kvs", ())]
            return int(found["header"]["revision"]), keys
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unfetched(f"the lease store does not answer as etcd does: {error!r}") from error

    def changing(self, own: str) -> tuple[int, list[tuple[str, str]]]:
        """Return the store's revision, and the other hosts that change with their domains."""
        counted, keys = self.keys(PREFIX)
        return counted, [(name, place) for name, place in (_parts(key, PREFIX) for key in keys) if name != own]

    def put(self, key: str, value: str, lease: str, counted: int) -> bool:
        """Write a key unless a key below PREFIX was written after revision `counted`; return whether it was written."""
        untouched = {
            "key": _coded(PREFIX), "range_end": _coded(_after(PREFIX)),
            "target": "MOD", "result": "LESS", "mod_revision": str(counted + 1),
        }  # fmt: skip
        put = {"request_put": {"key": _coded(key), "value": _coded(value), "lease": lease}}
        return bool(self.ask("kv/txn", compare=[untouched], success=[put]).get("succeeded"))


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise Unfetched(f"the lease store does not answer as etcd does: no {name}")
    return value


def _number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise Unfetched(f"the lease store does not answer as etcd does: {value!r} is no number") from None


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
