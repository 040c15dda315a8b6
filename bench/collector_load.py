"""What a collector handles under attack: 5,000 hosts that report once a minute, then as fast as they can.

Ten processes send reports, each over a new connection from its own address. Meanwhile 2,000 connections send nothing
or a few bytes and reconnect when they are closed; others send wrong tokens and bodies that are too large. Server, hosts
and attackers share this machine's loopback. It ends after three minutes at the latest. GPUSETUP_BENCH_HOSTS changes
the number of hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import multiprocessing
import os
import random
import resource
import sqlite3
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.found import Found, Row
from gpusetup_fleet.pull.store import FILE, Store, make_token
from gpusetup_fleet.pull.web import collector_of
from gpusetup_fleet.supply.server import Tls

HOSTS, PROCESSES, HELD = int(os.environ.get("GPUSETUP_BENCH_HOSTS", "5000")), 10, 2000
STEADY, PEAK, LONGEST = 60.0, 15.0, 150.0
A_MINUTE, HEALTH, MEMORY = 15_000, 1.0, 256


class _Site(NamedTuple):
    folder: str
    port: int

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=f"{self.folder}/site.pem")


def _token(host: int) -> str:
    return hashlib.sha256(f"bench {host}".encode()).hexdigest()


def _address(host: int) -> str:
    return f"127.{16 + host // 65536}.{host // 256 % 256}.{host % 256}"


def _serve(pipe: Any, folder: str) -> None:
    tls = Tls(Path(folder) / "site.pem", Path(folder) / "site.key")
    store = Store(Path(folder) / FILE)
    server = collector_of(Path(folder), store, ("127.0.0.1", 0), tls, lambda _line: None)
    pipe.send(server.server_port)
    server.serve_forever()


def _post(site: _Site, context: ssl.SSLContext, host: int, number: int) -> bool:
    """Send a report; return whether the collector accepted it."""
    told = {"schema": "gpusetup/pull-report/1", "time": "2026-11-23T10:00:00Z", "kind": "h100", "state": "done"}
    told |= {"lock": "a" * 64, "wanted": "a" * 64, "stack": "driver 580.105.08, cuda 13.0.2, torch 2.9.1+cu130"}
    connection = http.client.HTTPSConnection(
        "localhost", site.port, context=context, timeout=30, source_address=(_address(host), 0)
    )
    body = json.dumps(told | {"host": f"gpu{host}", "number": number})
    try:
        headers = {"Authorization": f"Bearer {_token(host)}", "Connection": "close"}
        connection.request("POST", "/v1/reports", body, headers)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _report(site: _Site, part: int, results: Any) -> None:
    context, accepted, refused = site.context(), list[tuple[int, int]](), 0
    mine = range(part, HOSTS, PROCESSES)
    begun = time.monotonic()
    for turn, host in enumerate(mine):
        time.sleep(max(0.0, begun + STEADY * turn / len(mine) - time.monotonic()))
        taken = _post(site, context, host, 1)
        accepted += [(host, 1)] * taken
        refused += not taken
    late = time.monotonic() - begun
    results.put(("steady", accepted, refused, late))
    accepted, refused, number = [], 0, 1
    begun = time.monotonic()
    while time.monotonic() - begun < PEAK:
        number += 1
        for host in mine:
            if time.monotonic() - begun > PEAK:
                break
            taken = _post(site, context, host, number)
            accepted += [(host, number)] * taken
            refused += not taken
    results.put(("peak", accepted, refused, time.monotonic() - begun))


def _attack(site: _Site, ended: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_attacking(site, ended))


async def _attacking(site: _Site, ended: Any) -> None:
    held = [asyncio.create_task(_hold(site, number)) for number in range(HELD)]
    while not ended.is_set():
        await asyncio.sleep(0.05)
        for kind in ("Authorization: Bearer wrong", "Content-Length: 10737418240"):
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(_once(site, kind), 5)
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)


async def _once(site: _Site, header: str) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", site.port, ssl=site.context(), server_hostname="localhost", local_addr=("127.2.0.1", 0)
    )
    writer.write(f"POST /v1/reports HTTP/1.1\r\nHost: c\r\n{header}\r\n\r\n{'x' * 70_000}".encode())
    await reader.read(100)
    writer.close()


async def _hold(site: _Site, number: int) -> None:
    """Hold connections that send nothing, half a TLS hello, or a byte every two seconds; reconnect after a pause."""
    source = f"127.3.0.{1 + number % 40}"
    while True:
        await asyncio.sleep(random.uniform(0, 5))
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port, local_addr=(source, 0))
            ended = asyncio.create_task(reader.read())
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
            with contextlib.suppress(OSError):
                writer.write((b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HT")[number % 3])
                while not ended.done():
                    await asyncio.wait((ended,), timeout=2)
                    writer.write(b"\x01" if number % 3 == 1 else b"")
            writer.close()


def _memory(pid: int, what: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def _processor(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def _health(site: _Site) -> float:
    begun = time.monotonic()
    connection = http.client.HTTPSConnection("localhost", site.port, context=site.context(), timeout=20)
    try:
        connection.request("GET", "/healthz")
        return time.monotonic() - begun if connection.getresponse().status == 200 else 20.0
    except (OSError, http.client.HTTPException):
        return 20.0
    finally:
        connection.close()


def _prepared(folder: str) -> None:
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    argv += ["-keyout", f"{folder}/site.key", "-out", f"{folder}/site.pem"]
    subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
    make_token(Path(folder) / FILE, "eve", "reader")
    # All tokens in one transaction; closed, since a SQLite connection must not cross a fork.
    with contextlib.closing(sqlite3.connect(f"{folder}/{FILE}")) as database, database:
        rows = [(f"gpu{one}", "host", hashlib.sha256(_token(one).encode()).digest(), "") for one in range(HOSTS)]
        database.executemany("INSERT INTO credentials(name, role, digest, made) VALUES(?, ?, ?, ?)", rows)


def _watched(results: Any, health: Callable[[], float]) -> tuple[dict[str, list[Any]], list[float]]:
    """Return the results of all processes, and the times of /healthz meanwhile."""
    told: dict[str, list[Any]] = {"steady": [], "peak": []}
    waits: list[float] = []
    until = time.monotonic() + LONGEST
    while sum(map(len, told.values())) < 2 * PROCESSES and time.monotonic() < until:
        time.sleep(0.5)
        waits.append(health())
        while not results.empty():
            name, *rest = results.get()
            told[name].append(rest)
    return told, waits


def main() -> Found:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        _prepared(folder)
        here, there = multiprocessing.Pipe()
        server = multiprocessing.Process(target=_serve, args=(there, folder))
        server.start()
        site, ended = _Site(folder, here.recv()), multiprocessing.Event()
        results: Any = multiprocessing.Queue()
        attacker = multiprocessing.Process(target=_attack, args=(site, ended))
        hosts = [multiprocessing.Process(target=_report, args=(site, part, results)) for part in range(PROCESSES)]
        try:
            attacker.start()
            time.sleep(6)
            before = _processor(server.pid or 0)
            for one in hosts:
                one.start()
            told, waits = _watched(results, lambda: _health(site))
            used, memory = _processor(server.pid or 0) - before, _memory(server.pid or 0, "VmHWM")
        finally:
            ended.set()
            for process in (*hosts, attacker):
                process.kill()
                process.join(5)
            server.terminate()
            server.join(20)
        accepted = {(f"gpu{host}", number) for rows in told.values() for row in rows for host, number in row[0]}
        with contextlib.closing(sqlite3.connect(f"{folder}/{FILE}")) as database:
            kept = set(database.execute("SELECT host, number FROM reports"))
    peak = sum(len(row[0]) for row in told["peak"]) / max((row[2] for row in told["peak"]), default=PEAK) * 60
    refused = sum(row[1] for row in told["steady"])
    late = 2 * PROCESSES - sum(map(len, told.values()))
    faults = [f"{late} of {2 * PROCESSES} runs of hosts did not end in {LONGEST:.0f} s"] if late else []
    faults += [f"{len(accepted - kept)} accepted reports are lost"] if accepted - kept else []
    return Found(
        rows=(
            Row(what="/healthz, the slowest answer", value=max(waits), unit="s", bound=HEALTH),
            Row(what="hosts not taken at their minute", value=refused, unit=f"of {HOSTS}", bound=HOSTS // 100),
            Row(what="reports at the peak", value=peak, unit="a minute", bound=A_MINUTE, least=True),
            Row(what="accepted reports lost", value=len(accepted - kept), unit="reports", bound=0),
            Row(what="memory, the most", value=memory, unit="MiB", bound=MEMORY),
            Row(
                what="processor time of a report, attack included", value=used / max(1, len(accepted)) * 1000, unit="ms"
            ),
        ),
        faults=tuple(faults),
    )
