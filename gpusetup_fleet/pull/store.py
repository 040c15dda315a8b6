"""The collector's database: hashes of tokens, reports, and the newest report of each host.

One thread writes. It commits all waiting reports in one transaction and acknowledges them afterwards: a thousand hosts
at once cost a few commits, not a thousand.
"""

import hashlib
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from gpusetup.errors import BadInputError, reason
from gpusetup.model import stamp
from gpusetup_fleet.model.pull import FleetHost, FleetState, PullReport

FILE = "collector.sqlite3"
_KEPT = 100
"""Reports that are kept of each host."""
_SLACK = 20
_BATCH = 500
_BUSY = 30.0
_DAY = 86400
_AHEAD = _DAY
"""Report numbers are milliseconds of the host's clock: a number this far in the future comes from a wrong clock."""
Role = Literal["host", "reader"]
Receipt = Literal["kept", "replayed"]


class _Waiting(NamedTuple):
    report: PullReport
    body: bytes
    received: float
    answer: Future[Receipt]


class Store:
    """The database of a running collector."""

    def __init__(self, path: Path, keep: int = _KEPT) -> None:
        self.path, self.keep = path, keep
        self._reader, self._reading = _open(path), threading.Lock()
        self._inbox: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write the waiting reports, then end the thread."""
        self._inbox.put(None)
        self._writer.join()
        self._reader.close()

    def who(self, token: str) -> tuple[str, Role] | None:
        """Return name and role of a valid token. Tokens are long and random, so a plain hash does not reveal them."""
        with self._reading:
            row = self._reader.execute(
                "SELECT name, role FROM credentials WHERE digest = ? AND (ends IS NULL OR ends > ?)",
                (_digest(token), time.time()),
            ).fetchone()
        return None if row is None else (row[0], row[1])

    def add(self, report: PullReport, body: bytes) -> Future[Receipt]:
        """Return a future that has its result once the report is on disk, or was already."""
        answer: Future[Receipt] = Future()
        self._inbox.put(_Waiting(report, body, time.time(), answer))
        return answer

    def state(self) -> FleetState:
        """Return the newest report of each host, and the hosts with a token but no report."""
        with self._reading:
            silent = self._reader.execute(
                "SELECT DISTINCT name FROM credentials WHERE role = 'host' AND name NOT IN (SELECT host FROM newest)"
            ).fetchall()
            rows = self._reader.execute("SELECT host, received, body FROM newest").fetchall()
        hosts = {name: FleetHost(received="") for (name,) in silent}
        for host, received, body in rows:
            hosts[host] = FleetHost(received=stamp(received), report=msgspec.json.decode(body, type=PullReport))
        return FleetState(time=stamp(), hosts=dict(sorted(hosts.items())))

    def reports(self, host: str) -> list[PullReport]:
        """Return the kept reports of a host, newest first."""
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
        """Acknowledge after the commit; an error such as a full disk is the answer to each report of the batch."""
        receipts: list[tuple[Future[Receipt], Receipt]] = []
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                receipts += [(one.answer, self._insert(connection, one)) for one in batch]
        except sqlite3.Error as error:
            for one in batch:
                if one.answer.set_running_or_notify_cancel():
                    one.answer.set_exception(error)
            return
        for answer, receipt in receipts:
            if answer.set_running_or_notify_cancel():  # else its host hung up: it retries and gets 409
                answer.set_result(receipt)

    def _insert(self, connection: sqlite3.Connection, one: _Waiting) -> Receipt:
        host, number = one.report.host, one.report.number
        row = connection.execute("SELECT number, since_tidied, floor FROM newest WHERE host = ?", (host,)).fetchone()
        newest, since, floor = row or (-1, 0, -1)
        ahead = int((one.received + _AHEAD) * 1000)
        if newest > ahead >= number:
            newest, since, floor = self._set_right(connection, host, ahead)
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
        else:  # an older report that its host sent late
            connection.execute("UPDATE newest SET since_tidied = ?, floor = ? WHERE host = ?", (since, floor, host))
        return "kept"

    def _set_right(self, connection: sqlite3.Connection, host: str, ahead: int) -> tuple[int, int, int]:
        """Delete reports with numbers of a wrong clock, so that new ones count as new."""
        connection.execute("DELETE FROM reports WHERE host = ? AND number > ?", (host, ahead))
        connection.execute("DELETE FROM newest WHERE host = ?", (host,))
        row = connection.execute(
            "SELECT number, received, body FROM reports WHERE host = ? ORDER BY number DESC LIMIT 1", (host,)
        ).fetchone()
        if row is None:
            return -1, 0, -1
        connection.execute("INSERT INTO newest VALUES(?, ?, ?, ?, 0, -1)", (host, *row))
        return int(row[0]), 0, -1

    def _tidy(self, connection: sqlite3.Connection, host: str, floor: int) -> int:
        """Delete the oldest reports of a host; return the number up to which reports count as replayed."""
        row = connection.execute(
            "SELECT number FROM reports WHERE host = ? ORDER BY number DESC LIMIT 1 OFFSET ?", (host, self.keep)
        ).fetchone()
        if row is None:
            return floor
        connection.execute("DELETE FROM reports WHERE host = ? AND number <= ?", (host, row[0]))
        return int(row[0])


def make_token(
    path: Path, name: str, role: Role, *, days: int = 0, overlap: int = 0, give: Callable[[str], object] = str
) -> str:
    """Return a new token, valid for `days` (0: for ever); the last one stays valid for `overlap` hours.

    If `give` cannot write it, the last one stays valid.
    """
    token, now = secrets.token_urlsafe(32), time.time()
    with _changing(path) as connection:
        who = {"name": name, "role": role, "end": now + overlap * 3600}
        if overlap:  # at most two: the last one and this one
            connection.execute(
                "DELETE FROM credentials WHERE name = :name AND role = :role AND rowid < "
                "(SELECT max(rowid) FROM credentials WHERE name = :name AND role = :role)",
                who,
            )
            connection.execute(
                "UPDATE credentials SET ends = min(coalesce(ends, :end), :end) WHERE name = :name AND role = :role", who
            )
        else:
            connection.execute("DELETE FROM credentials WHERE name = :name AND role = :role", who)
        connection.execute(
            "INSERT INTO credentials VALUES(?, ?, ?, ?, ?)",
            (name, role, _digest(token), stamp(now), now + days * _DAY if days else None),
        )
        give(token)
    return token


def remove_token(path: Path, name: str, role: Role) -> bool:
    """Revoke the tokens of a name; return whether there were any."""
    with _changing(path) as connection:
        gone = connection.execute("DELETE FROM credentials WHERE name = ? AND role = ?", (name, role)).rowcount
    return gone > 0


def forget(path: Path, host: str, *, keep_token: bool = False) -> bool:
    """Delete a host's reports and tokens; return whether there were any."""
    with _changing(path) as connection:
        gone = connection.execute("DELETE FROM reports WHERE host = ?", (host,)).rowcount
        gone += connection.execute("DELETE FROM newest WHERE host = ?", (host,)).rowcount
        if not keep_token:
            gone += connection.execute("DELETE FROM credentials WHERE name = ? AND role = 'host'", (host,)).rowcount
    return gone > 0


@contextmanager
def _changing(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(_open(path)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def _open(path: Path) -> sqlite3.Connection:
    """Open the database with synchronous commits: a report that was acknowledged survives a power cut."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
        connection = sqlite3.connect(path, timeout=_BUSY, check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(Path(__file__).with_name("store.sql").read_text(encoding="utf-8"))
    except (OSError, sqlite3.Error) as error:
        text = f"the collector's database cannot be opened: {reason(error)}"
        raise BadInputError("GS-971", text, path=str(path)) from error
    return connection


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
