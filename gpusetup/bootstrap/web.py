"""Fetching and reporting by HTTP: whose word is trusted, what is worth another try, and for how long."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

_LISTS = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "etc/pki/tls/certs/ca-bundle.crt",  # Enterprise Linux, Amazon Linux
    "var/lib/ca-certificates/ca-bundle.pem",  # SUSE
)


def authorities(root: Path = Path("/")) -> str | bool:
    """Return the machine's list for `requests`, which would bring a list of its own; without one, that one counts."""
    return next((str(root / name) for name in _LISTS if (root / name).is_file()), True)


_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_TIMEOUT = 60.0
_BLOCK = 1 << 16


class Unfetched(Exception):  # noqa: N818 - it says what there is not
    """What was asked for did not come; the text says why."""


@contextmanager
def session(ca: str | bool = True) -> Iterator[requests.Session]:
    """Open a session where whatever goes wrong on the way is an Unfetched.

    It trusts whom the machine trusts, or the list `ca`.
    """
    import requests
    from urllib3.exceptions import HTTPError

    class Session(requests.Session):
        """One whose `verify` counts: requests would take REQUESTS_CA_BUNDLE of the environment before it."""

        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            return super().merge_environment_settings(
                url, proxies, stream, self.verify if verify is None else verify, cert
            )

    with Session() as opened:
        opened.verify = authorities() if ca is True else ca
        try:
            yield opened
        except (requests.RequestException, HTTPError, OSError) as error:
            raise Unfetched(str(error) or type(error).__name__) from error


def passes(status: int) -> bool:
    """Whether an answer may be another one in a while: the server is at fault, or asks for patience.

    The first stage, which cannot import this, has the same rule.
    """
    return status >= 500 or status in {408, 425, 429}


def fetch(
    url: str,
    *,
    limit: int,
    patience: float,
    pause: float = _FIRST_PAUSE,
    timeout: float = _TIMEOUT,
    accept: str = "*/*",
) -> bytes:
    """Return what is at an address, at most `limit` bytes of it; what does not come whole is asked for again."""
    end = time.monotonic() + patience
    while True:
        try:
            return _once(url, limit, timeout, max(end, time.monotonic() + timeout), accept)
        except _Refused:
            raise
        except Unfetched:
            if time.monotonic() + pause > end:
                raise
        time.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311 - spreads load, guards nothing
        pause = min(pause * 2, _LONGEST_PAUSE)


class _Refused(Unfetched):
    """The server has said no: the same question gets the same answer."""


def _once(url: str, limit: int, timeout: float, end: float, accept: str) -> bytes:
    with session() as opened, opened.get(url, timeout=timeout, stream=True, headers={"Accept": accept}) as answer:
        if answer.status_code >= 400:
            trouble = Unfetched if passes(answer.status_code) else _Refused
            raise trouble(f"{answer.status_code} {answer.reason} for {url}")
        content = b""
        while block := answer.raw.read1(_BLOCK, decode_content=True):  # what is there: one that drips is noticed
            content += block
            if len(content) > limit:
                raise _Refused(f"{url} has more than {limit} bytes")
            if time.monotonic() > end:
                raise Unfetched(f"{url} is too slow: {len(content)} bytes came in time")
        return content
