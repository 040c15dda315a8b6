"""The pictures of README and CONTRIBUTING show what is there today: drawn anew, they are the same."""

import xml.etree.ElementTree as ET

import pytest

from tools.pictures import PAGES, PICTURES, SESSION


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_what_would_be_drawn_today(path):
    drawn = PICTURES[path]()
    assert path.read_text(encoding="utf-8") == drawn, "it is stale: python -m tools.pictures"
    assert ET.fromstring(drawn).get("aria-label")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_would_be_written_today(path):
    assert path.read_text(encoding="utf-8") == PAGES[path](), "it is stale: python -m tools.pictures"


def test_the_session_shows_every_command_with_an_answer():
    drawn = next(drawn for path, drawn in PICTURES.items() if path.name == "session.svg")()
    lines = [text.text for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    prompts = [number for number, line in enumerate(lines) if line.startswith("$ gpusetup ")]
    assert len(prompts) == len(SESSION)
    assert min(after - before for before, after in zip(prompts, [*prompts[1:], len(lines)], strict=True)) > 2
    assert "torch==2.6.0" in "\n".join(lines)
