"""Files come whole by their digest, or not at all; what was cut goes on."""

import errno
import hashlib
import os
import shutil
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpusetup.bootstrap import bundle
from gpusetup.content import host_code
from gpusetup.errors import HostFailedError, UnreachableError
from gpusetup_fleet.supply import fetching
from gpusetup_fleet.supply.fetching import Pool, Wanted, sized
from tests.flaky import CONTENT, serving
from tests.fleet.supply.conftest import nothing

DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(fetching, "_PAUSE", 0.0)
    with serving() as one:
        yield one


def wanted(url, size: int = len(CONTENT)):
    return Wanted(url=url, name="a.deb", size=size, sha256=DIGEST)


@pytest.mark.parametrize("trouble", ["broken", "hangs up", "503", "429", "stalls"])
def test_what_breaks_off_goes_on(site, tmp_path, trouble, monkeypatch):
    pool, synced = Pool(tmp_path / "pool"), []
    monkeypatch.setattr(fetching, "_SILENCE", 0.5 if trouble == "stalls" else 60.0)
    monkeypatch.setattr(fetching.os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    assert pool.fetch([wanted(site.says(trouble, trouble, "whole"))], nothing) == len(CONTENT)
    assert pool.path(DIGEST).read_bytes() == CONTENT
    assert synced == [pool.path(DIGEST).stat().st_ino], "it is on the disk before it has its name"
    asked = site.asked
    assert pool.fetch([wanted(f"{site.url}/x")], nothing) == 0
    assert site.asked == asked, "what is there is not asked for again"


def test_a_server_that_trickles_is_left_and_what_came_is_kept(site, tmp_path, monkeypatch):
    """It sends fifty bytes a second, and never falls nothing."""
    monkeypatch.setattr(host_code("gpu_host.download"), "PERIOD", 0.2)
    pool = Pool(tmp_path / "pool")
    assert pool.fetch([wanted(site.says("drips", "drips", "whole"))], nothing) == len(CONTENT)
    assert (site.asked, pool.path(DIGEST).read_bytes()) == (3, CONTENT)

    other = Pool(tmp_path / "other")
    with pytest.raises(UnreachableError, match=r"a\.deb could not be downloaded") as told:
        other.fetch([wanted(site.says("drips"))], nothing)
    assert site.asked == 5
    assert "less than 1000 a second" in str(told.value.note)
    there = (tmp_path / "other/.part" / DIGEST).stat().st_size
    assert 25 <= there < 1000, "each try went on where the one before it was left"
    assert other.fetch([wanted(site.says("whole"))], nothing) == len(CONTENT)
    assert site.handler.spans == [f"bytes={there}-"]


def test_what_has_no_end_fills_no_disk(site, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_BLOCK", 1000)
    site.handler.content["/x"] = b"x" * 100_000
    sizes = []
    monkeypatch.setattr(Path, "unlink", lambda path, **_: sizes.append(path.stat().st_size) or os.unlink(path))
    with pytest.raises(UnreachableError):
        Pool(tmp_path / "pool").fetch([wanted(site.says("whole"))], nothing)
    assert len(CONTENT) < max(sizes) <= len(CONTENT) + 1000


def test_a_later_run_uses_what_an_earlier_one_brought(site, tmp_path):
    part = tmp_path / "pool/.part"
    part.mkdir(parents=True)
    (part / DIGEST).write_bytes(CONTENT[:1000])
    heard = Mock()
    Pool(tmp_path / "pool").fetch([wanted(site.says("whole"))], heard)
    assert Pool(tmp_path / "pool").path(DIGEST).read_bytes() == CONTENT
    heard.assert_called_once_with(len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("word", ["other", "404", "hangs up"])
def test_what_is_not_the_file_is_never_in_the_pool(site, tmp_path, word):
    pool = Pool(tmp_path / "pool")
    with pytest.raises(UnreachableError, match=r"a\.deb could not be downloaded"):
        pool.fetch([wanted(site.says(word))], nothing)
    assert not pool.path(DIGEST).exists()
    assert pool.fetch([wanted(site.says("whole"))], nothing) == len(CONTENT), "the same command completes"


def test_a_size_that_nobody_told_is_asked_for(site, tmp_path):
    site.handler.do_HEAD = site.handler.do_GET
    (told,) = sized([wanted(site.says("whole"), size=0)])
    assert told.size == len(CONTENT)
    here = tmp_path / "wheel"
    here.write_bytes(CONTENT)
    assert Pool(tmp_path / "pool").fetch([wanted(f"file://{here}", size=0)], nothing) == len(CONTENT)


def test_no_room_is_said_before_anything_is_fetched(site, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 100})())
    with pytest.raises(HostFailedError, match="MiB free"):
        Pool(tmp_path / "pool").fetch([wanted(site.says("whole"))], nothing)
    assert site.asked == 0


def test_a_disk_that_fills_is_said_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_go_on", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(HostFailedError, match="is full"):
        Pool(tmp_path / "pool").fetch([wanted("http://nowhere.invalid/x")], nothing)


def test_an_interrupt_does_not_wait_for_the_rest(site, tmp_path, monkeypatch):
    monkeypatch.setattr(host_code("gpu_host.download"), "PERIOD", 60)
    site.handler.content["/y"] = other = CONTENT[1:]
    digest = hashlib.sha256(other).hexdigest()
    files = [wanted(site.says("whole", "drips")), Wanted(f"{site.url}/y", "b.deb", len(other), digest)]

    def interrupted(_done: int, _whole: int) -> None:
        while site.asked < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pool(tmp_path / "pool").fetch(files, interrupted)
    assert site.asked == 2


def test_a_name_is_a_link_and_known_files_are_used(tmp_path):
    old = tmp_path / "old.deb"
    old.write_bytes(CONTENT)
    pool = Pool(tmp_path / "pool", [(old, DIGEST, len(CONTENT))])
    assert pool.lacking([wanted("http://nowhere.invalid/x")]) == []
    pool.lay(DIGEST, tmp_path / "new/a.deb")
    assert (tmp_path / "new/a.deb").stat().st_ino == old.stat().st_ino
    cut = Pool(tmp_path / "pool", [(old, DIGEST, len(CONTENT) + 1)])
    assert cut.lacking([wanted("http://nowhere.invalid/x")])


def test_what_programs_of_a_killed_run_still_write_does_not_stop_the_next(tmp_path, monkeypatch):
    left, late, delete = tmp_path / ".site.new", ["a", "b"], shutil.rmtree
    left.mkdir()

    def deleted(folder, *, ignore_errors):
        delete(folder, ignore_errors=ignore_errors)
        if late:
            left.mkdir(exist_ok=True)
            (left / late.pop()).touch()

    monkeypatch.setattr(bundle.shutil, "rmtree", deleted)
    with bundle.replaced(tmp_path / "site") as new:
        assert list(new.iterdir()) == []
    assert (tmp_path / "site").is_dir()


def test_a_new_folder_is_as_open_as_the_old_one(tmp_path):
    place = tmp_path / "site"
    place.mkdir()
    place.chmod(0o2750)
    with bundle.replaced(place) as new:
        (new / "a").touch()
    assert place.stat().st_mode & 0o7777 == 0o2750
    assert (place / "a").is_file()
