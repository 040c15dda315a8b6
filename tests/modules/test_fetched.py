"""The lists that one look fetched are taken over by what follows only if it asks the same repositories."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched

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


@pytest.fixture
def second(left):
    del left
    folder = folder_with("URIs: https://a.example")
    write(folder, {PINS: "Pin: only here\n"})
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def take(left, second):
    return fetched.take(str(left), str(second))


def test_what_is_old_or_elsewhere_or_not_ours_is_left_alone(left, second, tmp_path):
    link = tmp_path / "gpusetup-preview-link"
    link.symlink_to(left)
    for path in ("", "/etc", str(left / "lists"), str(tmp_path / "gpusetup-preview-..") + "/lists", str(link)):
        assert fetched.take(path, str(second)) is None
    os.utime(left / "messages.json", (0, 0))
    assert take(left, second) is None
    os.utime(left / "messages.json")
    if os.geteuid() == 0:
        os.chown(left, 1, -1)
        assert take(left, second) is None
        os.chown(left, 0, -1)
    assert take(left, second) == ["W: old"]


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
