"""Debian's Prometheus and Alertmanager, unpacked and not installed: nothing starts on this machine by itself."""

import json
import os
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import yaml

from tests.lab.places import CACHE
from tests.lab.process import run, until

PACKAGES = ("prometheus", "prometheus-alertmanager")
NEXT = "testing"
"""Debian's release after the stable one: Prometheus of the next major."""
_APT = """deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {suite} main"""


def program(name: str, suite: str = "") -> Path:
    """Return a program of Debian's packages, of this machine's release or of a suite; they are fetched once."""
    folder = CACHE / f"prometheus{suite and '-' + suite}"
    if not (folder / "usr/bin/prometheus-alertmanager").exists():
        folder.mkdir(parents=True, exist_ok=True)
        own, packages = _apt_of(folder, suite) if suite else ({}, PACKAGES)
        run(["apt-get", "update", "-q"], timeout=300, env=dict(os.environ, **own))
        fetch = f"cd {folder} && apt-get -q download {' '.join(packages)} && for f in *.deb; do dpkg -x $f .; done"
        run(["sh", "-c", fetch], env=dict(os.environ, **own))
    return (folder / "usr/bin" / name).resolve()


def _apt_of(folder: Path, suite: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Give apt lists of its own for another release, in which promtool has a package of its own."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
    (folder / "apt/sources.list").write_text(_APT.format(suite=suite) + "\n")
    (folder / "apt/conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/apt/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/apt/lists";\nDir::Cache "{folder}/apt/cache";\n'
    )
    return {"APT_CONFIG": str(folder / "apt/conf")}, (*PACKAGES, "promtool")


class Exporter:
    """What somebody scrapes: a text that a test changes, and everything that others send to it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.received: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def alerts(self, status: str = "firing") -> set[str]:
        return {
            alert["labels"]["alertname"]
            for message in self.received
            for alert in message["alerts"]
            if alert["status"] == status
        }


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """Return what an expression gives now; an expression that Prometheus refuses is an error."""
        query = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{query}", timeout=30) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]["result"]


@contextmanager
def running(
    folder: Path, targets: list[str], receiver: Exporter, scrape: dict[str, Any] | None = None, suite: str = ""
) -> Iterator[Prometheus]:
    """Run Prometheus and Alertmanager with the files of `gpusetup export monitoring` in a folder, every second.

    `scrape`: how the targets are asked, as a scrape configuration says it; `suite`: the Debian release of the programs.
    """
    ours, theirs = _free_port(), _free_port()
    config = yaml.safe_load((folder / "prometheus-example.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{theirs}"]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = targets
    config["scrape_configs"][0] |= scrape or {}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    routes = yaml.safe_load((folder / "alertmanager-example.yml").read_text())
    routes["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    routes["receivers"][0]["webhook_configs"][0]["url"] = f"http://{receiver.address}/alerts"
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(routes))
    commands = (
        [
            program("prometheus", suite), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{ours}",
        ],
        [
            # It reads its template from a fixed place: it sees the package's files there, and nobody else does.
            "unshare", "--mount", "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"', program("../share", suite),
            program("prometheus-alertmanager", suite), f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager", f"--web.listen-address=127.0.0.1:{theirs}", "--cluster.listen-address=",
        ],
    )  # fmt: skip
    started = [Popen(command, stdout=DEVNULL, stderr=DEVNULL, cwd=folder, env=dict(os.environ)) for command in commands]
    try:
        for port in (ours, theirs):
            until(lambda port=port: _ready(port), f"port {port}")
        yield Prometheus(f"127.0.0.1:{ours}")
    finally:
        for process in started:
            process.kill()
            process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
