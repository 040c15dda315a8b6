"""A web server that breaks off, stalls, drips or says no, as it is told: for everything that fetches."""

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

CONTENT = b"a lock, or a wheel" * 500


@contextlib.contextmanager
def listening(handler: Any, address: str = "127.0.0.1") -> Iterator[Any]:
    """Yield a server on a port of this machine, with its `url`, that logs nothing, until the end of the test."""
    handler.log_message = lambda *_: None
    web: Any = http.server.ThreadingHTTPServer((address, 0), handler)
    web.daemon_threads, web.url = True, f"http://{address}:{web.server_port}"
    threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield web
    finally:
        web.shutdown()
        web.server_close()


class Flaky(http.server.BaseHTTPRequestHandler):
    """Answers as it was told, one word a request; the last word stays."""

    protocol_version = "HTTP/1.1"
    words: list[str]
    asked: list[str]
    spans: list[str]
    content: dict[str, bytes]

    def do_GET(self) -> None:
        own = type(self)
        own.asked.append(self.path)
        own.spans.append(self.headers.get("Range", ""))
        word = own.words.pop(0) if len(own.words) > 1 else own.words[0]
        body = own.content.get(self.path, CONTENT)
        self.close_connection = True
        if word == "moved":
            self.send_response(302)
            self.send_header("Location", "/moved")
            self.end_headers()
        elif word.isdigit():
            self.send_response(int(word))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if word == "hangs up":
            return
        if word in ("stalls", "moved"):
            time.sleep(3)
            return
        start = self._asked_from(len(body))
        if start is None:
            self.send_response(200)
        else:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        self.send_header("Content-Type", "text/html")
        if word.startswith("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        elif word != "broken, no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = body[: len(body) // 2]
        if word == "chunked, broken":
            self.wfile.write(b"%x\r\n%b\r\n" % (len(half), half))
        elif word == "drips":
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.02)
        else:
            self.wfile.write({"whole": body, "other": b"x" * len(body)}.get(word, half))

    def _asked_from(self, length: int) -> int | None:
        """Return where the rest that was asked for begins; the beginning alone is given with what follows it."""
        asked = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        return int(asked) if asked.isdigit() and int(asked) < length else None

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the other side had enough of it
            super().handle()


class Site:
    """A server and what it was asked."""

    def __init__(self, handler: type[Flaky], url: str) -> None:
        self.handler, self.url = handler, url

    def says(self, *words: str) -> str:
        self.handler.words, self.handler.asked = list(words), []
        self.handler.spans = []
        return f"{self.url}/x"

    @property
    def asked(self) -> int:
        return len(self.handler.asked)


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    """One server, until the end of the test."""
    handler = type("Handler", (Flaky,), {"words": ["whole"], "asked": [], "spans": [], "content": {}})
    with listening(handler) as web:
        yield Site(handler, web.url)
