"""CONTRIBUTING lists what one component costs, and no other file names its example."""

import re
from pathlib import Path

from tools import role_pages

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = re.search(r"^## A component, in twelve files\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
TEXT = SECTION.group(1) if SECTION is not None else ""
ROWS = re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE)
PLACES = (
    "gpusetup/**/*.py", "plugins/modules/*.py", "plugins/action/*.py", "plugins/**/names.py", "playbooks/**/*.yml", "roles/**/*.yml", "meta/*.yml",
)  # fmt: skip


def test_a_component_costs_twelve_files():
    assert len(ROWS) == 12
    assert [path for path in ROWS if not (ROOT / path).is_file()] == []


def test_no_other_file_names_the_example():
    files = {path for place in PLACES for path in ROOT.glob(place)} - set(role_pages.pages())
    naming = {str(path.relative_to(ROOT)) for path in files if "imex" in path.read_text(encoding="utf-8").lower()}
    beside = {
        path for path in re.findall(r"`([\w/]+\.py)`", TEXT) if path not in ROWS and not path.startswith("tests/")
    }
    assert naming == set(ROWS) | beside
