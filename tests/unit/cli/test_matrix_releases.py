"""Releases of the matrix: written, signed, taken in, refused; what a fleet's drivers have ahead of them."""

import datetime as dt
import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest

from gpusetup.cli.matrix_eol import ends
from gpusetup.matrix import releases
from gpusetup.matrix.load import Matrix, matrix, shipped_date
from gpusetup.model.answers import MatrixRelease
from tests.property.test_command_line import run

TOMORROW = (dt.date.fromisoformat(shipped_date()) + dt.timedelta(days=1)).isoformat()
NEW = "999.10.01"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUSETUP_MATRIX", raising=False)
    return tmp_path


def asked(*words):
    return run(["matrix", *map(str, words)])


def taken(path, *words):
    """Take a release in by its digest."""
    return asked("import", path, "--sha256", sha256(path), *words)


def release(path, day=TOMORROW, change=lambda driver: None):
    """A file as `matrix export` writes it, with another day and what a test changes."""
    files = dict(releases.release_of(Matrix()).files)
    driver = json.loads(files["driver"])
    driver["date"] = day
    change(driver)
    files["driver"] = json.dumps(driver)
    made = MatrixRelease(date=day, sha256=releases.digest(files), files=files)
    path.write_bytes(msgspec.json.encode(made))
    return path


def one_more(driver):
    driver["versions"].append({**driver["versions"][-1], "version": NEW})


def sha256(path):
    return subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]


def test_an_export_is_the_shipped_matrix_and_can_be_taken_in(home):
    path = home / "matrix.json"
    assert asked("export", "--out", path)[0] == 0
    assert taken(path)[:2] == (0, f"the matrix of {shipped_date()}, by its digest\n")
    assert matrix().digest == Matrix().digest


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_a_signature_of_a_known_signer_is_what_it_takes(home):
    path = release(home / "matrix.json", change=one_more)
    for name in ("ours", "theirs"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name], check=True)
    assert "no signer is known" in asked("import", path)[2]
    signers = home / "config/gpusetup/matrix-signers"
    signers.parent.mkdir(parents=True)
    signers.write_text("site@example.org " + (home / "ours.pub").read_text())
    assert "cannot read" in asked("import", path)[2]

    def signed(key, use="gpusetup-matrix"):
        path.with_name("matrix.json.sig").unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", home / key, "-n", use, path], check=True)

    signed("theirs")
    told = asked("import", path)[2]
    assert "no trusted signer signed this matrix" in told
    assert f"at: {path}.sig" in told
    signed("ours", use="git")
    assert "does not belong to this matrix" in asked("import", path)[2]
    signed("ours")
    code, out, err = asked("import", path, "--check")
    assert (code, out.splitlines()) == (0, [f"the matrix of {TOMORROW}, signed by site@example.org", "driver: 1 added"])
    assert "nothing was changed" in err
    assert matrix().date == shipped_date()
    assert asked("import", path)[0] == 0
    assert matrix().date == TOMORROW
    assert NEW in {item.version for item in matrix().driver.versions}
    path.write_bytes(path.read_bytes().replace(b"595", b"596"))
    assert "does not belong to this matrix" in asked("import", path)[2]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "not a release of the matrix"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"580.", b"581.")), "damaged"),
        (lambda path: release(path, day="2020-01-01"), "older than what this gpusetup ships"),
        (lambda path: release(path, day="2999-01-01"), "in the future"),
        (lambda path: release(path, change=lambda driver: driver["versions"][0].update(branch=1)), "driver branch 1"),
    ],
    ids=["cut", "changed", "old", "from the future", "dangling"],
)
def test_what_cannot_be_used_changes_nothing(home, harm, said):
    path = release(home / "matrix.json", change=one_more)
    assert taken(path)[0] == 0
    before = matrix().digest
    harm(path)
    code, out, err = taken(path)
    assert (code, out) == (3, "")
    assert said in " ".join(err.split())
    assert matrix().digest == before
    assert not list((home / "data/gpusetup/matrix").glob(".new*"))


def test_so_many_releases_are_kept_and_the_one_in_force_always(home, monkeypatch):
    monkeypatch.setattr(releases, "KEPT", 2)
    days = [(dt.date.fromisoformat(shipped_date()) + dt.timedelta(days=number)).isoformat() for number in range(3)]
    for day in days:
        content = release(home / f"{day}.json", day)
        assert taken(content, "--older")[0] == 0
    folder = home / "data/gpusetup/matrix"
    assert [path.name[:10] for path in releases.all_kept(folder)] == days[1:]
    first = home / f"{days[0]}.json"
    assert taken(first, "--older")[0] == 0
    assert [path.name[:10] for path in releases.all_kept(folder)] == [days[0], *days[1:]]
    assert (folder / "current").resolve().name.startswith(days[0])


def test_what_a_killed_import_left_goes_with_the_next_one(home, monkeypatch):
    made, place = releases.release_of(Matrix()), home / "matrix"
    with monkeypatch.context() as killed:
        killed.setattr(releases.shutil, "rmtree", lambda *_given, **_named: None)
        killed.setattr(releases.os, "fsync", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            releases.put_in_force(made, place)
    with ThreadPoolExecutor() as several:
        assert set(several.map(lambda _: releases.put_in_force(made, place), range(4))) == {place / made.name}
    assert sorted(path.name for path in place.iterdir()) == sorted([".lock", "current", made.name])


def test_the_end_of_each_driver_that_hosts_run():
    versions = {"a": "535.183.01", "b": "580.95.05", "c": "580.95.05", "d": "630.10.01"}
    hosts = {name: SimpleNamespace(driver=SimpleNamespace(version=version)) for name, version in versions.items()}
    facts = SimpleNamespace(hosts={**hosts, "e": SimpleNamespace(driver=None)})
    found = {end.driver: end for end in ends(facts, Matrix(), dt.date(2028, 5, 1), within=90)}
    assert {driver: (end.until, end.state, end.hosts) for driver, end in found.items()} == {
        "535.183.01": ("2026-06", "ended", ("a",)),
        "580.95.05": ("2028-06", "ends soon", ("b", "c")),
        "630.10.01": ("", "unknown", ("d",)),
    }
    early = {end.driver: end.state for end in ends(facts, Matrix(), dt.date(2026, 12, 1), within=90)}
    assert early["580.95.05"] == "supported"
