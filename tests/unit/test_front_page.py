"""The README as a package's front page: links that lead somewhere from an index, or none."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.release import front

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = "https://forge.example/people/gpusetup"
TARGETS = re.compile(r"\]\(([^)\s]+)\)")


def test_every_link_and_picture_of_the_readme_is_absolute_and_its_file_is_there():
    text = front.page(README, HOME, "0.1.0")
    targets = TARGETS.findall(text)
    assert all(target.startswith("https://") for target in targets)
    ours = [target for target in targets if target.startswith(HOME)]
    assert len(ours) > 10
    for target in ours:
        kind, _, place = target.removeprefix(f"{HOME}/").partition("/v0.1.0/")
        assert (ROOT / place).exists(), target
        assert kind == ("raw" if place.endswith(".svg") else "blob")


def test_without_an_address_words_stay_and_nothing_leads_nowhere():
    text = front.page(README, "", "0.1.0")
    assert all(target.startswith("https://") for target in TARGETS.findall(text))
    assert "a single file, a container, a collection are built" in text
    assert "session.svg" not in text
    assert front.addresses("", "0.1.0") == {}


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("https://forge.example/people/gpusetup.git", HOME),
        ("git@forge.example:people/gpusetup.git", HOME),
        ("https://me:secret@forge.example/people/gpusetup", ""),
        ("/srv/git/gpusetup", ""),
        ("", ""),
    ],
)
def test_the_address_is_gits_unless_it_is_told(told, address, tmp_path, monkeypatch):
    monkeypatch.delenv("GPUSETUP_REPOSITORY", raising=False)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    if told:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", told], check=True)
    assert front.repository(tmp_path) == address
    monkeypatch.setenv("GPUSETUP_REPOSITORY", "https://other.example/x/y/")
    assert front.repository(tmp_path) == "https://other.example/x/y"
