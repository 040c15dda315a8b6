"""The collection is found relative to the package, never to the current directory."""

from pathlib import Path

import pytest

import gpusetup
from gpusetup import content
from gpusetup.content import collections_path, content_path
from gpusetup.errors import BadInputError

SOURCE = Path(gpusetup.__file__).resolve().parent.parent


def a_collection(folder):
    for part in ("playbooks", "roles", "plugins"):
        (folder / "ansible_collections/gpusetup/stack" / part).mkdir(parents=True)
    return folder


def test_the_source_tree_serves_itself(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert content_path().resolve() == SOURCE
    assert collections_path() == SOURCE / ".collections"


def test_the_override_wins(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSETUP_CONTENT", str(a_collection(tmp_path)))
    assert content_path() == tmp_path / "ansible_collections/gpusetup/stack"


def test_the_override_may_be_a_checkout(monkeypatch):
    monkeypatch.setenv("GPUSETUP_CONTENT", str(SOURCE))
    assert content_path().resolve() == SOURCE


def test_an_override_without_content_is_bad_input(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUSETUP_CONTENT", str(tmp_path))
    with pytest.raises(BadInputError, match=str(tmp_path)):
        content_path()


def test_a_wheel_carries_a_copy(monkeypatch, tmp_path):
    package = tmp_path / "gpusetup"
    a_collection(package / "_content")
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.setattr(content, "__file__", str(package / "content.py"))
    assert collections_path() == package / "_content"


def test_nothing_anywhere_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUSETUP_CONTENT", raising=False)
    monkeypatch.setattr(content, "__file__", str(tmp_path / "gpusetup" / "content.py"))
    with pytest.raises(BadInputError, match="missing"):
        content_path()
