"""A package index on this machine that says what it was given: captured documents, pieces of files, and faults."""

import contextlib
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.flaky import listening

CAPTURED = Path(__file__).parent / "fixtures" / "index"
JSON = "application/vnd.pypi.simple.v1+json"


class Replay:
    """What is served, by path: content type and body; `ranges`: whether pieces of it are."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: dict[str, tuple[str, bytes]] = {}
        self.cut: set[str] = set()
        self.status: dict[str, list[int]] = {}
        self.ranges = True
        self.asked: list[str] = []

    @property
    def index(self) -> str:
        return f"{self.url}/simple/"

    def package(self, name: str, *files: dict[str, Any]) -> None:
        document = {"meta": {"api-version": "1.1"}, "name": name, "files": list(files)}
        self.bodies[f"/simple/{name}/"] = (JSON, json.dumps(document).encode())

    def file(self, name: str, body: bytes, metadata: str = "", **more: Any) -> dict[str, Any]:
        """Serve a file, and its metadata beside it; returns how an index lists it."""
        self.bodies[f"/files/{name}"] = ("application/octet-stream", body)
        if metadata:
            self.bodies[f"/files/{name}.metadata"] = ("application/octet-stream", metadata.encode())
        return {
            "filename": name,
            "url": f"{self.url}/files/{name}",
            "hashes": {"sha256": hashlib.sha256(body).hexdigest()},
            "size": len(body),
            "upload-time": "2026-11-20T10:00:00Z",
            "yanked": False,
            **({"core-metadata": True} if metadata else {}),
        } | more


def metadata(name: str, version: str, *lines: str) -> str:
    return "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]) + "\n"


def wheel(members: dict[str, str | bytes]) -> bytes:
    """Long enough that its end is not all of it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("big.bin", bytes(1 << 19))
    return target.getvalue()


def packed(name: str, version: str, text: str, tag: str = "py3-none-any", **more: str) -> bytes:
    """A wheel with nothing in it but what it says of itself."""
    members = {"METADATA": text, "WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n", "RECORD": ""}
    return wheel({f"{name}-{version}.dist-info/{file}": content for file, content in {**members, **more}.items()})


def sdist(name: str, version: str, text: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path, body in ((f"{name}-{version}/LICENSE", b"x"), (f"{name}-{version}/PKG-INFO", text.encode())):
            item = tarfile.TarInfo(path)
            item.size = len(body)
            archive.addfile(item, io.BytesIO(body))
    return target.getvalue()


@contextlib.contextmanager
def serving() -> Iterator[Replay]:
    replay = Replay()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            replay.asked.append(self.path)
            statuses = replay.status.get(self.path, [])
            status = statuses.pop(0) if statuses else 200
            kind, body = replay.bodies.get(self.path, ("text/plain", b""))
            if status == 200 and self.path not in replay.bodies:
                status = 404
            headers = {"Content-Type": kind}
            asked = self.headers.get("Range", "").removeprefix("bytes=")
            if status == 200 and asked and replay.ranges:
                first, _, last = asked.partition("-")
                start = int(first) if first else max(0, len(body) - int(last))
                stop = int(last) + 1 if first and last else len(body)
                headers["Content-Range"] = f"bytes {start}-{min(stop, len(body)) - 1}/{len(body)}"
                status, body = 206, body[start:stop]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if self.path in replay.cut:
                body, self.close_connection = body[: len(body) // 2], True
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

    with listening(Handler) as web:
        replay.url = web.url
        yield replay
