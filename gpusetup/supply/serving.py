"""A bundle over HTTP: exactly the files of its manifest, as large as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, PlainTextResponse, Response

from gpusetup.bootstrap.bundle import MANIFEST, SIGNATURE, read_manifest
from gpusetup.supply.server import Limits, Refusals, Tls, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["server_of"]


def server_of(folder: Path, place: tuple[str, int], tls: Tls | None, say: Callable[[str], None]) -> WebServer:
    """Return a server that listens; what is not in the manifest is not there for it."""
    folder = folder.resolve()
    read_manifest(folder / MANIFEST)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (await _answer(folder, scope["method"], scope["path"]))(scope, receive, send)

    return WebServer(app, place, tls, Refusals(say), Limits(answers_end=False))


async def _answer(folder: Path, method: str, path: str) -> Response:
    if method not in ("GET", "HEAD"):
        return PlainTextResponse("only GET and HEAD\n", 405)
    name = path.lstrip("/")
    name += "index.html" if name.endswith("/") else ""
    # The manifest that is in force now: a bundle may be renewed while it is served.
    files = (await run_in_threadpool(read_manifest, folder / MANIFEST))[0].files
    if name not in (MANIFEST, SIGNATURE, *files) or not (folder / name).is_file():
        return PlainTextResponse("not in this bundle\n", 404)
    return FileResponse(folder / name)
