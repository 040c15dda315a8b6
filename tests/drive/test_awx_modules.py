"""What `export handover awx` writes, given to ansible-lint, and to AWX's own Ansible modules against a stand-in of
AWX's API."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from tests.awx_api import StandInAwx, awx_collection
from tests.lab.process import run

TOKEN = "t0ken-9c1f"


@pytest.fixture(scope="module")
def collections():
    return awx_collection() or pytest.skip("awx.awx cannot be fetched: no package index")


@pytest.fixture
def handed(tmp_path):
    assert main(["export", "handover", "awx", "--out", str(tmp_path / "handover")]) == 0
    return tmp_path / "handover"


@pytest.fixture
def awx():
    with StandInAwx(TOKEN) as server:
        server.add("organizations", {"name": "Default"})
        server.add("inventories", {"name": "GPU hosts"})
        server.add("credentials", {"name": "GPU hosts"})
        yield server


def configure(collections, handed, awx, **more):
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(handed), "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0", "ANSIBLE_COLLECTIONS_PATH": str(collections), "CONTROLLER_HOST": awx.address,
        "CONTROLLER_OAUTH_TOKEN": TOKEN, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "no_proxy": "*",
    }  # fmt: skip
    argv = [sys.executable, "-m", "ansible", "playbook", "configure.yml"]
    return run(argv, cwd=handed / "awx", env=environment | more, check=False, timeout=300)


def test_awxs_own_modules_take_all_of_it_and_a_second_run_changes_nothing(collections, handed, awx):
    first = configure(collections, handed, awx)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "WARNING" not in first.stderr.replace("DEPRECATION WARNING", "")
    templates = awx.named("job_templates")
    books = {path.name for path in (handed / "project").glob("*.yml")}
    assert {template["playbook"] for template in templates.values()} == books
    project, environment = awx.named("projects")["gpusetup"], awx.named("execution_environments")["gpusetup"]
    for template in templates.values():
        assert (template["project"], template["execution_environment"]) == (project["id"], environment["id"])
        assert awx.ties[f"{template['url']}credentials/"] == [awx.named("credentials")["GPU hosts"]["id"]]
    (workflow,) = awx.items["workflow_job_templates"].values()
    for key in ("ask_limit_on_launch", "ask_variables_on_launch", "survey_enabled"):
        assert workflow[key] is True, key
    assert f"workflow_job_templates/{workflow['id']}" in awx.surveys
    before = json.dumps([awx.items, awx.ties, awx.surveys])
    awx.changes.clear()
    second = configure(collections, handed, awx)
    assert second.returncode == 0, second.stdout + second.stderr
    assert json.dumps([awx.items, awx.ties, awx.surveys]) == before
    assert awx.changes == []


def test_nothing_is_changed_without_a_yes_and_what_breaks_goes_back(collections, handed, awx):
    assert configure(collections, handed, awx).returncode == 0
    ways = awx.ways()
    followers = {node: {other for others in way.values() for other in others} for node, way in ways.items()}
    (start,) = set(followers) - {other for others in followers.values() for other in others}
    kinds = {item["id"]: item for kept in awx.items.values() for item in kept.values()}
    nodes = awx.items["workflow_job_template_nodes"].values()
    runs = {node["identifier"]: kinds[node["unified_job_template"]]["name"] for node in nodes}

    def reached(without):
        seen, left = set(), [start]
        while left:
            node = left.pop()
            if node not in seen and node != without:
                seen.add(node)
                left += followers[node]
        return {runs[node] for node in seen}

    assert {name for name, item in awx.named("workflow_approval_templates").items()} == {runs["approval"]}
    assert reached("approval") == {"gpusetup: facts", "gpusetup: plan"}
    assert reached(None) == set(runs.values())
    assert ways["apply_planned"] == {"success_nodes": ["verify"], "failure_nodes": ["rollback"], "always_nodes": []}
    assert ways["verify"]["failure_nodes"] == ["rollback"]
    ends = {node for node, others in followers.items() if not others}
    assert {runs[node] for node in ends} == {"gpusetup: verdict"}


def test_the_token_is_in_no_file_and_a_wrong_one_is_refused(collections, handed, awx):
    refused = configure(collections, handed, awx, CONTROLLER_OAUTH_TOKEN="another")
    assert refused.returncode == 2
    assert "Invalid authentication credentials" in refused.stdout
    assert awx.unauthorised
    assert awx.changes == []


def test_ansible_lint_finds_nothing(handed):
    pytest.importorskip("ansiblelint")
    shutil.rmtree(handed / "awx")  # its modules are another collection's: the tests above run them
    plays = sorted((handed / "project").glob("*.yml"))
    argv = [sys.executable, "-m", "ansiblelint", "--offline", "-q", "--profile", "production", *map(str, plays)]
    ours = Path(__file__).resolve().parents[2] / ".collections"
    places = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "ANSIBLE_COLLECTIONS_PATH": str(ours)}
    environment = {**places, "HOME": str(handed.parent)}
    done = subprocess.run(argv, cwd=handed.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
