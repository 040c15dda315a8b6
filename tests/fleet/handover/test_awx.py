"""The hand-over to AWX: from our own truth, with no secret; tests/drive hands it to ansible-builder, ansible-lint and AWX's modules."""

import re
from typing import Any, get_args

import pytest
import yaml
from ansible_collections.gpusetup.stack.plugins.action.gpu_front_end import OPTIONS

from gpusetup.cli.main import command_parser
from gpusetup.content import content_path
from gpusetup.model.request import COMPONENTS
from gpusetup.model.settings import RebootPolicy
from gpusetup.plan.settings import PREFIX, read_level
from gpusetup_fleet.cli.handover import files_for_awx as files
from gpusetup_fleet.handover.awx import ASKED, survey
from tests.awx_api import survey_problem


def tasks():
    (play,) = yaml.safe_load(files()["awx/configure.yml"])
    return {task["name"]: next(value for key, value in task.items() if key != "name") for task in play["tasks"]}


def playbooks():
    """Variables of each playbook of the project."""
    texts = {name: text for name, text in files().items() if name.startswith("project/") and name.endswith(".yml")}
    return {name[8:-4]: yaml.safe_load(text)[0]["vars"] for name, text in texts.items()}


def execution_environment():
    document: dict[str, Any] = yaml.safe_load(files()["execution-environment/execution-environment.yml"])
    return document


def questions():
    found = tasks()["The workflow"]["survey_spec"]["spec"]
    return {question["variable"]: question for question in found}


def test_every_survey_keeps_awxs_rules():
    surveys = [task["survey_spec"] for task in tasks().values() if "survey_spec" in task]
    assert len(surveys) == 5
    assert [survey_problem(spec) for spec in surveys] == [""] * 5


def test_what_is_asked_is_what_gpusetup_reads():
    wishes = {name: question for name, question in questions().items() if name.startswith(PREFIX)}
    assert len(wishes) == len(ASKED)
    answers = {name: (question.get("choices") or ["12.8" if name[9:] in COMPONENTS else "nvidia"])[-1] for name, question in wishes.items()}  # fmt: skip
    answers |= {"gpusetup_components": "driver, cuda, torch, tensorflow, jax, vllm", "gpusetup_containers": "docker, podman"}  # fmt: skip
    level = read_level(answers, "survey", prefix=PREFIX)
    assert (level["containers"], level["source"]) == (("docker", "podman"), "nvidia")
    assert questions()["gpusetup_reboot"]["choices"] == list(get_args(RebootPolicy))
    with pytest.raises(KeyError):
        survey((), ["no_such_setting"])


def test_options_of_the_command_line_are_asked_for_as_they_are_declared():
    found = questions()
    assert found["gpu_level"]["choices"] == ["quick", "smoke", "full", "stress"]
    assert (found["gpu_max_fail"]["type"], found["gpu_batch"]["type"]) == ("integer", "text")
    assert "1,10%,50%" in found["gpu_batch"]["question_description"]


def test_every_answer_is_a_variable_that_the_playbook_reads():
    read = (content_path() / "playbooks/front_end.yml").read_text(encoding="utf-8")
    assert {name for name in questions() if name.startswith("gpu_") and f"{name} |" not in read} == set()


def test_the_playbook_names_every_option_that_its_plugin_takes():
    (play,) = yaml.safe_load((content_path() / "playbooks/front_end.yml").read_text(encoding="utf-8"))
    told = play["tasks"][0]["gpusetup.stack.gpu_front_end"]["options"]
    assert set(told) == {name for names in OPTIONS.values() for name in names}
    assert {told["gpu_front_end_command"] for told in playbooks().values()} == set(OPTIONS)


def test_each_option_exists_on_its_command():
    for command, names in OPTIONS.items():
        if command != "verdict":
            known = {word for action in command_parser(command)._actions for word in action.option_strings}
            assert {f"--{name.replace('_', '-')}" for name in names} <= known, command


def test_only_approved_plans_are_carried_out_in_the_workflow():
    assert {name for name, told in playbooks().items() if told.get("gpu_front_end_planned")} == {"apply_planned"}
    run = {task["playbook"] for task in tasks().values() if "playbook" in task}
    assert run == {f"{name}.yml" for name in playbooks()}
    nodes = {node["identifier"]: node for node in tasks()["The workflow"]["workflow_nodes"]}
    assert "gpusetup: apply" not in {node["unified_job_template"]["name"] for node in nodes.values()}
    assert nodes["approval"]["unified_job_template"]["type"] == "workflow_approval"


def words(value):
    if isinstance(value, dict):
        yield from (str(key) for key in value)
        for item in value.values():
            yield from words(item)
    elif isinstance(value, list):
        for item in value:
            yield from words(item)


def test_no_file_has_a_place_for_a_secret():
    for name, text in files().items():
        if name.endswith(".yml"):
            named = words(yaml.safe_load(text))
            assert [word for word in named if re.search(r"password|token|secret|private", word)] == []


def test_the_command_writes_them_and_takes_no_hosts(tmp_path, printed, says):
    words, out = ("export", "handover", "awx"), ("--out", tmp_path / "out")
    document = printed(0, *words, *out)
    there = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert set(document["files"]) == there == set(files())
    says(3, *words, "hosts.ini", *out)


def test_the_image_has_the_versions_of_our_own_metadata_and_takes_what_a_bundle_has():
    document = execution_environment()
    needs = document["dependencies"]
    assert "<2.22" in needs["ansible_core"]["package_pip"]
    assert needs["python_interpreter"]["python_path"] == f"/usr/bin/{needs['python_interpreter']['package_system']}"
    assert document["additional_build_files"][0]["src"] == "gpusetup-bundle/wheels"
