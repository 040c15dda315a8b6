"""A server that plays the publishers, and a way to ask single sources of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.replay import Replay, serving
from tests.tools.refresh.published import TODAY, documents
from tools.refresh import asking
from tools.refresh.sources import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Replay]:
    monkeypatch.setattr(asking.time, "sleep", lambda _seconds: None)
    with serving() as one:
        yield one


@pytest.fixture
def ask(site: Replay) -> Callable[..., Any]:
    """Ask sources; return what came of it as (gathering, {source: error})."""

    def asked(*sources: str) -> Any:
        places = {name: f"{site.url}/{name}" for name in ("cuda", "pairing", "cudnn", "lanes")}
        places |= {"repositories": f"{site.url}/repos", "index": site.index, "drivers": f"{site.url}/releases.json"}
        found, failed = gather(documents(), TODAY, only=sources, elsewhere=places, tell=lambda _what: None, pause=0.0)
        return found, dict(failed)

    return asked
