"""Serve the repositories; a path that begins with /with/TOKEN/ is answered with the fault that TOKEN is set to."""

from __future__ import annotations

import http.server
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.places import REPOSITORIES, STATE

if TYPE_CHECKING:
    from _typeshed import SupportsRead, SupportsWrite

FAULTS = STATE / "faults"
WHAT = ("404", "503", "slow", "hang", "truncated", "corrupt", "wrong-key", "expired")
WHERE = ("index", "packages", "all")
INDEX_NAMES = ("InRelease", "Release", "Release.gpg", "repomd.xml", "repomd.xml.asc")
SIGNATURES = {"wrong-key": ".wrong-key", "expired": ".expired"}
SLOW_BYTES_PER_SECOND = 20_000
HANG_SECONDS = 300


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files below the repositories' folder, or the fault that the address asks for."""

    protocol_version = "HTTP/1.1"
    server_version = "gpusetup-lab"

    def __init__(self, *args: Any) -> None:
        self.fault = ""
        super().__init__(*args, directory=str(REPOSITORIES))

    def do_GET(self) -> None:
        self.fault = self._take_fault()
        if self.fault in {"404", "503"}:
            return self.send_error(int(self.fault))
        if self.fault == "hang":
            time.sleep(HANG_SECONDS)
            self.close_connection = True
            return None
        return super().do_GET()

    def _take_fault(self) -> str:
        """Strip /with/TOKEN from the path; the fault, when it concerns this kind of file."""
        parts = self.path.split("/", 3)
        if len(parts) < 4 or parts[1] != "with" or not parts[2].isalnum():
            return ""
        self.path = "/" + parts[3]
        setting = FAULTS / parts[2]
        what, _, where = (setting.read_text().strip() if setting.exists() else "").partition(" ")
        is_package = self.path.endswith((".deb", ".rpm", ".whl"))
        return what if where in {"all", "packages" if is_package else "index"} else ""

    def translate_path(self, path: str) -> str:
        found = Path(super().translate_path(path))
        variant = found.with_name(found.name + SIGNATURES.get(self.fault, ""))
        return str(variant if found.name in INDEX_NAMES and variant.exists() else found)

    def copyfile(self, source: SupportsRead[bytes], outputfile: SupportsWrite[bytes]) -> None:
        content = source.read()
        if self.fault == "truncated":
            self.close_connection = True
            content = content[: len(content) // 2]
        elif self.fault == "corrupt":
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        step = SLOW_BYTES_PER_SECOND // 10 if self.fault == "slow" else len(content) or 1
        for start in range(0, len(content), step):
            outputfile.write(content[start : start + step])
            if self.fault == "slow":
                time.sleep(0.1)

    def log_message(self, template: str, *values: object) -> None:
        with (STATE / "requests.log").open("a") as log:
            log.write(f"{self.client_address[0]} {template % values} {self.fault}\n")


def server(address: str, port: int) -> http.server.ThreadingHTTPServer:
    return http.server.ThreadingHTTPServer((address, port), Handler)
