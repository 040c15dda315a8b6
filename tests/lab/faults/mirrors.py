"""Repositories that are gone, lie, hang, crawl, or are signed by the wrong hand; and a way to them that is barred."""

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from tests.flaky import listening
from tests.lab.faults.row import Lab, Row, completes, judged
from tests.lab.repository.build import ready, set_fault
from tests.lab.repository.serve import Handler

BRIDGE = "10.77.0.1"


def mirror(what: str, where: str, code: int, names: str = "") -> Callable[[Row], None]:
    def run(row: Row) -> None:
        token = f"fault{what.replace('-', '')}{where}{os.getpid()}"
        with Lab(f"{what}-{where}", base=ready().with_fault(token, what, where).base) as lab:
            judged(row, lab, lab.apply(), code, names, unchanged=code != 0)
            set_fault(token, "")
            completes(row, lab)

    return run


def mirror_gone(row: Row) -> None:
    with Lab("gone", base=f"http://{BRIDGE}:9") as lab:
        judged(row, lab, lab.apply(), 6, "GS-449", unchanged=True)
        lab.base = lab.repositories.base
        lab.write()
        completes(row, lab)


def expired_key(row: Row) -> None:
    """A repository whose key ran out: signed in its time, read afterwards."""
    with tempfile.TemporaryDirectory() as folder, _expired(Path(folder)) as key:

        class Server(Handler):
            def translate_path(self, path: str) -> str:
                if path == "/expired-key.asc":
                    return str(key.armored)
                found = super().translate_path(path)
                return str(key.signed(Path(found))) if Path(found).name == "InRelease" else found

        with Lab("expired-key") as lab:
            with listening(Server, BRIDGE) as web:
                lab.base = f"{web.url}/{lab.repositories.folder.name}"
                lab.variables = {
                    "gpusetup_source_fingerprints": key.fingerprint,
                    "gpusetup_source_key": f"{web.url}/expired-key.asc",
                }
                lab.write()
                judged(row, lab, lab.apply(), 5, "EXPKEYSIG", unchanged=True)
            lab.base, lab.variables = lab.repositories.base, {}
            lab.write()
            completes(row, lab)


class _Key:
    """A signing key that was good for some months of 2020."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.gpg(
            "20200101T000000", "--quick-gen-key", "--passphrase", "", "lab expired key", "rsa3072", "sign", "2020-06-01"
        )
        listed = self.gpg("20200201T000000", "--list-keys", "--with-colons")
        self.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        self.armored = home / "key.asc"
        self.armored.write_text(self.gpg("20200201T000000", "--armor", "--export"))

    def gpg(self, when: str, *words: str, text: str | None = None) -> str:
        quiet = ["gpg", "--batch", "--quiet", "--no-tty", "--homedir", str(self.home)]
        argv = [*quiet, "--faked-system-time", when, *words]
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout

    def signed(self, index: Path) -> Path:
        target = self.home / index.parent.as_posix().strip("/").replace("/", "-")
        if not target.exists():
            text = index.with_name("Release").read_text()
            target.write_text(self.gpg("20200201T000000", "--digest-algo", "SHA512", "--clearsign", text=text))
        return target


@contextmanager
def _expired(folder: Path) -> Iterator[_Key]:
    folder.chmod(0o700)
    try:
        yield _Key(folder)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(folder), "--kill", "all"], check=False)


def proxy_needed(row: Row) -> None:
    """A mirror by a name that only the site's proxy knows."""
    base = ready().base

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            if place.hostname != "packages.example":
                return self.send_error(403)
            try:
                with urllib.request.urlopen(base + place.path, timeout=60) as answer:
                    content = answer.read()
            except OSError as error:
                return self.send_error(getattr(error, "code", 502))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

    with Lab("proxy", base="http://packages.example") as lab, listening(Proxy, BRIDGE) as web:
        lab.variables = {"gpusetup_source_key": "http://packages.example/lab-key.asc"}
        lab.write()
        judged(row, lab, lab.apply(), 5, "GS-442", unchanged=True)
        lab.variables["gpusetup_proxy"] = web.url
        lab.write()
        completes(row, lab)


def clock(row: Row) -> None:
    """apt lives five years ago: one program's time, because all lab hosts share the clock of one kernel."""
    with Lab("clock") as lab:
        wrapper = lab.host.path("/usr/local/bin/apt-get")
        library = lab.host.path("/usr/local/lib/libfaketime.so.1")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["apt-get", "-q", "download", "libfaketime"], cwd=folder, check=True, capture_output=True)
            package = next(Path(folder).glob("libfaketime_*.deb"))
            subprocess.run(["dpkg-deb", "-x", str(package), folder], check=True)
            library.write_bytes(next(Path(folder).rglob("libfaketime.so.1")).read_bytes())
        wrapper.write_text(
            '#!/bin/sh\nLD_PRELOAD=/usr/local/lib/libfaketime.so.1 FAKETIME=-5y exec /usr/bin/apt-get "$@"\n'
        )
        wrapper.chmod(0o755)
        judged(row, lab, lab.apply(), 6, "is not valid yet", unchanged=True)
        wrapper.unlink()
        completes(row, lab)
