"""What a collector takes: reports with tokens over TLS, each committed, next to a bare server for the same requests.

Each report comes over a connection of its own, as from a host of its own. The bare server is Python's http.server with
the same certificate: it reads the request and says yes. Server and clients share this machine.
"""

from __future__ import annotations

import http.client
import http.server
import json
import multiprocessing
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.found import Found, Row
from gpusetup.pull.store import FILE, Store, make_token
from gpusetup.pull.web import collector_of
from gpusetup.supply.listening import listening

REPORTS, HOSTS, CLIENTS = 3000, 500, 2
A_MINUTE = 10_000
"""The least that it has to take."""
RATIO = 2.5
"""And so many times what the bare server costs, at the most."""


class _Bare(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "12")
        self.end_headers()
        self.wfile.write(b'{"ok": true}')

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


def _serve(pipe: Any, folder: str, bare: bool) -> None:
    tls = (Path(folder) / "site.pem", Path(folder) / "site.key")
    if bare:
        server = listening(_Bare, "127.0.0.1", 0, tls)
    else:
        server = collector_of(Path(folder), Store(Path(folder) / FILE), "127.0.0.1", 0, tls)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_port)
    pipe.recv()
    used = time.process_time()
    pipe.send(used)


def _post(port: int, folder: str, tokens: dict[str, str], part: int, refused: Any) -> None:
    context = ssl.create_default_context(cafile=str(Path(folder) / "site.pem"))
    told = {"schema": "gpusetup/pull-report/1", "time": "2026-11-23T10:00:00Z", "kind": "h100", "state": "done"}
    told |= {"lock": "a" * 64, "wanted": "a" * 64, "stack": "driver 580.105.08, cuda 13.0.2, torch 2.9.1+cu130"}
    names = list(tokens)
    for number in range(part, REPORTS, CLIENTS):
        host = names[number % HOSTS]
        connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
        body = json.dumps(told | {"host": host, "number": number})
        connection.request("POST", "/v1/reports", body, {"Authorization": f"Bearer {tokens[host]}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            refused.value += 1
        connection.close()


def _measured(folder: str, tokens: dict[str, str], *, bare: bool) -> tuple[float, float, int]:
    """Return wall seconds, the server's processor seconds and how many were not taken."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(there, folder, bare))
    server.start()
    port, refused = here.recv(), multiprocessing.Value("i", 0)
    argv = [(port, folder, tokens, part, refused) for part in range(CLIENTS)]
    clients = [multiprocessing.Process(target=_post, args=words) for words in argv]
    started = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    wall = time.monotonic() - started
    here.send("enough")
    used = here.recv()
    server.join()
    return wall, used, refused.value


def main() -> Found:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        argv += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        argv += ["-keyout", f"{folder}/site.key", "-out", f"{folder}/site.pem"]
        subprocess.run(argv, check=True, stderr=subprocess.DEVNULL)
        tokens = {f"gpu{number}": make_token(Path(folder) / FILE, f"gpu{number}", "host") for number in range(HOSTS)}
        bare = _measured(folder, tokens, bare=True)
        ours = _measured(folder, tokens, bare=False)
        there = len(Store(Path(folder) / FILE).state().hosts)
    cost, rate = (side[1] / REPORTS * 1000 for side in (ours, bare)), [REPORTS / side[0] * 60 for side in (ours, bare)]
    mine, plain = cost
    lost = [] if there == HOSTS and not ours[2] else [f"{ours[2]} reports were not taken, {there} hosts are on record"]
    return Found(
        plain="bare server",
        rows=(
            Row(what="processor time of a report", value=mine, unit="ms", plain=plain, bound=RATIO, of="ratio"),
            Row(what="reports", value=rate[0], unit="a minute", plain=rate[1], bound=A_MINUTE, least=True),
        ),
        faults=tuple(lost),
    )
