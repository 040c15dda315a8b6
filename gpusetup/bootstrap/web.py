"""HTTP requests of the bootstrap: trusted authorities, retries and deadlines."""

from __future__ import annotations

import json
import random
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.components.parsing import without_logins
from gpusetup.errors import reason, shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

_LISTS = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "etc/pki/tls/certs/ca-bundle.crt",  # Enterprise Linux, Amazon Linux
    "var/lib/ca-certificates/ca-bundle.pem",  # SUSE
)


def authorities(root: Path = Path("/")) -> str | bool:
    """Return the path of the machine's CA list, as `requests` takes it; True (its own list) if there is none."""
    return next((str(root / name) for name in _LISTS if (root / name).is_file()), True)


_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_TIMEOUT = 60.0
_BLOCK = 1 << 16
_LONGEST_ANSWER = 8 << 20
"""Limit, in bytes, of answers that are not streamed: statuses, and those of a lease store."""


class Unfetched(Exception):  # noqa: N818 - a name for the result, not for the error
    """A request that brought no answer; the text says why, and shows no login or token of an address."""

    def __init__(self, text: str) -> None:
        super().__init__(without_logins(text))


_CAUSES: dict[str, str] = json.loads(shipped("bootstrap/data/causes.json"))
"""Names of errors, the telling ones first, and what they mean for people."""


def cause(error: BaseException) -> str:
    """Return why a request failed, without its address."""
    answer = getattr(error, "response", None)
    if answer is not None and answer.status_code >= 400:
        return f"it answers {answer.status_code} {answer.reason}"
    chain = [error]
    while len(chain) < _DEPTH and (inner := _inner(chain[-1])) is not None:
        chain.append(inner)
    names = {kind.__name__ for one in chain for kind in type(one).__mro__}
    last, coded = getattr(chain[-1], "verify_message", ""), getattr(chain[-1], "reason", "")
    last = last or str(coded).lower().replace("_", " ") or reason(chain[-1])  # TLS: WRONG_VERSION_NUMBER
    known = next((text for words, text in _CAUSES.items() if names.intersection(words.split("|"))), "{}")
    return known.format(" ".join(last.split())[:300] or type(error).__name__)


_DEPTH = 9


def _inner(error: BaseException) -> BaseException | None:
    wrapped = (getattr(error, "reason", None), *error.args, error.__cause__, error.__context__)
    return next((one for one in wrapped if isinstance(one, BaseException)), None)


@contextmanager
def session(ca: str | bool = True) -> Iterator[requests.Session]:
    """Open a session that raises Unfetched for every error; it trusts the machine's authorities, or the list `ca`."""
    import requests
    from urllib3.exceptions import HTTPError

    class Session(requests.Session):
        """A session whose `verify` wins over REQUESTS_CA_BUNDLE in the environment."""

        asked = ""
        """The address of the last request."""

        def request(self, method: Any, url: Any, *words: Any, **named: Any) -> requests.Response:
            """Return an answer; what is not streamed is read here, since a server may send without an end."""
            answer = super().request(method, url, *words, **{**named, "stream": True})
            if not named.get("stream"):
                answer._content = content_of(answer, url, _LONGEST_ANSWER, time.monotonic() + _TIMEOUT)  # noqa: SLF001 - as requests does
            return answer

        def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
            self.asked = url
            return super().merge_environment_settings(
                url, proxies, stream, self.verify if verify is None else verify, cert
            )

    with Session() as opened:
        opened.verify = authorities() if ca is True else ca
        try:
            yield opened
        except (requests.RequestException, HTTPError, OSError) as error:
            wrong = isinstance(error, ValueError)  # requests' errors about the URL itself
            raise (_Refused if wrong else Unfetched)(f"{opened.asked}: {cause(error)}".lstrip(": ")) from error


def passes(status: int) -> bool:
    """Return whether a status is temporary: a server error, or a request to try later.

    The first stage, which cannot import this, repeats the rule.
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
    """Return the content of a URL, at most `limit` bytes; retry incomplete answers for `patience` seconds."""
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
    """A permanent refusal: another try would get the same answer."""


def _once(url: str, limit: int, timeout: float, end: float, accept: str) -> bytes:
    with session() as opened, opened.get(url, timeout=timeout, stream=True, headers={"Accept": accept}) as answer:
        if answer.status_code >= 400:
            trouble = Unfetched if passes(answer.status_code) else _Refused
            raise trouble(f"{answer.status_code} {answer.reason} for {url}")
        return content_of(answer, url, limit, end)


def content_of(answer: requests.Response, url: str, limit: int, end: float) -> bytes:
    """Return the content of an answer, at most `limit` bytes; raise if it has not come by `end`."""
    content = b""
    while block := answer.raw.read1(_BLOCK, decode_content=True):  # what has arrived, so that the end is noticed
        content += block
        if len(content) > limit:
            raise _Refused(f"{url} has more than {limit} bytes")
        if time.monotonic() > end:
            raise Unfetched(f"{url} is too slow: {len(content)} bytes came in time")
    return content
