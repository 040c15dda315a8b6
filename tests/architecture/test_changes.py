"""What CI runs for a change: each slow stage names paths that are there, and without a commit to compare with some run."""

import subprocess

import pytest

from tests import changes, stages
from tests.lab import places, turns


def test_each_slow_stage_is_one_and_names_what_is_there():
    assert set(changes.TOUCH) <= set(stages.STAGES)
    named = [place for places in (changes.ALWAYS, *changes.TOUCH.values()) for place in places]
    assert [place for place in named if not (changes.ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("path", "stages_run"),
    [
        ("docs/guides/apply.md", {"site", "fleet"}),
        ("gpusetup_fleet/pull/web.py", {"fleet", "site"}),
        ("gpusetup/rollout/waves.py", {"drive", "lab-long", "lab-slow", "fleet"}),
        ("gpusetup/report/html.py", {"fleet"}),
        ("roles/gpu_mig/tasks/main.yml", {"vm", "molecule", "lab-long", "lab-slow", "tools"}),
        ("tests/stages.py", set(changes.TOUCH)),
        ("tests/unit/test_versions.py", set()),
        ("docs-of-others.md", set()),
    ],
)
def test_a_file_leads_to_the_stages_that_it_can_break(path, stages_run):
    assert set(changes.reasons([path])) == stages_run


def test_each_slow_test_is_in_one_turn_and_commits_take_turns():
    files = {path.name for path in places.SOURCE.glob("test_*.py") if "mark.slow" in path.read_text()}
    assert {name.partition("::")[0] for name in turns.DURATIONS} <= files
    names = {f"{file}::test_{number}" for file in files for number in range(2)} | {"test_new.py::test_x[/::a]"}
    slow = sorted(f"tests/lab/{name}" for name in names | {name for name in turns.DURATIONS if "::" in name})
    count = len(turns.divided(slow))
    chosen = [turns.chosen(slow, commits) for commits in range(1000, 1000 + count)]
    assert sorted(number for number, _count, _tests in chosen) == [*range(1, count + 1)]
    assert sorted(test for _number, _count, tests in chosen for test in tests) == slow
    assert turns.chosen(slow, chosen[0][0]) == chosen[0], "the number of a turn chooses it again"


def test_slow_tests_that_cannot_be_collected_are_a_failed_stage_with_the_reason(tmp_path, monkeypatch, capsys):
    (tmp_path / "tests/lab").mkdir(parents=True)
    (tmp_path / "tests/lab/test_broken.py").write_text("import absent\n")
    monkeypatch.setattr(turns, "CHECKOUT", tmp_path)
    (ended,) = stages._all_of(["lab-slow"])
    assert (ended.state, ended.failed) == ("failed", 1)
    assert "No module named 'absent'" in capsys.readouterr().out


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A branch with one commit after main's, and a file that is not committed."""
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first"), ("switch", "-q", "-c", "branch")):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").touch()
    subprocess.run([*git, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "second"], cwd=tmp_path, check=True)
    (tmp_path / "galaxy.yml").touch()
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    monkeypatch.delenv("GPUSETUP_TESTED", raising=False)
    return tmp_path


def test_a_branch_is_compared_with_where_it_left_main(checkout):
    assert changes.changed(changes.base()) == ["docs/page.md", "galaxy.yml"]
    assert {stage for stage, (runs, _why) in changes.decided().items() if runs} == {"site"}


@pytest.mark.parametrize("named", ["", "0000000000000000000000000000000000000000", "no-such-commit"])
def test_where_no_tested_commit_is_known_commits_take_turns(named, checkout, monkeypatch):
    subprocess.run(["git", "branch", "-q", "-D", "main"], cwd=checkout, check=True)
    monkeypatch.setenv("GPUSETUP_TESTED", named)
    ran = set()
    for turn in range(100, 100 + len(changes.UNKNOWN)):
        monkeypatch.setenv("GPUSETUP_TURN", str(turn))
        decided = changes.decided().items()
        ran |= {stage for stage, (runs, _why) in decided if runs}
        assert all(runs or "./dev test all" in why for _stage, (runs, why) in decided)
    assert ran == set(changes.TOUCH) - {"vm", "molecule"}, "they need another machine or a booted guest"
