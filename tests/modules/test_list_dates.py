"""A repository that goes back in time: what the real package managers fetched says when its lists were made."""

import functools
import hashlib
import http.server
import os
import shutil
import subprocess

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import list_dates, preview
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.flaky import listening

OLD, NEW = "2026-01-02T03:04:05Z", "2026-11-26T10:00:00Z"


@pytest.mark.parametrize("place", ["a_b/x86_64", "plain"])
@pytest.mark.parametrize("scheme", ["file", "http"])
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
def test_real_apt_shows_an_older_repository_once_its_lists_are_forgotten(scheme, place, tmp_path):
    site, there, folder = tmp_path / "site", tmp_path / "site" / place, tmp_path / "look"
    parts = ("lists/partial", "cache/archives/partial", "etc", "state")
    for needed in (there, *(folder / name for name in parts)):
        needed.mkdir(parents=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with listening(handler) as web:
        address = f"file://{there}" if scheme == "file" else f"{web.url}/{place}"
        (folder / "etc/sources.list").write_text(f"deb [trusted=yes] {address} ./\n")
        places = {"Dir::State": "state", "Dir::State::lists": "lists", "Dir::Cache": "cache",
                  "Dir::Etc::sourcelist": "etc/sources.list", "Dir::Etc::sourceparts": "/-"}  # fmt: skip
        options = [f"-o{name}={os.path.join(folder, value)}" for name, value in places.items()]

        def fetched(day):
            text = f"Package: x\nVersion: {day[5:7]}\nArchitecture: all\nFilename: ./x\nSize: 1\nSHA256: {'0' * 64}\n"
            (there / "Packages").write_text(text)
            digest = hashlib.sha256(text.encode()).hexdigest()
            (there / "Release").write_text(f"Date: {day}\nSHA256:\n {digest} {len(text)} Packages\n")
            update = ["apt-get", *options, "-oAPT::Sandbox::User=root", "-oAcquire::http::Proxy=DIRECT", "update"]
            subprocess.run(update, check=True, capture_output=True)
            return list_dates.of([("x", address), ("y", "https://elsewhere.example/y")], str(folder))

        assert fetched("Thu, 26 Nov 2026 10:00:00 +0000") == {address: NEW}
        assert fetched("Fri, 02 Jan 2026 03:04:05 +0000") == {address: NEW}, "apt keeps the newer ones"
        list_dates.forget(["https://elsewhere.example/y", address], str(folder))
        assert fetched("Fri, 02 Jan 2026 03:04:05 +0000") == {address: OLD}
        web.shutdown()


def test_who_goes_back_is_refused_unless_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(list_dates, "of", lambda _sources, _folder="": {"file:///srv/bundle": OLD})
    source = {"name": "cuda", "uris": ["file:///srv/bundle"]}
    for before, older, levels in ((None, False, []), (OLD, False, []), (NEW, False, ["refuse"]), (NEW, True, ["info"])):
        look = preview.Preview({"simulated_root": "", "older": older, "state_dir": str(tmp_path)})
        look._order([source], {"file:///srv/bundle": before} if before else {})
        assert [item["level"] for item in look.findings] == levels
    assert "--older-source" in look.findings[0]["hint"]
    address = "https://m.example/c"
    assert not list_dates.older({address: OLD}, {address: OLD.replace("-02T", "-03T")}), "a server that lags"
    assert list_dates.older({address: OLD}, {address: OLD.replace("-02T", "-04T")})
    Ledger(str(tmp_path / "state")).tell(listed={"file:///srv/bundle": NEW})
    assert Ledger(str(tmp_path / "state")).state["listed"] == {"file:///srv/bundle": NEW}
