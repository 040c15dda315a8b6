"""Download a driver's installer into a folder that only root can read; an interrupted download is resumed."""

import http.client
import os
import time
import urllib.error
from typing import Any, Callable, Dict, Tuple

from . import fetch, pace
from .failure import HostFailure

_START = 1 << 16
_BLOCK = 1 << 20
_TRIES = 5
"""Tries in a row that bring nothing."""
_SILENCE = 60.0


def is_address(path: str) -> bool:
    return path.startswith(("https://", "http://"))


def place(state_dir: str, url: str) -> str:
    """Return the path of a downloaded file on this host."""
    return os.path.join(state_dir, "installers", url.rsplit("/", 1)[-1])


def start_of(url: str, network: Dict[str, Any]) -> Tuple[bytes, int]:
    """Return the first bytes of a file at an address and its whole length, 0 if the server does not report it."""
    try:
        with fetch.opened(url, network, _SILENCE, f"0-{_START - 1}") as answer:
            first: bytes = answer.read(_START)
            return first, _length(answer, 0)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failure(url, error) from error


def bring(url: str, network: Dict[str, Any], state_dir: str, tell: Callable[..., None], pause: float = 2.0) -> str:
    """Download a file unless it exists; return its path. The next try continues an interrupted one."""
    target = place(state_dir, url)
    if os.path.isfile(target):
        return target
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    part, without = target + ".part", 0
    while True:
        before = _size(part)
        try:
            if _go_on(url, network, part, before, tell):
                os.rename(part, target)
                return target
            problem: Exception = OSError("the server ended it too early")
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the partial file is no longer the beginning of the server's file
                os.unlink(part)
            elif error.code < 500 and error.code not in fetch.PATIENCE:
                raise _failure(url, error) from error
            problem = error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as error:
            problem = error
        except OSError as error:
            if error.errno is not None:  # a problem of this host: no space, no permission
                raise _failure(url, error) from error
            problem = error
        without = without + 1 if _size(part) <= before or isinstance(problem, pace.TooSlow) else 0
        if without == _TRIES:
            raise _failure(url, problem)
        time.sleep(pause * (1 + without))


def _go_on(url: str, network: Dict[str, Any], part: str, have: int, tell: Callable[..., None]) -> bool:
    """Append to a partial file; return whether it is complete."""
    with fetch.opened(url, network, _SILENCE, f"{have}-" if have else "") as answer:
        goes_on = answer.getcode() == 206
        whole = _length(answer, have if goes_on else 0)
        here, counted = have if goes_on else 0, pace.Pace()
        with open(part, "ab" if goes_on else "wb") as stream:
            os.chmod(part, 0o600)
            while True:
                piece = answer.read1(_BLOCK)
                if not piece:
                    break
                stream.write(piece)
                counted.came_in(len(piece))
                here += len(piece)
                tell("download", "downloading the .run installer", 100 * here // whole if whole else None)
            stream.flush()
            os.fsync(stream.fileno())
        return not whole or here == whole


def _length(answer: Any, have: int) -> int:
    """Return the whole length, from the headers of the requested part."""
    ranged = str(answer.headers.get("Content-Range") or "").rpartition("/")[2]
    length = str(answer.headers.get("Content-Length") or "")
    return int(ranged) if ranged.isdigit() else have + int(length) if length.isdigit() else 0


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _failure(url: str, error: Exception) -> HostFailure:
    reason = f"{error.code} {error.reason}" if isinstance(error, urllib.error.HTTPError) else ""
    return HostFailure(
        "GS-479",
        "the .run installer could not be downloaded: {}".format(reason or getattr(error, "reason", "") or error),
        url,
        hint="check the address, gpusetup_proxy and the host's network; or copy the file to the host and name its path",
    )
