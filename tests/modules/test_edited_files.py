"""What an administrator wrote into a file after us is never lost when ours goes."""

import os
import stat

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.stand_ins import refused, write

BEFORE = '{\n "log-driver": "journald"\n}\n'
OURS = '{\n "log-driver": "journald",\n "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}\n}\n'
EDITED = OURS.replace('"journald",', '"journald",\n "data-root": "/data",')
THEIRS = '{\n "data-root": "/data"\n}\n'


@pytest.fixture
def path(tmp_path):
    write(tmp_path, {"etc/docker/daemon.json": BEFORE}, 0o640)
    return tmp_path / "etc/docker/daemon.json"


@pytest.mark.parametrize("after", ["put_aside", "put_back"])
def test_an_edited_file_is_kept_once_wherever_its_restoration_is_cut(ledger, path, monkeypatch, after):
    ledger.write(str(path), OURS)
    path.write_text(EDITED)
    with monkeypatch.context() as patch:
        patch.setattr(files, after, lambda *_words: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.restore(str(path))
    assert Ledger(ledger.folder).restore(str(path))
    (saved,) = path.parent.glob("*saved*")
    assert (path.read_text(), saved.read_text(), saved.stat().st_mode & 0o777) == (BEFORE, EDITED, 0o640)


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_saved_original_that_is_not_what_was_saved_is_not_put_back(ledger, path, harm):
    ledger.write(str(path), OURS)
    (saved,) = (one for one in (path.parents[2] / "state/originals").iterdir() if one.read_text() == BEFORE)
    saved.unlink() if harm == "gone" else saved.write_bytes(bytes(saved.stat().st_size))
    with refused("GS-499", "missing or damaged", str(saved)):
        ledger.restore(str(path))
    assert path.read_text() == OURS


def test_a_link_that_led_to_nothing_does_so_again_and_one_that_others_put_there_is_not_followed(ledger, path):
    path.unlink()
    path.symlink_to("../data/daemon.json")
    ledger.write(str(path), OURS)
    restored = ledger.restore(str(path))
    assert (restored, os.readlink(path), path.resolve().exists()) == (True, "../data/daemon.json", False)
    ledger.write(str(path), OURS)
    for text, step in ((THEIRS, lambda: ledger.write(str(path), OURS)), (OURS, lambda: ledger.restore(str(path)))):
        path.unlink()
        write(path.parent, {"theirs": text})
        path.symlink_to("theirs")
        step()
        assert (path.parent / "theirs").read_text() == text


def test_what_is_not_a_file_is_neither_read_nor_replaced(ledger, path):
    path.unlink()
    os.mknod(path, stat.S_IFSOCK)
    with refused("GS-480", "not a file", f"mv {path} /root/"):
        ledger.write(str(path), OURS)
    assert stat.S_ISSOCK(os.lstat(path).st_mode)
    path.unlink()
    ledger.write(str(path), OURS)
    path.unlink()
    path.mkdir()
    assert not ledger.restore(str(path))
    assert ledger.left == [str(path)]


@pytest.mark.parametrize("left", [THEIRS, None], ids=["without anything of ours", "deleted"])
def test_what_is_no_longer_ours_stays_and_is_not_brought_back(ledger, path, left):
    ledger.write(str(path), OURS)
    path.unlink() if left is None else path.write_text(left)
    assert not ledger.restore(str(path))
    assert (path.read_text() if path.exists() else None) == left
    assert (ledger.left, ledger.saved, ledger.state["files"]) == ([str(path)], {}, {})


@pytest.mark.parametrize("back", [False, True], ids=["it stays", "taken back"])
def test_an_edit_that_a_later_apply_took_over_is_kept_unless_it_was_taken_back(ledger, path, back):
    ledger.write(str(path), OURS)
    path.write_text(EDITED)
    assert not ledger.write(str(path), EDITED), "nvidia-ctk finds it as it should be"
    if back:
        path.write_text(BEFORE)
        assert ledger.write(str(path), OURS)
    assert Ledger(ledger.folder).restore(str(path))
    saved = [found.read_text() for found in path.parent.glob("*saved*")]
    assert (path.read_text(), saved) == (BEFORE, [] if back else [EDITED])


def test_a_second_edit_gets_a_place_of_its_own(ledger, path):
    for number in range(2):
        ledger.write(str(path), OURS)
        path.write_text(EDITED + "\n" * number)
        ledger.restore(str(path))
    saved = sorted(found.name for found in path.parent.iterdir())
    assert saved == ["daemon.json", "daemon.json.gpusetup-saved", "daemon.json.gpusetup-saved-2"]


def test_extended_attributes_outlive_a_write_a_removal_and_a_deletion(ledger, path):
    os.setxattr(path, "user.label", b"site")
    for change in (lambda name: ledger.write(name, OURS), ledger.restore, ledger.delete, ledger.restore):
        change(str(path))
        assert not path.exists() or files.attributes(str(path)) == {"user.label": b"site"}
