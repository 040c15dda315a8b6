"""SIGKILL at many moments while a bundle or a mirror is renewed: hosts have the old one or the new one, whole."""

import itertools
import shutil

from gpusetup.bootstrap.bundle import check_bundle
from gpusetup_fleet.supply import site
from gpusetup_fleet.supply.apt_repository import read
from gpusetup_fleet.supply.site import add_system
from tests.fleet.supply.conftest import NEEDED, REPOSITORY, deb, described, killed_at, no_wheels, nothing

pytestmark = NEEDED


def test_a_bundle_that_is_renewed(tmp_path, supply, key, monkeypatch):
    monkeypatch.setattr(site, "controller_wheels", no_wheels)
    out = tmp_path / "site"

    newer = tuple(described(deb(tmp_path / "newer", name, version="3:9.0-1")) for name in ("driver", "dkms", "more"))
    renewed = supply._replace(packages=newer)
    moments, seen, killed = itertools.count(1, 12), set(), True
    while killed:
        shutil.rmtree(out, ignore_errors=True)
        old = add_system(out, supply, key, nothing).systems["debian12-x86_64"].packages
        killed = killed_at(next(moments), add_system, out, renewed, key, nothing)
        there = check_bundle(out).systems["debian12-x86_64"].packages
        assert there in (old, renewed.versions())
        assert {entry.name: entry.version for entry in read(out / REPOSITORY)} == there
        seen.add((killed, len(there)))
        add_system(out, renewed, key, nothing)
        assert check_bundle(out).systems["debian12-x86_64"].packages == renewed.versions()
        assert not [path for path in tmp_path.glob(".site*") if path.is_dir()]
    assert seen == {(True, 2), (True, 3), (False, 3)}, "kills before and after the switch"
