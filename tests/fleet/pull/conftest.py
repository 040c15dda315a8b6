"""A collector that listens, a lock, a key to sign with."""

import http.client
import json
import subprocess
import threading

import pytest

from gpusetup.bootstrap.effects import Effects
from gpusetup.drive.runner import Finished
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.pull import client
from gpusetup_fleet.pull.store import FILE, Store, make_token
from gpusetup_fleet.pull.web import collector_of


class Asked:
    """A collector and a way to ask it."""

    def __init__(self, folder):
        self.folder = folder
        self.store = Store(folder / FILE, keep=5)
        self.said = []
        self.server = collector_of(folder, self.store, ("127.0.0.1", 0), None, self.said.append)
        self.tokens = {name: make_token(folder / FILE, name, "host") for name in ("gpu01", "gpu02")}
        self.tokens["eve"] = make_token(folder / FILE, "eve", "reader")
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def ask(self, method, path, who=None, body=None, **headers):
        """Return status, headers and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        connection.request(
            method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def report(self, who="gpu01", token=None, **fields):
        """Post a report; return status and answer."""
        status, _, text = self.ask("POST", "/v1/reports", token or who, json.dumps(report(who, **fields)))
        return status, text

    def close(self):
        self.server.stop()
        self.thread.join(20)
        self.store.close()


def report(host, number=1, state="done", **fields):
    told = {"schema": "gpusetup/pull-report/1", "host": host, "number": number, "time": "2026-11-23T10:00:00Z"}
    return told | {"kind": "h100", "state": state} | fields


@pytest.fixture(autouse=True, scope="module")
def threads():
    """Refuse a thread that outlives a module's tests: a lease that nobody gave back, a server that nobody stopped."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def collector(tmp_path):
    asked = Asked(tmp_path)
    yield asked
    asked.close()


@pytest.fixture(scope="session")
def locks():
    """Two locks of one class."""
    loaded = matrix()
    return [lock_of(resolve(Request(gpus=(gpu,), os="ubuntu22.04"), loaded), loaded) for gpu in ("h100", "v100")]


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """A key that is trusted, one that is not, and the line that says so."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "signers").write_text("ops@site " + (folder / "ours.pub").read_text())
    return folder


@pytest.fixture
def host(tmp_path, collector, keys, monkeypatch):
    """A host, what its apply answers, and what it was told to apply."""
    token = tmp_path / "host.token"
    token.write_text(collector.tokens["gpu01"])
    token.chmod(0o600)
    settings = client.Settings(
        f"http://127.0.0.1:{collector.server.server_port}", "gpu01", "h100", "rack7", 1, token, keys / "signers",
        True, {}, tmp_path / "home",
    )  # fmt: skip
    told = {"code": 0, "host": {"state": "done", "changed": 3}, "applied": []}

    def apply(_self, command, *words):
        lock = json.loads((tmp_path / words[words.index("--lock") + 1]).read_text())
        told["applied"].append((command, lock["digest"]))
        return Finished((), told["code"], "", "", 1.0), json.dumps({"hosts": {"localhost": told["host"]}})

    monkeypatch.setattr(Effects, "gpusetup", apply)
    monkeypatch.setattr(client, "WORK", tmp_path / "work")
    return settings, told
