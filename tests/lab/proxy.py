"""A small forwarding proxy on the bridge: only hosts made with network=mirror may use it."""

import asyncio
import contextlib
from urllib.parse import urlsplit

from tests.lab import mirror, network

CHUNK = 1 << 16


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        await _forward(reader, writer)
    writer.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    client = writer.get_extra_info("peername")[0]
    if not (network.MIRROR_CLIENTS / client).exists():
        await _refuse(writer, b"403 Forbidden", b"this lab host was made without network=mirror\n")
        return
    request, _, rest = head.partition(b"\r\n")
    method, target, _ = request.decode("latin-1").split(" ", 2)
    upstream = mirror.apt_proxy()
    place = urlsplit(upstream or (f"//{target}" if method == "CONNECT" else target))
    try:
        remote_reader, remote_writer = await asyncio.open_connection(place.hostname, place.port or 80)
    except OSError as error:
        await _refuse(writer, b"502 Bad Gateway", f"the lab's proxy reaches no {place.hostname}: {error}\n".encode())
        return
    if upstream:
        remote_writer.write(head)
    elif method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        # One request per connection: the next one may be for another host.
        path = place.path + (f"?{place.query}" if place.query else "")
        lines = [line for line in rest.split(b"\r\n") if not line.lower().startswith((b"proxy-", b"connection:"))]
        rest = b"\r\n".join([b"Connection: close", *lines])
        remote_writer.write(f"{method} {path or '/'} HTTP/1.1\r\n".encode("latin-1") + rest)
    await asyncio.gather(_pump(reader, remote_writer), _pump(remote_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK):
            sink.write(chunk)
            await sink.drain()
    with contextlib.suppress(OSError):
        if sink.can_write_eof():
            sink.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: bytes, text: bytes) -> None:
    writer.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    await writer.drain()
