"""Every component is one record, known in no second place, and CONTRIBUTING lists what one costs."""

import re
from collections import Counter
from pathlib import Path

from gpusetup.components.registry import COMPONENTS, GROUPS
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.settings import AppliedWanted, Settings
from gpusetup.model.variables import RoleVariables
from gpusetup.plan.settings import KNOWN
from tools import role_pages

DERIVED = {"requirements", "hashed", "vgpu_token_sha256", "proxy", "policy"}
"""Settings that nobody writes: what follows from others, from the lock, or from the inventory."""


def test_every_setting_is_read_and_each_by_one():
    assert set(KNOWN) - {"components"} == set(Settings.__struct_fields__) - DERIVED
    owners = Counter(name for component in COMPONENTS for name in component.settings)
    assert [name for name, number in owners.items() if number > 1] == []


def test_every_group_of_packages_belongs_to_one():
    of_packages = {name for name, kind in PackageSet.__annotations__.items() if kind == tuple[Package, ...]}
    owners = [name for component in COMPONENTS for name in component.packages]
    assert sorted(owners) == sorted(of_packages)


def test_every_package_of_every_group_is_wanted():
    groups = {name: (Package(name=name),) for name in GROUPS}
    assert {package.name for package in PackageSet(manager="apt", **groups).wanted()} == set(GROUPS)


def test_a_group_goes_to_a_variable_of_the_roles():
    told = [group.variable for group in GROUPS.values() if group.variable]
    assert set(told) <= set(RoleVariables.__struct_fields__)
    assert len(told) == len(set(told))


def test_every_wish_on_record_is_of_one():
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
