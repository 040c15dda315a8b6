"""Servers that break off, are slow, away or say no, asked by everything that fetches: the same rule holds everywhere."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusetup.bootstrap import wheels as pip_program
from gpusetup.bootstrap.effects import fetch_lock
from gpusetup.bootstrap.userdata import Config
from gpusetup.bootstrap.web import Unfetched, fetch
from tests.flaky import CONTENT, serving
from tests.replay import metadata, packed

FIRST_STAGE = Path(__file__).parents[3] / "gpusetup/bootstrap/instance/first-stage"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def site():
    with serving() as one:
        yield one


PASSING = ("broken", "chunked, broken", "hangs up", "503", "500", "429", "408")
FINAL = ("404", "403", "401", "410")


def first_stage(url: str, target: Path, patience: float, digest: str = DIGEST) -> str:
    """The real script's own fetch, with pauses as short as here."""
    text = FIRST_STAGE.read_text()
    assert "pause = 2\n" in text
    script = target.with_name("first_stage.py")
    script.write_text(text.replace("pause = 2\n", "pause = 0.01\n"))
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import first_stage as f\n"
        "try: f.fetch(sys.argv[2], sys.argv[3], sys.argv[4], time.monotonic() + float(sys.argv[5]))\n"
        "except f.Failed as e: print(e.problem['reference'], e.problem['exit'], e.problem['message'])\n"
        "else: print('fetched')"
    )
    argv = [sys.executable, "-c", code, target.parent, url, digest, target, str(patience)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=env, timeout=60).stdout.strip()


@pytest.mark.parametrize("trouble", PASSING)
def test_what_passes_is_tried_again(site, tmp_path, trouble):
    assert fetch(site.says(trouble, trouble, "whole"), limit=1 << 20, patience=30, pause=0.01) == CONTENT
    assert site.asked == 3
    assert first_stage(site.says(trouble, trouble, "whole"), tmp_path / "got", 30) == "fetched"
    assert site.asked == 3
    assert (tmp_path / "got").read_bytes() == CONTENT


@pytest.mark.parametrize("answer", FINAL)
def test_a_no_is_final_everywhere(site, tmp_path, answer):
    with pytest.raises(Unfetched, match=answer):
        fetch(site.says(answer), limit=1 << 20, patience=30, pause=0.01)
    assert site.asked == 1
    assert first_stage(site.says(answer), tmp_path / "got", 30).startswith("GS-731 6")
    assert site.asked == 1


def test_a_url_that_is_none_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("tried again"))
    for url in ("ftp://x", "http://[::1", "https:///x"):
        with pytest.raises(Unfetched):
            fetch(url, limit=1, patience=30)


def test_patience_ends(site, tmp_path):
    with pytest.raises(Unfetched, match="503"):
        fetch(site.says("503"), limit=1 << 20, patience=0.2, pause=0.05)
    assert 2 <= site.asked <= 6
    assert first_stage(site.says("broken"), tmp_path / "got", 0.2).startswith("GS-731 6")
    assert site.asked >= 2


def test_a_server_that_stalls_or_drips_is_given_up(site):
    assert fetch(site.says("stalls", "whole"), limit=1 << 20, patience=30, pause=0.01, timeout=0.3) == CONTENT
    began = time.monotonic()
    with pytest.raises(Unfetched, match="too slow"):
        fetch(site.says("drips"), limit=1 << 20, patience=0.1, pause=0.2, timeout=1)
    assert time.monotonic() - began < 60, "the whole of it takes three minutes"


def test_another_file_that_came_whole_is_final(site, tmp_path):
    assert first_stage(site.says("other"), tmp_path / "got", 30).startswith("GS-732 3")
    assert site.asked == 1
    assert not list(tmp_path.glob("got*"))
    assert first_stage(site.says("chunked, other", "whole"), tmp_path / "got", 30) == "fetched", "it stopped"


def test_half_a_file_of_which_nobody_said_the_length_is_asked_for_again(site, tmp_path):
    assert first_stage(site.says("broken, no length", "whole"), tmp_path / "got", 30) == "fetched"
    assert first_stage(site.says("broken, no length"), tmp_path / "got", 0.2).startswith("GS-732 3")


def test_more_than_anybody_expects_is_not_read(site):
    with pytest.raises(Unfetched, match="more than 100 bytes"):
        fetch(site.says("whole"), limit=100, patience=30, pause=0.01)
    assert site.asked == 1


def test_the_pulled_lock_survives_a_break(site, tmp_path, monkeypatch):
    monkeypatch.setattr("gpusetup.bootstrap.web.time.sleep", lambda _: None)
    target = tmp_path / "lock.json"
    config = Config(source="", manifest_sha256="", lock_url=site.says("broken", "whole"), lock_sha256=DIGEST)
    assert fetch_lock(config, target) is None
    assert target.read_bytes() == CONTENT
    target.unlink()
    site.says("404")
    problem = fetch_lock(config, target)
    assert (problem.reference, problem.exit, site.asked) == ("GS-750", 6, 1)


def test_pip_asks_again_for_an_index_that_breaks_off(site, tmp_path):
    wheel = "thing-1.0-py3-none-any.whl"
    page = f'<!DOCTYPE html><html><body><a href="/files/{wheel}">{wheel}</a></body></html>'.encode()
    body = packed("thing", "1.0", metadata("thing", "1.0"))
    site.handler.content = {"/simple/thing/": page, f"/files/{wheel}": body}
    index = {"PIP_INDEX_URL": f"{site.url}/simple", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    words = ("download", "--no-deps", "--no-cache-dir", "--dest", str(tmp_path), "thing")
    site.says("broken", "whole")
    done = pip_program.pip(*words, deadline=120, pause=0.01, **index)
    assert done.ok, done.err
    assert (tmp_path / wheel).exists()
    assert site.handler.asked.count("/simple/thing/") == 2
    site.says("404")
    done = pip_program.pip(*words, deadline=120, pause=0.01, **index)
    assert not done.ok
    assert site.handler.asked.count("/simple/thing/") == 1, "what is not there is not asked for again"
    assert "No matching distribution" in pip_program.last_words(done)
