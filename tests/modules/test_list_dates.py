"""A repository that goes back in time: what the real package managers fetched says when its lists were made."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import list_dates, preview
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "2026-01-02T03:04:05Z", "2026-11-26T10:00:00Z"


def run(*words: str | Path, **more: Any) -> None:
    subprocess.run(words, check=True, capture_output=True, **more)


def released(place: Path, day: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "Packages").write_text("")
    (place / "Release").write_text(f"Date: {day}\nSHA256:\n {'0' * 64} 0 Packages\n")


@pytest.mark.parametrize("place", ["a_b/x86_64", "plain"])
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
def test_of_real_apt(place: str, tmp_path: Path) -> None:
    there, folder = tmp_path / "site" / place, tmp_path / "look"
    (there / "dists/x").mkdir(parents=True)
    for name in ("lists/partial", "cache/archives/partial", "etc", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/sources.list").write_text(f"deb [trusted=yes] file:{there} ./\n")
    released(there, "Fri, 02 Jan 2026 03:04:05 +0000")
    (there / "Release").write_text("Date: Fri, 02 Jan 2026 03:04:05 +0000\n")
    places = {"Dir::State": "state", "Dir::State::lists": "lists", "Dir::Cache": "cache",
              "Dir::Etc::sourcelist": "etc/sources.list", "Dir::Etc::sourceparts": "/-"}  # fmt: skip
    options = [f"-o{name}={os.path.join(folder, value)}" for name, value in places.items()]
    run("apt-get", *options, "-oAPT::Sandbox::User=root", "update")
    address = f"file://{there}"
    assert list_dates.of([("x", address), ("y", "https://elsewhere.example/y")], str(folder)) == {address: OLD}
    list_dates.forget(["https://elsewhere.example/y", address], str(folder))
    assert list_dates.of([("x", address)], str(folder)) == {}


@pytest.mark.parametrize("place", ["cache/cuda-0123456789abcdef", "cache/raw/cuda"])
def test_of_the_index_that_dnf_and_zypper_keep(place: str, tmp_path: Path) -> None:
    for name, revision in ((place, 1767323045), (f"{place}-other", 1)):
        index = tmp_path / name / "repodata/repomd.xml"
        index.parent.mkdir(parents=True)
        index.write_text(f"<repomd><revision>{revision}</revision></repomd>")
    assert list_dates.of([("cuda", "https://m.example/c")], str(tmp_path)) == {"https://m.example/c": OLD}


def test_who_goes_back_is_refused_unless_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_dates, "of", lambda _sources, _folder="": {"file:///srv/bundle": OLD})
    source = {"name": "cuda", "uris": ["file:///srv/bundle"]}
    for before, older, levels in (({}, False, []), ({"file:///srv/bundle": OLD}, False, []),
                                  ({"file:///srv/bundle": NEW}, False, ["refuse"]),
                                  ({"file:///srv/bundle": NEW}, True, ["info"])):  # fmt: skip
        look = preview.Preview({"simulated_root": "", "older": older, "state_dir": str(tmp_path)})
        look._order([source], before)
        assert [item["level"] for item in look.findings] == levels
    assert "--older-source" in look.findings[0]["hint"]
    address = "https://m.example/c"
    assert not list_dates.older({address: OLD}, {address: OLD.replace("-02T", "-03T")}), "a server that lags"
    assert list_dates.older({address: OLD}, {address: OLD.replace("-02T", "-04T")})
    ledger = Ledger(str(tmp_path / "state"))
    ledger.tell(listed={"file:///srv/bundle": NEW})
    assert Ledger(ledger.folder).state["listed"] == {"file:///srv/bundle": NEW}
