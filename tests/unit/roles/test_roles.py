"""Roles keep their promises: specified variables, thin tables of contents, no shell, no version, URL or key in them."""

import re
from pathlib import Path

import pytest
import yaml

from tools import role_pages

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
MINE = [role for role in ROLES if role.name != "gpu_verify"]
TASKS = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def load(path):
    return yaml.safe_load(path.read_text())


def tasks_of(document):
    found = []
    for task in document:
        found.append(task)
        for part in ("block", "rescue", "always", "tasks", "post_tasks", "pre_tasks"):
            found += tasks_of(task.get(part) or [])
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_is_specified_with_the_same_value(role):
    options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options") or {}
    defaults = load(role / "defaults/main.yml") or {} if (role / "defaults/main.yml").exists() else {}
    assert sorted(options) == sorted(defaults)
    for name, spec in options.items():
        assert spec["description"]
        assert spec["default"] == defaults[name], name


def test_every_role_has_its_page_and_every_module_its_route():
    written = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in role_pages.pages()}
    assert written == role_pages.pages(), "run `python -m tools.role_pages`"
    made = {path.parent for path in (ROOT / "roles").glob("*/defaults")}
    assert {path.parent for path in written} == made | {ROOT / "meta"}


@pytest.mark.parametrize("path", TASKS + PLAYBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_tasks_are_short_without_shell_and_without_looking_away(path):
    assert len(path.read_text().splitlines()) < (120 if path in TASKS else 40)
    for task in tasks_of(load(path)):
        words = {name.rpartition(".")[2] for name in task}
        assert not {"shell", "command", "raw", "script", "ignore_errors"} & words, task.get("name")
        assert task.get("failed_when") is not False, task.get("name")
    for play in load(path) if path in PLAYBOOKS else ():
        assert play.get("gather_facts", not play.get("import_playbook")) is False, "it gathers nothing"


@pytest.mark.parametrize("role", MINE, ids=lambda role: role.name)
def test_roles_hold_no_version_address_or_key(role):
    for path in [*role.glob("tasks/*.yml"), *role.glob("defaults/*.yml"), *role.glob("vars/*.yml")]:
        found = re.search(r"https?://|\b\d{3}\.\d{2,3}(\.\d+)?\b|\b[0-9A-F]{16,}\b", path.read_text())
        assert found is None, (path, found)
