"""How many hosts a second take a lease of one etcd and give it back, while others hold theirs and locks failed on many.

Real etcd, one member on this machine, over HTTP: a round trip costs nothing here.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

from bench.found import Found, Row
from gpusetup_fleet.model.pull import Budget
from gpusetup_fleet.pull.leases import FAILED, PREFIX, Access, Lease, _coded, _Etcd, take

HELD = (0, 100, 1000, 10_000)
ASKING, SECONDS = 16, 10.0


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _keys(number: int) -> Iterator[str]:
    for host in range(number):
        yield f"{PREFIX}held{host}/rack{host % 64}" if host % 10 == 0 else f"{FAILED}held{host}/{'a' * 64}"


def _rate(address: str) -> float:
    """Return the leases taken and given back per second."""
    budget, end = Budget(leases=address, at_a_time=100_000, failures=100_000), time.monotonic() + SECONDS
    done = [0] * ASKING

    def ask(number: int) -> None:
        while time.monotonic() < end:
            lease = take(budget, f"gpu{number}", f"rack{number}", Access(), "lock")
            if isinstance(lease, Lease):
                lease.give_back()
                done[number] += 1

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(ASKING)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    return sum(done) / SECONDS


def main() -> Found:
    """Measure with a growing number of keys in the store."""
    if shutil.which("etcd") is None:
        return Found(rows=(), faults=("etcd is not installed (Debian: apt-get install etcd-server)",))
    address, rows = f"http://127.0.0.1:{_free()}", []
    with tempfile.TemporaryDirectory() as folder:
        argv = ["etcd", "--data-dir", folder, "--listen-client-urls", address, "--advertise-client-urls", address]
        peer = f"http://127.0.0.1:{_free()}"
        argv += [
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        ]
        etcd = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not isinstance(take(Budget(leases=address, at_a_time=1), "first", ""), Lease):
                time.sleep(0.2)
            store = _Etcd(address, Access())
            for before, number in zip((0, *HELD), HELD, strict=False):
                for key in list(_keys(number))[before:]:
                    store.ask("kv/put", key=_coded(key), value="")
                rows.append(Row(what=f"leases with {number:,} keys of others", value=_rate(address), unit="a second"))
        finally:
            etcd.kill()
            etcd.wait()
    return Found(rows=tuple(rows), faults=())
