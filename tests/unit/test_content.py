"""Playbooks and roles are found relative to the package, never to the current directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpusetup
from gpusetup import content
from gpusetup.content import content_path
from gpusetup.errors import BadInputError

SOURCE = Path(gpusetup.__file__).resolve().parent.parent


def test_the_source_tree_serves_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert content_path() == SOURCE


def test_the_override_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("playbooks", "roles"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("GPUSETUP_CONTENT", str(tmp_path))
    assert content_path() == tmp_path


def test_an_override_without_content_is_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUSETUP_CONTENT", str(tmp_path))
    with pytest.raises(BadInputError, match=str(tmp_path)):
        content_path()


def test_a_wheel_carries_a_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "gpusetup"
    for name in ("playbooks", "roles"):
        (package / "_content" / name).mkdir(parents=True)
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.setattr(content, "__file__", str(package / "content.py"))
    assert content_path() == package / "_content"


def test_nothing_anywhere_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.setattr(content, "__file__", str(tmp_path / "gpusetup" / "content.py"))
    with pytest.raises(BadInputError, match="missing"):
        content_path()
