"""The lists that one preview fetched are taken over by the next one only if it asks the same repositories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible.module_utils.gpu_host import fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "etc/apt/sources.list.d/gpusetup-cuda.sources"


def folder_with(text: str) -> Path:
    """A preview's folder with one source, whose key lies in the folder too."""
    folder = Path(fetched.new_folder())
    (folder / SOURCE).parent.mkdir(parents=True)
    (folder / SOURCE).write_text(f"{text}\nSigned-By: {folder}/etc/apt/keyrings/cuda.pgp\n")
    return folder


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a first preview left."""
    monkeypatch.setattr(fetched, "PLACE", str(tmp_path))
    monkeypatch.setattr(fetched, "_DELETE_AFTER", 0)
    folder = folder_with("URIs: https://a.example")
    other = folder / "etc/apt/sources.list.d/needless.sources"
    other.write_text("URIs: https://needless.example\n")
    (folder / "lists").mkdir()
    (folder / "lists" / "a.example_Packages").write_text("Package: x\n")
    (folder / "messages.json").write_text('["W: old"]')
    return folder


@pytest.fixture
def second(left: Path) -> Iterator[Path]:
    del left
    folder = folder_with("URIs: https://a.example")
    (folder / "etc/apt/preferences.d").mkdir()
    (folder / "etc/apt/preferences.d/pins").write_text("Pin: only here\n")
    yield folder
    shutil.rmtree(folder)


def test_the_same_repositories_and_fewer_need_no_second_fetch(left: Path, second: Path) -> None:
    assert fetched.take(str(left), str(second), "lists") == ["W: old"]
    assert (second / "lists" / "a.example_Packages").exists()
    assert not left.exists()
    assert fetched.take(str(left), str(second), "lists") is None


def test_another_address_or_one_more_is_fetched(left: Path, second: Path) -> None:
    (second / "etc/apt/sources.list").write_text("deb https://b.example x main\n")
    assert fetched.take(str(left), str(second), "lists") is None
    (left / "etc/apt/sources.list").write_text("deb https://c.example x main\n")
    assert fetched.take(str(left), str(second), "lists") is None
    assert left.exists()
    (left / "etc/apt/sources.list").write_text("deb https://b.example x main\n")
    assert fetched.take(str(left), str(second), "lists") == ["W: old"]


def test_what_is_old_or_elsewhere_or_not_ours_is_left_alone(left: Path, second: Path, tmp_path: Path) -> None:
    link = tmp_path / "gpusetup-preview-link"
    link.symlink_to(left)
    for path in ("", "/etc", str(left / "lists"), str(tmp_path / "gpusetup-preview-..") + "/lists", str(link)):
        assert fetched.take(path, str(second), "lists") is None
    os.utime(left / "messages.json", (0, 0))
    assert fetched.take(str(left), str(second), "lists") is None
    os.utime(left / "messages.json")
    if os.geteuid() == 0:
        os.chown(left, 1, -1)
        assert fetched.take(str(left), str(second), "lists") is None
        os.chown(left, 0, -1)
    assert fetched.take(str(left), str(second), "lists") == ["W: old"]


def test_what_nobody_takes_deletes_itself(left: Path) -> None:
    fetched.leave(str(left), [])
    for _ in range(100):
        if not left.exists():
            return
        fetched.time.sleep(0.1)
    pytest.fail(f"{left} is still there")
