"""SIGKILL at random moments while a bundle or a mirror is renewed: hosts have the old one or the new one, whole."""

import multiprocessing
import random
import shutil
import time

from gpusetup.bootstrap.bundle import check_bundle
from gpusetup.supply import site
from gpusetup.supply.apt_repository import read
from gpusetup.supply.site import add_system
from tests.unit.supply.conftest import NEEDED, REPOSITORY, deb, described, no_wheels, nothing

pytestmark = NEEDED
KILLS = 14


def _renewing(out, supply, key):
    process = multiprocessing.get_context("fork").Process(target=add_system, args=(out, supply, key, nothing))
    process.start()
    return process


def _ended(process):
    process.join()
    return process.exitcode


def test_a_bundle_that_is_renewed(tmp_path, supply, key, monkeypatch):
    monkeypatch.setattr(site, "controller_wheels", no_wheels)
    out = tmp_path / "site"

    newer = tuple(described(deb(tmp_path / "newer", name, version="3:9.0-1")) for name in ("driver", "dkms", "more"))
    renewed = supply._replace(packages=newer)
    chance, seen = random.Random(20261124), set()
    add_system(out, renewed, key, nothing)
    began = time.monotonic()
    assert _ended(_renewing(out, renewed, key)) == 0
    took = time.monotonic() - began
    for number in range(KILLS):
        shutil.rmtree(out)
        old = add_system(out, supply, key, nothing).systems["debian12-x86_64"].packages
        process = _renewing(out, renewed, key)
        time.sleep((number + chance.random()) / KILLS * 1.6 * took)  # the switch is near the end, machines are noisy
        process.kill()
        process.join()
        there = check_bundle(out).systems["debian12-x86_64"].packages
        assert there in (old, renewed.versions())
        assert {entry.name: entry.version for entry in read(out / REPOSITORY)} == there
        seen.add(len(there))
        assert _ended(_renewing(out, renewed, key)) == 0
        assert check_bundle(out).systems["debian12-x86_64"].packages == renewed.versions()
        assert not [path for path in tmp_path.glob(".site*") if path.is_dir()]
    assert seen == {2, 3}, f"kills before and after the switch, not only {seen}"
