"""The record of one host: first contents are kept, everything can be undone, nothing is half written, a lost one is told."""

import json
import os
import py_compile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, lifecycle, lost
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger, history
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import record

from tests.modules.stand_ins import refused, replace, write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "etc/mirror.list"


def mode_and_owner(path):
    seen = path.stat()
    return seen.st_mode & 0o777, seen.st_uid, seen.st_gid


def test_what_python_compiled_of_a_program_goes_with_it_and_nobody_elses(ledger, tmp_path):
    ours, also = tmp_path / "lib" / "gpu" / "look.py", tmp_path / "lib" / "gpu" / "smi.py"
    for path in (ours, also):
        ledger.write(str(path), "x = 1\n", 0o644)
        py_compile.compile(str(path))
    theirs = ours.parent / "__pycache__" / "other.cpython-311.pyc"
    theirs.write_bytes(b"")

    assert ledger.restore(str(ours))
    assert len(list(theirs.parent.iterdir())) == 2
    theirs.unlink()
    assert ledger.restore(str(also))

    assert not (tmp_path / "lib").exists()


@pytest.mark.parametrize("way", ["written", "deleted"])
def test_the_first_content_comes_back_with_mode_and_owner_after_many_changes_and_a_restart(ledger, tmp_path, way):
    path = tmp_path / "secret.repo"
    write(tmp_path, {"secret.repo": b"password \xff\n"}, 0o600)
    os.chown(path, 12345, 12346)
    for number in range(3):
        ledger.state["apply"] = {"id": f"apply-{number}"}
        ledger.write(str(path), f"{number}\n")
    if way == "deleted":
        assert ledger.delete(str(path))
        assert (path.exists(), ledger.state["files"][str(path)]["present"]) == (False, False)
    assert Ledger(ledger.folder).restore(str(path))
    assert (path.read_bytes(), mode_and_owner(path)) == (b"password \xff\n", (0o600, 12345, 12346))


def test_a_finished_apply_keeps_only_contents_that_something_goes_back_to(ledger, path):
    write(path.parent, {path.name: "before gpusetup\n"})
    for number in ("one", "two", "three"):
        ledger.tell(apply={"id": number})
        ledger.write(str(path), f"password {number}\n")
        ledger.tell(apply={"id": number, "finished": "now"})
        ledger.forget_previous()
    kept = {place.read_text() for place in Path(ledger.folder, "originals").iterdir()}
    assert kept == {"before gpusetup\n", "password three\n"}
    path.write_text("password three\nmine\n")
    assert Ledger(ledger.folder).restore(str(path))
    assert path.read_text() == "before gpusetup\n"
    assert path.with_name("mirror.list.gpusetup-saved").read_text() == "password three\nmine\n"


def test_links_go_back_and_a_folder_in_the_way_is_refused(ledger, tmp_path):
    link, folder = tmp_path / "cuda", tmp_path / "folder"
    folder.mkdir()
    link.symlink_to("cuda-11")
    assert ledger.link(str(link), "cuda-12")
    assert not ledger.link(str(link), "cuda-12")
    assert link.readlink().name == "cuda-12"
    assert ledger.link(str(link), None)
    assert link.readlink().name == "cuda-11"
    assert ledger.link(str(link), "cuda-12")
    link.unlink()
    link.write_text("theirs")
    assert not ledger.link(str(link), None)
    assert (link.read_text(), ledger.state["links"]) == ("theirs", {})
    with refused("it is not a symbolic link"):
        ledger.link(str(folder), "x")


"""How a package set lists two versions side by side."""


def test_the_history_keeps_its_newest_applies_whatever_the_clock_said(ledger):
    # What a person has emptied or copied is none of ours.
    write(Path(ledger.folder), {"history/20990100.json": "{}", "history/copy.json": '{"id": "20990101"}'})
    for name in ("20990101", "20990102", "20990103", "20260101", "20260101"):
        ledger.write_history({"id": name}, keep=3)
    assert [record["id"] for record in history(ledger.folder)] == ["20990102", "20990103", "20260101"]


