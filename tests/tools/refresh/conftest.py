"""A server that plays the publishers, and a way to ask single sources of it."""

import pytest

from tests.replay import serving
from tests.tools.refresh.published import TODAY, documents
from tools.refresh import asking
from tools.refresh.sources import gather


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(asking.time, "sleep", lambda _seconds: None)
    with serving() as one:
        yield one


@pytest.fixture
def ask(site):
    """Ask sources; return what came of it as (gathering, {source: error})."""

    def asked(*sources):
        places = {name: f"{site.url}/{name}" for name in ("cuda", "pairing", "cudnn", "lanes")}
        places |= {"repositories": f"{site.url}/repos", "index": site.index, "drivers": f"{site.url}/releases.json"}
        found, failed = gather(documents(), TODAY, only=sources, elsewhere=places, tell=lambda _what: None, pause=0.0)
        return found, dict(failed)

    return asked
