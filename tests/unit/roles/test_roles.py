"""Roles keep their promises: specified variables, no shell, version, URL or key; what a host wants of each is said once."""

import ast
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


COMMON = yaml.safe_load((ROOT / "roles/gpu_common/vars/main.yml").read_text())
WORK: dict[str, str] = COMMON["__gpu_common_work"]
APPLY = yaml.safe_load((ROOT / "playbooks/apply.yml").read_text())[0]["tasks"]
DEFAULTS = {
    name: value
    for path in (ROOT / "roles").glob("*/defaults/main.yml")
    for name, value in (yaml.safe_load(path.read_text()) or {}).items()
}
ASKED = re.compile(r"__gpu_common_work\.(\w+)")


def parts(name):
    return yaml.safe_load((ROOT / "playbooks" / name).read_text())


def included():
    """The play's tasks that load a role only where it has work, those of its groups among them."""
    groups = [task["ansible.builtin.include_tasks"] for task in APPLY if "ansible.builtin.include_tasks" in task]
    every = APPLY + [task for name in groups for task in parts(name)]
    loads = [task for task in every if "ansible.builtin.include_role" in task]
    return [task for task in loads if "__gpu_common_work" in str(task.get("when"))]


def role_of(task):
    return task["ansible.builtin.include_role"]["name"].rpartition(".")[2]


def own(role):
    """A role's tasks without those that bring packages where it is used alone, and what follows from an earlier one."""
    folder = ROOT / f"roles/{role}/tasks"
    tasks = tasks_of(yaml.safe_load((folder / "main.yml").read_text()))
    imported = [task["ansible.builtin.import_tasks"] for task in tasks if "ansible.builtin.import_tasks" in task]
    tasks = [task for task in tasks if "ansible.builtin.import_tasks" not in task]
    tasks += tasks_of([task for name in imported for task in yaml.safe_load((folder / name).read_text())])
    later = re.compile(r"__gpu_packages_transaction|__gpu_\w+_made\b|__gpu_reboot_how")
    return [task for task in tasks if not later.search(str(task.get("when")))]


def expanded(text):
    for name, value in COMMON.items():
        if isinstance(value, str):
            text = re.sub(rf"\b{name}\b", f"({value.strip('{} ')})", text)
    return text


@pytest.mark.parametrize("task", included(), ids=role_of)
def test_a_role_acts_only_where_the_play_would_load_it_and_its_tags_reach_its_tasks(task):
    asked, tasks = set(ASKED.findall(task["when"])), own(role_of(task))
    assert asked <= set(WORK)
    variables = set(re.findall(r"\bgpu_\w+", " ".join(expanded(WORK[name]) for name in asked)))
    for one in tasks:
        when = str(one["when"])
        assert set(ASKED.findall(when)) <= asked
        assert set(re.findall(r"\bgpu_\w+", when)) <= variables, one["name"]
    assert tasks
    assert all(one["tags"] for one in tasks)
    assert set(task["tags"]) in ({"always"}, {tag for one in tasks for tag in one["tags"]})


@pytest.mark.parametrize("task", APPLY, ids=lambda task: task["name"])
def test_what_several_parts_share_is_skipped_with_none_of_them_and_a_group_entered_for_each_alone(task):
    assert len(task["tags"]) == 1
    if "ansible.builtin.include_tasks" in task:
        within = parts(task["ansible.builtin.include_tasks"])
        assert set(ASKED.findall(task["when"])) == {name for one in within for name in ASKED.findall(one["when"])}
        assert (task["tags"], all(len(one["tags"]) == 1 for one in within)) == (["always"], True)


def test_all_work_is_asked_for():
    assert {name for task in included() for name in ASKED.findall(task["when"])} == set(WORK)


def test_what_stands_in_for_an_undefined_variable_is_its_roles_default():
    text = (ROOT / "roles/gpu_common/vars/main.yml").read_text()
    found = re.findall(r"\b(gpu_\w+) \| default\(([^()]*)\)", text)
    assert len(found) > 50
    meant = {"true": True, "false": False}
    told = {(name, str(meant.get(value) if value in meant else ast.literal_eval(value))) for name, value in found}
    assert told - {(name, str(DEFAULTS[name])) for name, _ in told} == set()
