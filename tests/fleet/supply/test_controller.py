"""Controller bundles: made whole or not at all, of our own wheels and what they need; and how they are served."""

import asyncio
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from gpusetup.bootstrap import bundle
from gpusetup.bootstrap.wheels import target_environment
from gpusetup.drive.runner import Finished
from gpusetup.errors import BadInputError, HostFailedError, PreflightError
from gpusetup_fleet.supply import controller, server
from gpusetup_fleet.supply.server import _answer
from tests.refusals import refused
from tests.replay import metadata, packed


def test_a_served_bundle_that_cannot_be_read_is_an_answer(tmp_path):
    assert asyncio.run(_answer(tmp_path, "GET", "/sbom.json")).status_code == 503


def test_a_served_manifest_is_read_once_until_it_is_another(small_bundle, monkeypatch):
    reads = []
    monkeypatch.setattr(server, "read_manifest", lambda path: reads.append(path) or bundle.read_manifest(path))
    told = [asyncio.run(_answer(small_bundle, "GET", "/wheels/a.whl")).status_code for _ in range(3)]
    (small_bundle / bundle.MANIFEST).write_bytes(
        (small_bundle / bundle.MANIFEST).read_bytes().replace(b"wheels/a", b"wheels/b")
    )
    told.append(asyncio.run(_answer(small_bundle, "GET", "/wheels/a.whl")).status_code)
    assert (told, len(reads)) == ([200, 200, 200, 404], 2)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    with refused(BadInputError, "GS-713"):
        controller.make_controller_bundle(tmp_path, pythons=("3.11",), archs=("x86_64",))
    assert (tmp_path / "precious").read_text() == "x"
    for place, why in ((tmp_path / "precious", "is not a folder"), (Path("/proc/none"), "cannot make /proc/none")):
        with pytest.raises(BadInputError, match=why):
            controller.make_controller_bundle(place, pythons=("3.11",), archs=("x86_64",))


def test_a_bundle_that_a_killed_run_moved_aside_comes_back(small_bundle, monkeypatch):
    monkeypatch.setattr(controller, "own_wheels", lambda _folder: 1 / 0)
    with bundle.alone_on(small_bundle, "makes"), pytest.raises(PreflightError, match="another gpusetup"):
        controller.make_controller_bundle(small_bundle, pythons=("3.11",), archs=("x86_64",))
    small_bundle.rename(small_bundle.with_name(f".{small_bundle.name}.old"))
    with pytest.raises(ZeroDivisionError):
        controller.make_controller_bundle(small_bundle, pythons=("3.11",), archs=("x86_64",))
    assert bundle.check_bundle(small_bundle)


def test_the_folder_that_one_stands_in_is_made_too(tmp_path, monkeypatch):
    def wheel(folder: Path) -> Path:
        (folder / "a-1-py3-none-any.whl").write_bytes(b"a")
        return folder / "a-1-py3-none-any.whl"

    for name in ("own_wheels", "download_pip"):
        monkeypatch.setattr(controller, name, wheel)
    monkeypatch.setattr(controller, "closure", lambda *_, **__: [tmp_path / "a-1-py3-none-any.whl"])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for _ in range(2):  # the second time it is a bundle, which is replaced
        controller.make_controller_bundle(Path(), pythons=("3.11",), archs=("x86_64",))
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
    found = {controller._name(path): path for path in (own, _wheel(tmp_path, "new", "deep>=2"))}
    assert set(controller._reachable(found, [own], target_environment("3.10", "x86_64"))) == {"own", "old"}
    reached = controller._reachable(found, [own], target_environment("3.12", "x86_64"))
    assert reached == {"own": "own", "new": "new", "deep": "deep>=2"}


def test_the_installed_packages_are_packed_again(tmp_path):
    """Install our wheels without dependencies, pack them from there, and compare what each holds."""
    first, python = controller.own_wheels(tmp_path), tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", *first]
    subprocess.run(pip, check=True)
    code = (
        "import sys; sys.path.append(sys.argv[1]); from pathlib import Path\n"
        "from gpusetup_fleet.supply.controller import own_wheels; print(*own_wheels(Path(sys.argv[2])), sep='\\n')"
    )
    again = [python, "-c", code, Path(msgspec.__file__).parents[1], tmp_path / "venv"]
    done = subprocess.run(again, check=True, capture_output=True, text=True, cwd="/")
    made = done.stdout.splitlines()
    assert [Path(name).name for name in made] == [path.name for path in first]
    for built, packed_again, member in zip(first, made, ("playbooks/apply.yml", "pull/store.sql"), strict=True):
        with zipfile.ZipFile(built) as one, zipfile.ZipFile(packed_again) as two:
            assert sorted(one.namelist()) == sorted(two.namelist())
            assert any(name.endswith(member) for name in two.namelist())
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
    monkeypatch.setattr(controller, "pip", lambda *_words, **_named: done)
    with refused(HostFailedError, "GS-765", match="no space left") as told:
        controller.download_pip(tmp_path)
    assert told.value.context.endswith("'/srv/a.whl'")
    assert "Traceback" not in str(told.value.context)
