"""The GitHub Action and the pre-commit hook, run as GitHub's runner and pre-commit run them. They install gpusetup from here."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpusetup.cli.main import command_parser

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
FITS = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.9.1"]\n[tool.gpusetup]\ngpu = ["h100"]\n'
FITS_NOT = FITS + 'installed_driver = "470.82.01"\n'


def stepped(step, inputs, folder):
    """Run one step of the action as the runner does: bash, with the inputs in its environment."""
    values = {name: one["default"] for name, one in ACTION["inputs"].items()} | dict(inputs)
    wanted = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
    told = {name: wanted.sub(lambda one: values[one[1]], text) for name, text in step["env"].items()}
    places = {name: str(folder / name.lower()) for name in ("GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **told, **places, "RUNNER_TEMP": str(folder), "GITHUB_ACTION_PATH": str(ROOT), "PATH": path}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)


def test_every_input_reaches_a_step():
    used = {name for step in ACTION["runs"]["steps"] for name in re.findall(r"inputs\.(\w+)", str(step["env"]))}
    assert used == set(ACTION["inputs"])


@pytest.mark.long
def test_the_action_installs_the_gpusetup_that_it_is(tmp_path):
    done = stepped(ACTION["runs"]["steps"][0], {}, tmp_path)
    assert done.returncode == 0, done.stderr
    program = Path((tmp_path / "github_path").read_text().strip()) / "gpusetup"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert told.stdout.startswith("gpusetup ")


@pytest.mark.parametrize(
    ("project", "inputs", "code", "said"),
    [
        (FITS, {}, 0, ["the GPUs of pyproject.toml: pyproject.toml fits", "| torch | 2.9.1+cu128 |"]),
        (FITS_NOT, {}, 4, ["does not fit", "driver 470.82.01 is installed and stays"]),
        (FITS, {"gpu": "h100\nrtx 4090", "driver": "580.95.05\n470.82.01", "os": "ubuntu24.04", "python": "3.12"}, 4,
         ["### h100, driver 580.95.05: pyproject.toml fits", "### rtx 4090, driver 470.82.01: pyproject.toml does not fit"]),
        (FITS, {"from": "absent.lock"}, 3, ["absent.lock"]),
    ],
)  # fmt: skip
def test_the_action_fails_with_the_reason(project, inputs, code, said, tmp_path):
    (tmp_path / "pyproject.toml").write_text(project)
    done = stepped(ACTION["runs"]["steps"][1], inputs, tmp_path)
    summary = (tmp_path / "github_step_summary").read_text()
    assert (done.returncode, [text for text in said if text not in summary]) == (code, []), done.stdout + done.stderr
    assert done.stdout.count("::error file=") == summary.count("does not fit")


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_every_step_of_a_workflow_is_bash_that_gpusetup_understands(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for text in [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]:
        read = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, ""), text
        for line in re.findall(r"^ *gpusetup (.*)", text, re.MULTILINE):
            name, *words = shlex.split(line.replace("$LEVEL", "full"))
            assert command_parser(name).parse_args(words).inventory == "inventory.ini"


@pytest.mark.long
def test_pre_commit_runs_the_hook_in_a_repository(tmp_path):
    def run(*words):
        env = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")}
        return subprocess.run(words, cwd=tmp_path / "project", env=env, capture_output=True, text=True, check=False)

    (tmp_path / "project").mkdir()
    run("git", "init", "--quiet", ".")
    (tmp_path / "project/README.md").write_text("nothing to check")
    codes = []
    for text in ("", FITS, FITS_NOT):
        if text:
            (tmp_path / "project/pyproject.toml").write_text(text)
        run("git", "add", "--all")
        done = run(sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), "gpusetup-pins", "--all-files")
        codes.append((done.returncode, "Skipped" in done.stdout))
    assert codes == [(0, True), (0, False), (1, False)], done.stdout + done.stderr
    assert "driver 470.82.01 is installed and stays" in done.stdout
