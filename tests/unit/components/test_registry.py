"""Every component is one record, known in no second place, and CONTRIBUTING lists what one costs."""

import re
from pathlib import Path

from gpusetup.components.registry import COMPONENTS
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import AppliedWanted, Settings
from gpusetup.plan.settings import KNOWN
from tools import role_pages

DERIVED = {"requirements", "hashed", "vgpu_token_sha256", "proxy", "policy"}
"""Settings that nobody writes: what follows from others, from the lock, or from the inventory."""


def test_every_setting_group_of_packages_and_wish_on_record_is_of_one():
    assert set(KNOWN) - {"components"} == set(Settings.__struct_fields__) - DERIVED
    of_packages = {name for name, kind in PackageSet.__annotations__.items() if kind == tuple[Package, ...]}
    assert sorted(name for component in COMPONENTS for name in component.packages) == sorted(of_packages)
    kept = [component.kept for component in COMPONENTS if component.kept]
    of_the_stack = {"packages", "manage_driver", "requirements", "interpreter", "adopted", "services", "settings"}
    assert sorted(kept) == sorted(set(AppliedWanted.__struct_fields__) - of_the_stack)


ROOT = Path(__file__).resolve().parents[3]
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