def test_what_is_kept_is_roots_alone_and_the_status_beside_it_is_not_shut_in(ledger, tmp_path):
    for name in ("", "history", "originals"):  # as an earlier version may have left them
        (Path(ledger.folder) / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    changed = tmp_path / "changed"
    changed.write_text("password")
    ledger.write(str(changed), "new")
    ledger.write_history({"id": "20260101"}, keep=3)
    assert Path(ledger.folder).stat().st_mode & 0o777 == 0o711, "to pass through, not to list"
    inside = list(Path(ledger.folder).rglob("*"))
    assert len(inside) >= 5
    for path in inside:
        assert path.stat().st_mode & 0o077 == 0, path


def test_what_cannot_be_read_was_not_missing_and_a_file_that_is_mounted_alone_is_refused(tmp_path, ledger, monkeypatch):
    (tmp_path / "alone").write_text("x\n")
    (tmp_path / "mounts").write_text(
        f"36 35 8:1 / {tmp_path} rw - ext4 /d rw\n40 36 8:1 /x {tmp_path}/alone rw - ext4 /d rw\n"
    )
    monkeypatch.setattr(files, "_MOUNTS", str(tmp_path / "mounts"))
    assert not ledger.write(str(tmp_path / "alone"), "x\n"), "it is as wanted"
    with refused("GS-480", "alone is mounted alone", "umount"):
        ledger.write(str(tmp_path / "alone"), "y\n")
    ledger.state["files"][str(tmp_path / "alone")] = {"original": None, "sha256": files.digest("x\n")}
    ledger.write(str(tmp_path / "beside"), "x\n")
    for restored in ([str(tmp_path / "beside")], []):
        assert ledger.restore_all(ledger.state["files"])[0] == restored
    assert list(ledger.state["files"]) == [str(tmp_path / "alone")], "a removal repeats it"
    (tmp_path / "state.json").mkdir()
    with refused("cannot be read"):
        Ledger(str(tmp_path))


def test_an_apply_keeps_a_damaged_record_aside_and_knows_its_own_holds(tmp_path, monkeypatch):
    upgrades = tmp_path / "52gpusetup"
    upgrades.write_text('Unattended-Upgrade::Package-Blacklist {\n  "^libc\\.x$";\n  "^nvidia-utils$";\n};\n')
    monkeypatch.setattr(lost, "UNATTENDED_FILE", str(upgrades))
    folder = tmp_path / "state"
    Ledger(str(folder)).write_history({"id": "20260101", "holds": ["driver", "gone"]}, keep=3)
    (folder / "state.json").write_text("half")
    held = ["driver", "libc.x", "nvidia-utils:amd64", "theirs"]
    assert lost.state(str(folder), None, held)["holds"] == ["driver", "libc.x", "nvidia-utils:amd64"]
    with monkeypatch.context() as cut:
        replace(cut, lost, now=lambda: "then")
        replace(cut, files, write_atomically=Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lost.begin_new_record(str(folder), "", held)
    again = lost.begin_new_record(str(folder), lost.reason(str(folder), None), held)
    assert again.state["holds"] == ["driver", "libc.x", "nvidia-utils:amd64"]
    kept = Path(again.state["lost"]["kept"])
    assert kept.parent == folder
    assert kept.read_text() == "half"
    assert Ledger(str(folder)).state["lost"]["why"].startswith("it is not valid JSON")


def test_what_gets_a_secret_is_shut_before_it_gets_it(ledger, path, monkeypatch):
    write(path.parent, {path.name: "[site]\n"})
    real, modes = os.rename, set()
    monkeypatch.setattr(os, "rename", lambda *both: modes.add(mode_and_owner(Path(both[0]))[0]) or real(*both))
    ledger.write(str(path), "[site]\npassword=x\n", 0o600)
    assert (mode_and_owner(path)[0], modes) == (0o600, {0o600})


def test_a_failed_apply_that_left_nothing_makes_way_for_the_last_good_one(ledger):
    good = {"id": "1-good", "digest": "a", "started": "1", "finished": "2", "last": None}
    ledger.state["apply"] = {"id": "2-bad", "digest": "b", "started": "3", "finished": None, "last": good}
    ledger.forget_apply()
    assert Ledger(ledger.folder).state["apply"] == good
    ledger.forget_apply()
    assert ledger.state["apply"] == good
    ledger.state["apply"] = {"id": "1-bad", "finished": None, "last": None}
    ledger.forget_apply()
    assert ledger.state["apply"]["id"] == "1-bad", "never applied is no clean bill"


def test_a_record_is_roots(tmp_path):
    os.chown(tmp_path, 12345, -1)
    with refused("GS-499", "belongs to user 12345", f"chown -R root {tmp_path}"):
        Ledger(str(tmp_path))


def test_a_file_that_is_to_go_leaves_no_half_of_a_way_back_that_was_cut(ledger, tmp_path):
    path, half = tmp_path / "theirs.list", tmp_path / ".gpusetup-theirs.list-half"
    path.write_text("deb x\n")
    ledger.delete(str(path))
    ledger._open("file", str(path), None, "", "be as it was")
    half.write_text("deb x\n")
    assert ledger.delete(str(path)) is False
    assert not half.exists()


THERE = {"nvidia-smi": "580.1-1", "bash": "5.2-1"}


@pytest.fixture
def there(monkeypatch):
    """What is installed on a host on which an apply held the driver."""
    there = dict(THERE)
    manager = SimpleNamespace(installed=lambda: dict(there), held=lambda: sorted({"nvidia-smi"} & set(there)))
    monkeypatch.setattr(lifecycle.planning, "manager", lambda *_more, **_named: manager)
    return there


def opened(folder, **more):
    request = {"state_dir": str(folder), "simulated_root": "", "wanted": {}, "manager": "apt", "network": {}, **more}
    return lifecycle.Lifecycle(request)


def test_removal_does_not_call_done_what_a_lost_record_knew_of(there, tmp_path, monkeypatch):
    folder, mark = tmp_path / "state", tmp_path / "gpusetup-nouveau.conf"
    mark.write_text("# Written by gpusetup: no step of the next apply touches it.\n")
    monkeypatch.setattr(record, "MARKS", (str(mark), str(tmp_path / "absent")))
    Ledger(str(folder)).write_history({"id": "20260101", "holds": ["nvidia-smi"]}, keep=3)
    (folder / "packages-before.json").write_text(json.dumps({"packages": {}, "counted": {}, "left": None}))
    assert opened(folder, mode="removal").removal()["known"] is False
    (folder / "state.json").write_text("half")
    token = opened(folder, mode="begin", id="run-1", lock={}).begin()["owner"]
    left = opened(folder, token=token).clean()["ours"]
    assert not mark.exists()
    assert left["packages of the record that was lost"] == ["nvidia-smi"]
    assert (folder / "state.json").exists()
    del there["nvidia-smi"]  # a person took it away
    assert opened(folder).clean()["ours"] == {}
    assert not folder.exists()


def test_a_damaged_record_is_said_and_stays_as_it_is(tmp_path):
    write(tmp_path, {"state.json": "[]"})
    with refused("GS-499", "cannot be read"):
        Ledger(str(tmp_path))
    assert (tmp_path / "state.json").read_text() == "[]"
