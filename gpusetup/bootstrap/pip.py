"""pip as a program: its indexes are asked again when they break off, and trusted as the machine trusts."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from gpusetup.bootstrap.trust import authorities
from gpusetup.drive.runner import run

if TYPE_CHECKING:
    from gpusetup.drive.runner import Finished

__all__ = ["last_words", "pip"]

_TRIES, _PAUSE = 3, 5.0
_BROKE_OFF = re.compile(
    r"IncompleteRead|Connection broken|Connection aborted|Connection reset|ConnectionResetError|ProtocolError"
    r"|Read timed out|ReadTimeout|ChunkedEncodingError|incomplete-download|after connection broken by"
    r"|\b(?:408|425|429|5\d\d) (?:Client|Server) Error"
)
"""In pip's words. It asks again for a connection that is refused, but gives up on an answer that ends in its middle."""


def pip(*arguments: str, deadline: float, pause: float = _PAUSE, **environment: str) -> Finished:
    """Run pip of this Python; what broke off on the way is tried again while the deadline allows it."""
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    trusted = authorities()
    if isinstance(trusted, str):
        env.setdefault("PIP_CERT", trusted)
    argv = [sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]]
    end = time.monotonic() + deadline
    for attempt in range(1, _TRIES + 1):
        done = run(argv, env=env, deadline=max(end - time.monotonic(), 1.0))
        if done.ok or done.timed_out or attempt == _TRIES or not _BROKE_OFF.search(done.err):
            break
        time.sleep(pause * attempt)
    return done


def last_words(done: Finished) -> str:
    """Return what pip said last, without what it merely warned of."""
    lines = [line for line in done.err.splitlines() if line.strip()]
    return "\n  ".join([line for line in lines if not line.startswith("WARNING")][-6:])
