"""The collector's database: tokens by their hash, reports as they came, and the newest of each host.

One thread writes. It takes whatever waits, writes all of it in one transaction and only then says that it is there: a
thousand hosts at once cost as many commits as the disk makes in that time, not a thousand.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import sqlite3
import threading
import time
from concurrent.futures import Future
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.model.pull import FleetHost, FleetState, PullReport

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["FILE", "Receipt", "Role", "Store", "make_token", "remove_token"]

FILE = "collector.sqlite3"
_KEPT = 100
"""Reports of one host."""
_SLACK = 20
_BATCH = 500
_BUSY = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokens(
  name TEXT NOT NULL, role TEXT NOT NULL, digest BLOB NOT NULL UNIQUE, made TEXT NOT NULL, PRIMARY KEY(name, role));
CREATE TABLE IF NOT EXISTS reports(
  host TEXT NOT NULL, number INTEGER NOT NULL, received REAL NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(host, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS newest(
  host TEXT PRIMARY KEY, number INTEGER NOT NULL, received REAL NOT NULL, body BLOB NOT NULL,
  since_tidied INTEGER NOT NULL, floor INTEGER NOT NULL) WITHOUT ROWID;
"""
Role = Literal["host", "reader"]
Receipt = Literal["kept", "replayed"]


class _Waiting(NamedTuple):
    report: PullReport
    body: bytes
    received: float
    answer: Future[Receipt]


class Store:
    """The database of a collector that runs."""

    def __init__(self, path: Path, keep: int = _KEPT) -> None:
        self.path, self.keep = path, keep
        self._reader, self._reading = _open(path), threading.Lock()
        self._inbox: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write what waits, then end."""
        self._inbox.put(None)
        self._writer.join()
        self._reader.close()

    def who(self, token: str) -> tuple[str, Role] | None:
        """Return whose token this is. Tokens are random and long, so their plain hash gives nothing away."""
        with self._reading:
            row = self._reader.execute("SELECT name, role FROM tokens WHERE digest = ?", (_digest(token),)).fetchone()
        return None if row is None else (row[0], row[1])

    def add(self, report: PullReport, body: bytes) -> Receipt:
        """Return once the report is on disk, or was there before."""
        answer: Future[Receipt] = Future()
        self._inbox.put(_Waiting(report, body, time.time(), answer))
        return answer.result()

    def state(self) -> FleetState:
        """Return the newest report of each host, and those that have a token and said nothing yet."""
        with self._reading:
            silent = self._reader.execute(
                "SELECT name FROM tokens WHERE role = 'host' AND name NOT IN (SELECT host FROM newest)"
            ).fetchall()
            rows = self._reader.execute("SELECT host, received, body FROM newest").fetchall()
        hosts = {name: FleetHost(received="") for (name,) in silent}
        for host, received, body in rows:
            hosts[host] = FleetHost(received=_time(received), report=msgspec.json.decode(body, type=PullReport))
        return FleetState(time=_time(time.time()), hosts=dict(sorted(hosts.items())))

    def reports(self, host: str) -> list[PullReport]:
        """Return what is kept of a host, the newest first."""
        with self._reading:
            rows = self._reader.execute("SELECT body FROM reports WHERE host = ? ORDER BY number DESC", (host,))
            return [msgspec.json.decode(body, type=PullReport) for (body,) in rows]

    def _write(self) -> None:
        connection = _open(self.path)
        ended = False
        while not ended:
            batch: list[_Waiting] = []
            one = self._inbox.get()
            while one is not None:
                batch.append(one)
                if len(batch) == _BATCH:
                    break
                try:
                    one = self._inbox.get_nowait()
                except queue.Empty:
                    break
            ended = one is None
            if batch:
                self._commit(connection, batch)
        connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: Iterable[_Waiting]) -> None:
        """Acknowledge after the commit, never before; a full disk is an answer to each of them, not the end."""
        receipts: list[tuple[Future[Receipt], Receipt]] = []
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                receipts += [(one.answer, self._insert(connection, one)) for one in batch]
        except sqlite3.Error as error:
            for one in batch:
                one.answer.set_exception(error)
            return
        for answer, receipt in receipts:
            answer.set_result(receipt)

    def _insert(self, connection: sqlite3.Connection, one: _Waiting) -> Receipt:
        host, number = one.report.host, one.report.number
        row = connection.execute("SELECT number, since_tidied, floor FROM newest WHERE host = ?", (host,)).fetchone()
        newest, since, floor = row or (-1, 0, -1)
        if number <= floor:
            return "replayed"
        added = connection.execute(
            "INSERT OR IGNORE INTO reports VALUES(?, ?, ?, ?)", (host, number, one.received, one.body)
        )
        if added.rowcount == 0:
            return "replayed"
        since += 1
        if since > self.keep + _SLACK:
            since, floor = self.keep, self._tidy(connection, host, floor)
        if number > newest:
            connection.execute(
                "INSERT OR REPLACE INTO newest VALUES(?, ?, ?, ?, ?, ?)",
                (host, number, one.received, one.body, since, floor),
            )
        else:  # one that waited on its host while a newer one got through
            connection.execute("UPDATE newest SET since_tidied = ?, floor = ? WHERE host = ?", (since, floor, host))
        return "kept"

    def _tidy(self, connection: sqlite3.Connection, host: str, floor: int) -> int:
        """Drop the oldest reports of a host; return the number up to which one that comes again is known to be old."""
        row = connection.execute(
            "SELECT number FROM reports WHERE host = ? ORDER BY number DESC LIMIT 1 OFFSET ?", (host, self.keep)
        ).fetchone()
        if row is None:
            return floor
        connection.execute("DELETE FROM reports WHERE host = ? AND number <= ?", (host, row[0]))
        return int(row[0])


def make_token(path: Path, name: str, role: Role) -> str:
    """Return a new token; the one of before, if there was one, is worth nothing from now on."""
    token = secrets.token_urlsafe(32)
    connection = _open(path)
    with connection:
        made = _time(time.time())
        connection.execute("INSERT OR REPLACE INTO tokens VALUES(?, ?, ?, ?)", (name, role, _digest(token), made))
    connection.close()
    return token


def remove_token(path: Path, name: str, role: Role) -> bool:
    """Take a token back; return whether there was one."""
    connection = _open(path)
    with connection:
        gone = connection.execute("DELETE FROM tokens WHERE name = ? AND role = ?", (name, role)).rowcount
    connection.close()
    return gone > 0


def _open(path: Path) -> sqlite3.Connection:
    """Open it so that a commit is on the disk: acknowledged means that a power cut does not take it back."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
        connection = sqlite3.connect(path, timeout=_BUSY, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
    except (OSError, sqlite3.Error) as error:
        raise BadInputError(
            "GS-971", f"the collector's database cannot be opened: {error}", path=str(path),
            hint="name the collector's folder, which you may write to",
        ) from error  # fmt: skip
    return connection


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
