"""The lab's one server: package repositories over HTTP, and the way out to the Debian mirror for hosts that may."""

import asyncio
import os
import signal
import threading

from tests.lab import network
from tests.lab.places import REPOSITORIES, STATE
from tests.lab.proxy import forward
from tests.lab.repository import serve


async def main() -> None:
    REPOSITORIES.mkdir(parents=True, exist_ok=True)
    web = serve.server(network.GATEWAY, network.REPOSITORY_PORT)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    await asyncio.start_server(forward, network.GATEWAY, network.PROXY_PORT)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    (STATE / "server.ready").write_text(f"{os.getpid()}\n")
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)  # answers that are made to hang do not keep the lab up
