"""A real browser led by its own protocol, through two pipes: pages that live on messages are never "loaded"."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpusetup.drive.runner import end_all

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


class Browser:
    """A browser that runs; every page is one of its targets."""

    def __init__(self, say: int, hear: int) -> None:
        self._say, self._hear = say, hear
        self._number, self._rest = 0, b""

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Ask for one thing and wait for its answer; what happens meanwhile is left out."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._say, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            read = os.read(self._hear, 1 << 20)
            assert read, "the browser has ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return message

    def open(self, address: str) -> "Page":
        target = self.call("Target.createTarget", url=address)["targetId"]
        return Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def shape(self, width: int, *, height: int = 900, scheme: str = "light") -> None:
        """Give the window a width, and the colours that the system prefers."""
        call = partial(self._browser.call, session=self._session)
        call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def go(self, address: str) -> None:
        self._browser.call("Page.navigate", self._session, url=address)
        self.until(f"location.href === {json.dumps(address)}")

    def key(self, name: str) -> None:
        typed: dict[str, Any] = {"text": "\r", "windowsVirtualKeyCode": 13} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._browser.call("Input.dispatchKeyEvent", self._session, type=kind, key=name, code=name, **typed)

    def tells(self, expression: str) -> Any:
        """What a JavaScript expression is here."""
        answer = self._browser.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while not (found := self.tells(expression)):
            assert time.monotonic() < end, f"{expression} after {seconds} s: {self.tells('document.body.innerText')}"
            time.sleep(0.2)
        return found

    def picture(self, file: Path, x: float, y: float, width: float, height: float) -> None:
        """Write what is seen of a part of the page, as PNG."""
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        shot = self._browser.call("Page.captureScreenshot", self._session, format="png", clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(folder: Path, size: str = "1400,1000") -> Iterator[Browser]:
    """A browser with a profile of its own below a folder."""
    (read_by_it, say), (hear, written_by_it) = os.pipe(), os.pipe()
    words = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--ignore-certificate-errors",
        f"--user-data-dir={folder}/profile", f"--window-size={size}", "--remote-debugging-pipe", "about:blank",
    ]  # fmt: skip
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read_by_it} 4>&{written_by_it}', "bash", *words],
            pass_fds=(read_by_it, written_by_it), stdout=log, stderr=log, cwd=folder,
        )  # fmt: skip
    os.close(read_by_it)
    os.close(written_by_it)
    try:
        yield Browser(say, hear)
    finally:
        end_all([process.pid])  # its helpers would go on writing to the profile
        process.wait()
        os.close(say)
        os.close(hear)
