"""Every program that a test asks the machine for is one that its stage installs first."""

import ast
import re

import pytest

from tests import programs, stages
from tests.architecture.imports import PACKAGE
from tests.lab import places

TESTS = PACKAGE.parent / "tests"
STAGE_OF = {"pages": "pages", "site": "site", "lab": "lab", "vm": "lab"} | dict.fromkeys(stages.QUICK, "unit")
HARDWARE = {"nvidia-smi", "nvcc"}
"""What only a machine with a GPU has."""
GIVEN = {"apt-get", "dpkg", "dpkg-deb", "dpkg-query", "modprobe"}
"""What Debian has before anything is installed; modprobe is tried, and may be absent where no module can be loaded."""
PYTHON = {"uv"}
"""What comes with the Python environment."""
ALTERNATIVES = {
    "gcc": "cc",
    "chromium-browser": "chromium",
    "chromium-headless-shell": "chromium",
    "google-chrome": "chromium",
}


def asked_for(path):
    """Yield the programs that a file looks for by name: `shutil.which("x")`, `map(shutil.which, ("x", "y"))`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            words = [ast.unparse(node.func), *map(ast.unparse, node.args[:1])]
            given = node.args[:1] if words[0] == "shutil.which" else []
            if words == ["map", "shutil.which"]:
                given = [word for names in node.args[1:] for word in getattr(names, "elts", [])]
            named = (word.value for word in given if isinstance(word, ast.Constant))
            yield from ((node.lineno, name) for name in named if isinstance(name, str))


def unprepared(folder, stage):
    """Programs that a folder's tests look for and the stage that runs them does not install."""
    known = set(programs.STAGES[stage]) | HARDWARE | GIVEN | PYTHON
    return [
        f"{path}:{line}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for line, name in asked_for(path)
        if ALTERNATIVES.get(name, name) not in known
    ]


@pytest.mark.parametrize("folder", sorted(STAGE_OF))
def test_what_tests_look_for_is_installed_by_their_stage(folder):
    assert unprepared(TESTS / folder, STAGE_OF[folder]) == []


def test_a_program_that_no_stage_installs_is_seen(tmp_path):
    (tmp_path / "test_x.py").write_text('import shutil\nshutil.which("x")\nall(map(shutil.which, ("git", "y")))\n')
    assert [found.rpartition(" ")[2] for found in unprepared(tmp_path, "unit")] == ["x", "y"]


def test_a_skip_for_a_lacking_program_fails_where_programs_can_be_installed(tmp_path, monkeypatch):
    report = tmp_path / "report.xml"
    skips = "".join(
        f'<testcase><skipped type="{kind}" message="{why}"/></testcase>'
        for kind, why in (
            ("pytest.skip", "etcd is not installed"),
            ("pytest.skip", "no NVIDIA GPU here"),
            ("pytest.xfail", "as long as dnf does so"),
        )
    )
    report.write_text(f'<testsuites><testsuite tests="5" skipped="3">{skips}</testsuite></testsuites>')
    monkeypatch.setattr(programs, "installs", lambda: True)
    assert stages._counts(report) == (2, 1, 2)
    monkeypatch.setattr(programs, "installs", lambda: False)
    assert stages._counts(report) == (2, 0, 3)


def test_nothing_that_is_installed_starts_a_service(tmp_path, monkeypatch):
    policy, wants = tmp_path / "policy-rc.d", tmp_path / "multi-user.target.wants"
    wants.mkdir()
    (wants / "here-before.service").symlink_to("/lib/systemd/system/here-before.service")
    seen = []

    def apt(argv, **_):
        if "install" in argv:
            seen.append(policy.read_text(encoding="utf-8"))
            (wants / "nginx.service").symlink_to("/lib/systemd/system/nginx.service")

    monkeypatch.setattr(programs, "run", apt)
    monkeypatch.setattr(programs, "POLICY", policy)
    monkeypatch.setattr(programs, "UNITS", tmp_path)
    programs.install(["nginx-light"])
    assert "exit 101" in seen[0]
    assert [link.name for link in wants.iterdir()] == ["here-before.service"]
    assert not policy.exists()


def test_what_molecule_reads_of_the_lab_is_where_the_lab_writes_it():
    written = {str(places.MOLECULE), str(places.KNOWN_HOSTS), places.SIMULATED_ROOT}
    texts = [path.read_text() for path in (PACKAGE.parent / ".config/molecule").iterdir()]
    read = {found for text in texts for found in re.findall(r"/var/lib/gpusetup-lab/[\w./-]+", text)}
    assert str(places.MOLECULE) in read
    assert read <= written
