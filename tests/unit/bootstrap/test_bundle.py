"""Bundles: packed again as installed, closed by the target's markers, checked before use."""

import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from gpusetup.bootstrap import bundle, wheels
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, HostFailedError
from gpusetup.model.bundle import BundledFile, Manifest
from tests.refusals import refused
from tests.replay import metadata, packed


@pytest.fixture
def made(tmp_path):
    folder = tmp_path / "bundle"
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels/a.whl").write_bytes(b"content")
    files = {"wheels/a.whl": BundledFile(sha256=bundle.digest_of(folder / "wheels/a.whl"), size=7)}
    manifest = Manifest(gpusetup="1", pip="wheels/a.whl", sets={"3.11-x86_64": ("wheels/a.whl",)}, files=files)
    (folder / bundle.MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return folder


@pytest.mark.parametrize(
    ("name", "content", "reference"),
    [
        ("wheels/a.whl", "other", "GS-718"), ("wheels/a.whl", None, "GS-717"), ("manifest.json", None, "GS-715"),
        ("manifest.json", "{", "GS-716"), ("manifest.json", '{"schema": "other/1"}', "GS-714"),
    ],
)  # fmt: skip
def test_what_differs_is_named(made, name, content, reference):
    assert bundle.check_bundle(made).gpusetup == "1"
    (made / name).unlink() if content is None else (made / name).write_text(content)
    with refused(BadInputError, reference):
        bundle.check_bundle(made)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    with refused(BadInputError, "GS-713"):
        bundle.make_controller_bundle(tmp_path, pythons=("3.11",), archs=("x86_64",))
    assert (tmp_path / "precious").read_text() == "x"
    for place, why in ((tmp_path / "precious", "is not a folder"), (Path("/proc/none"), "cannot make /proc/none")):
        with pytest.raises(BadInputError, match=why):
            bundle.make_controller_bundle(place, pythons=("3.11",), archs=("x86_64",))


def test_a_bundle_that_a_killed_run_moved_aside_comes_back(made, monkeypatch):
    monkeypatch.setattr(bundle, "own_wheel", lambda _folder: 1 / 0)
    made.rename(made.with_name(f".{made.name}.old"))
    with pytest.raises(ZeroDivisionError):
        bundle.make_controller_bundle(made, pythons=("3.11",), archs=("x86_64",))
    assert bundle.check_bundle(made)


def test_the_folder_that_one_stands_in_is_made_too(tmp_path, monkeypatch):
    def wheel(folder: Path) -> Path:
        (folder / "a-1-py3-none-any.whl").write_bytes(b"a")
        return folder / "a-1-py3-none-any.whl"

    for name in ("own_wheel", "download_pip"):
        monkeypatch.setattr(bundle, name, wheel)
    monkeypatch.setattr(bundle, "closure", lambda own, *_, **__: [own])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for _ in range(2):  # the second time it is a bundle, which is replaced
        bundle.make_controller_bundle(Path(), pythons=("3.11",), archs=("x86_64",))
        assert bundle.check_bundle(tmp_path / "here").sets == {"3.11-x86_64": ("wheels/a-1-py3-none-any.whl",)}
        assert [path.name for path in tmp_path.iterdir()] == ["here"]
        monkeypatch.chdir(tmp_path / "here")


def _wheel(folder: Path, name: str, *requires: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    text = metadata(name, "1.0", *(f"Requires-Dist: {one}" for one in requires))
    path.write_bytes(packed(name, "1.0", text))
    return path


def test_markers_are_those_of_the_target(tmp_path):
    needs = ("old ; python_version < '3.11'", "new ; python_version >= '3.11'", "tests ; extra == 'dev'")
    own = _wheel(tmp_path, "own", *needs)
    found = {wheels._name(path): path for path in (own, _wheel(tmp_path, "new", "deep>=2"))}
    assert set(wheels._reachable(found, own, wheels.target_environment("3.10", "x86_64"))) == {"own", "old"}
    reached = wheels._reachable(found, own, wheels.target_environment("3.12", "x86_64"))
    assert reached == {"own": "gpusetup", "new": "new", "deep": "deep>=2"}


def test_the_installed_package_is_packed_again(tmp_path):
    """Install our wheel without dependencies, pack it from there, and compare what both hold."""
    first, python = wheels.own_wheel(tmp_path), tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", first]
    subprocess.run(pip, check=True)
    code = (
        "import sys; sys.path.append(sys.argv[1]); from pathlib import Path\n"
        "from gpusetup.bootstrap.wheels import own_wheel; print(own_wheel(Path(sys.argv[2])))"
    )
    (tmp_path / "again").mkdir()
    again = [python, "-c", code, Path(msgspec.__file__).parents[1], tmp_path / "again"]
    done = subprocess.run(again, check=True, capture_output=True, text=True, cwd="/")
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(done.stdout.strip()) as two:
        assert sorted(one.namelist()) == sorted(two.namelist())
        assert any(name.endswith("playbooks/apply.yml") for name in two.namelist())
        same = [name for name in one.namelist() if not name.endswith("RECORD")]
        assert all(one.read(name) == two.read(name) for name in same)


def test_a_disk_that_is_full_while_pip_writes_is_said_as_that(tmp_path, monkeypatch):
    """In the words of a real pip; an index would not help."""
    said = """ERROR: Exception:
Traceback (most recent call last):
    sent = os.sendfile(outfd, infd, offset, blocksize)
OSError: [Errno 28] No space left on device: '/tmp/pip-unpack-wg/ansible_core-2.21.5-py3-none-any.whl' -> '/srv/a.whl'
"""
    done = Finished(argv=("pip",), code=2, out="", err=said, seconds=1.0)
    monkeypatch.setattr(wheels, "pip", lambda *_words, **_named: done)
    with refused(HostFailedError, "GS-765", match="no space left") as told:
        wheels.download_pip(tmp_path)
    assert told.value.context.endswith("'/srv/a.whl'")
    assert "Traceback" not in str(told.value.context)
