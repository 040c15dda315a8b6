"""Lists that a look fetched are taken over only from the same repositories; one that goes back in time is told."""

import errno
import functools
import hashlib
import http.server
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched, list_dates, preview
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.flaky import listening
from tests.lab.process import until
from tests.modules.stand_ins import replace, write

SOURCE, PINS = "etc/apt/sources.list.d/gpusetup-cuda.sources", "etc/apt/preferences.d/pins"
LISTS, KEY = "var/lib/apt/lists", "etc/apt/keyrings/cuda.pgp"


def folder_with(text):
    """A preview's folder with one source, whose key lies in the folder too."""
    folder = Path(fetched.new_folder())
    write(folder, {SOURCE: f"{text}\nSigned-By: {folder}/etc/apt/keyrings/cuda.pgp\n"})
    return folder


@pytest.fixture
def left(monkeypatch, tmp_path):
    """What a first preview left."""
    replace(monkeypatch, fetched, PLACE=str(tmp_path), _DELETE_AFTER=0)
    folder = folder_with("URIs: https://a.example")
    write(folder, {
        "etc/apt/sources.list.d/needless.sources": "URIs: https://needless.example\n",
        "lists/a.example_Packages": "Package: x\n", "messages.json": '["W: old"]',
    })  # fmt: skip
    return folder


def test_what_is_old_or_elsewhere_or_not_ours_is_left_alone(left, tmp_path):
    second = folder_with("URIs: https://a.example")
    link = tmp_path / "gpusetup-preview-link"
    link.symlink_to(left)
    for path in ("", "/etc", str(left / "lists"), str(tmp_path / "gpusetup-preview-..") + "/lists", str(link)):
        assert fetched.take(path, str(second)) is None
    os.utime(left / "messages.json", (0, 0))
    assert fetched.take(str(left), str(second)) is None
    os.utime(left / "messages.json")
    if os.geteuid() == 0:
        os.chown(left, 1, -1)
        assert fetched.take(str(left), str(second)) is None
        os.chown(left, 0, -1)
    assert fetched.take(str(left), str(second)) == ["W: old"]


@pytest.fixture
def host(left, tmp_path):
    """A host with the sources that were looked at, and older lists."""
    pins = {PINS: "Pin: nothing that is fetched\n"}
    write(left, {"messages.json": "[]", "lists/partial/x": "", "lists/a.example_InRelease": "new", **pins})
    (left / "lists/partial/x").unlink()
    root = tmp_path / "host"
    shutil.copytree(left / "etc/apt/sources.list.d", root / "etc/apt/sources.list.d")
    write(root, {
        SOURCE: (left / SOURCE).read_text().replace(str(left), ""),
        "etc/apt/sources.list.d/notes.txt": "apt does not read this",
        f"{LISTS}/a.example_InRelease": "old", f"{LISTS}/a.example_Translation-en": "stays",
    })  # fmt: skip
    (root / LISTS / "partial").mkdir()
    return root


def test_lists_on_another_file_system_are_copied(left, host, monkeypatch):
    rename = os.rename

    def within(origin, target):
        if origin.startswith(str(left)):
            raise OSError(errno.EXDEV, "another device")
        rename(origin, target)

    monkeypatch.setattr(os, "rename", within)
    assert fetched.hand_over(str(left), str(host))
    assert (host / LISTS / "a.example_InRelease").read_text() == "new"
    assert not list((host / LISTS / "partial").iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda left, _host: write(left, {"messages.json": '["W: one repository did not answer"]'}),
        lambda _left, host: write(host, {"etc/apt/sources.list": "deb https://b.example x main\n"}),
        lambda _left, host: (host / "etc/apt/sources.list.d/needless.sources").unlink(),
        lambda left, host: [write(root, {KEY: key}) for root, key in ((left, b"\x99looked"), (host, b"\x99here"))],
        lambda _left, host: shutil.rmtree(host / LISTS),
    ],
    ids=["trouble", "one more", "one less", "another key", "no lists"],
)
def test_apt_fetches_itself_after_trouble_or_from_elsewhere(left, host, change):
    change(left, host)
    assert not fetched.hand_over(str(left), str(host))
    assert left.exists()


def test_what_nobody_takes_deletes_itself(left):
    fetched.leave(str(left), [])
    until(lambda: not left.exists(), "it is gone", 20)


def test_what_killed_looks_left_is_swept_and_nothing_that_is_needed(left, tmp_path):
    dead = tmp_path / "gpusetup-preview-dead"
    (dead / "lists").mkdir(parents=True)
    foreign = tmp_path / "gpusetup-preview-foreign"
    foreign.mkdir()
    if os.geteuid() == 0:
        os.chown(foreign, 1, -1)
    else:
        foreign.rename(tmp_path / "foreign")
        foreign = tmp_path / "foreign"
    link = tmp_path / "gpusetup-preview-link"
    link.symlink_to(tmp_path / "somebody-elses")
    (tmp_path / "somebody-elses").mkdir()
    new = Path(fetched.new_folder())
    assert not dead.exists()
    assert all(path.exists() for path in (left, new, foreign, link, tmp_path / "somebody-elses"))
    fetched.drop(str(new))
    assert not new.exists()


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


def test_fewer_repositories_need_no_second_fetch_and_lose_their_sources(left):
    assert fetched.take(str(left), str(folder_with("URIs: https://a.example"))) == ["W: old"]
    assert [path.name for path in (left / "etc/apt/sources.list.d").iterdir()] == ["gpusetup-cuda.sources"]
