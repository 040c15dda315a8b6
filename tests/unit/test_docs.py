"""The built documentation, the README, the page of features, the inventories and the pictures show what is there today."""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.findings import finding_of
from gpusetup.verify.registry import LEVELS, checks
from tools import docs, features, units
from tools.pictures import PAGES, PICTURES, SESSION
from tools.release import front

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(
    r"(?<![\w./:<$-])(?:(?:gpusetup|plugins|roles|playbooks|tests|tools|bench|docs)/(?!_content)[\w./*-]*\w\.(?:py|json|ya?ml|md|svg|toml|txt|sql)"
    r"|gpusetup\.(?!stack\b)[a-z_]+(?:\.[a-z_]+)+)\b(?![({])"
)
"""A file of the project, or a module with what is in it."""
NOT_OURS = "playbooks/nvidia-software/nvidia-driver.yml"
"""DeepOps has it."""
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "docs"
    subprocess.run([sys.executable, str(ROOT / "tools/docs.py"), str(folder)], check=True, cwd=ROOT, timeout=120)
    return folder


def test_every_link_of_the_built_documentation_leads_somewhere(built):
    dangling = []
    for page in built.rglob("*.md"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            outside = (ROOT / "docs" / page.relative_to(built)).parent / target  # ../../CHANGELOG.md and its like
            if "://" not in target and not (page.parent / target).exists() and not outside.exists():
                dangling.append(f"{page.relative_to(built)}: {target}")
    assert dangling == []


def test_what_language_models_read_is_made_of_todays_pages():
    assert docs.LLMS.read_text(encoding="utf-8") == docs.llms(), "./dev docs --llms"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_page_of_services_has_todays_figures():
    today = {name: units.exposure(name, text) for name, text in units.texts().items()}
    assert set(today) == set(units.TOLD)
    assert {name: one for name, one in today.items() if abs(one - units.TOLD[name]["exposure"]) > 0.3} == {}


def test_what_is_read_without_building_has_no_dangling_link_either():
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("roles/*/README.md")]
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert [link for link in links if "://" not in link[1] and not (link[0].parent / link[1]).exists()] == []


def is_there(name):
    if "/" in name:
        return name == NOT_OURS or any(ROOT.glob(re.sub(r"\b[A-Z]{4,}\b", "*", name)))
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        module = ROOT.joinpath(*parts[:end])
        file = next((path for path in (module.with_suffix(".py"), module / "__init__.py") if path.is_file()), None)
        if file is not None:
            return end == len(parts) or re.search(rf"\b{parts[end]}\b", file.read_text(encoding="utf-8")) is not None
    return False


def test_every_file_and_module_that_is_named_exists():
    places = (
        "docs/**/*.md", "*.md", "*.toml", "*.yml", ".github/**/*.*", "roles/**/*.yml", "roles/*/README.md",
        *(f"{folder}/**/*.py" for folder in ("gpusetup", "gpusetup_fleet", "plugins", "roles", "tools", "bench", "tests/lab", "tests/property")),
    )  # fmt: skip
    pages = {path for place in places for path in ROOT.glob(place) if path.is_file() and path.name != "CHANGELOG.md"}
    named = [
        (str(page.relative_to(ROOT)), name)
        for page in pages
        for name in NAMED.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(named) > 500
    assert sorted(pair for pair in named if not is_there(pair[1])) == []
    assert not any(
        map(
            is_there,
            ("gpusetup/gone.py", "tests/lab/test_gone_*.py", "gpusetup.plan.gone", "gpusetup.plan.host.nowhere"),
        )
    )


def test_every_cause_has_its_page_and_every_check_stands_on_its_levels(built):
    for cause in catalogue().causes.values():
        assert (built / finding_of(cause).page).is_file()
    for level in LEVELS:
        text = (built / f"reference/checks/{level}.md").read_text(encoding="utf-8")
        assert [check.id for check in checks() if f"## `{check.id}`:" in text] == [
            check.id for check in checks() if check.level == level
        ]


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("", encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, str(ROOT / "tools/docs.py"), str(tmp_path)], check=False, cwd=ROOT, timeout=60
    )
    assert answer.returncode == 2
    assert (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "--explain", "nvlink.links"), "# `nvlink.links`: All NVLinks are up"),
        (("verify", "--explain", "full"), "## `nccl.all-reduce`"),
        (("verify", "--explain", "expectations"), "# Expectations"),
        (("verify", "--explain", "xid"), "# Xid catalogue"),
        (("doctor", "--explain", "out-of-memory"), "`out-of-memory` ·"),
    ],
)
def test_the_program_prints_its_pages(words, said, says):
    assert said in says(0, *list(words))


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("verify", "--explain", "nvlink.link"), "nvlink.links"),
        (("doctor", "--explain", "out-of-memry"), "out-of-memory"),
        (("verify", "--explain", "pcie.link", "--format", "junit"), "text or json"),
        (("doctor", "--explain", "out-of-memory", "a message"), "cannot be used together"),
    ],
)
def test_a_name_that_nothing_has_is_refused_with_what_is_near(words, near, capsys):
    assert main(list(words)) == 3
    said = capsys.readouterr()
    assert near in said.out + said.err


PAGE = Path(__file__).resolve().parents[2] / "docs/reference/features.md"
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| what |")
]


def state(row):
    return row[1].rstrip(" |").partition(":")[0]


def test_every_row_is_counted():
    counted = Counter(map(state, ROWS))
    assert set(counted) == {"whole", "stand-in", "part", "no"}
    told = re.search(
        r"^(\d+) rows: (\d+) whole, (\d+) stand-in, (\d+) part, (\d+) no\.$", PAGE.read_text(), re.MULTILINE
    )
    assert told is not None
    assert [int(number) for number in told.groups()] == [
        len(ROWS), *(counted[name] for name in ("whole", "stand-in", "part", "no")),
    ]  # fmt: skip


def test_the_systems_of_each_row_are_those_of_its_tests():
    text = PAGE.read_text(encoding="utf-8")
    assert features.page(text, json.loads(features.EVIDENCE.read_text(encoding="utf-8"))) == text, (
        "python -m tools.features"
    )
    assert (
        features.systems(["tests/lab/test_roles_dnf.py", "tests/fixtures/observations/h200-x1-full.json"])
        == "an H200, EL 9, Fedora"
    )
    with pytest.raises(FileNotFoundError):
        features.systems(["tests/lab/test_gone.py"])


def test_what_is_there_is_shown_on_a_page():
    for row in ROWS:
        shown = re.findall(r"\]\(([^)#]+)", row[-1]) if state(row) != "no" else [PAGE.name]
        assert shown, row
        assert all((PAGE.parent / place).is_file() for place in shown), row


def test_what_is_part_says_what_is_missing():
    assert [row for row in ROWS if state(row) == "part" and not row[1].partition(": ")[2]] == []


README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = "https://forge.example/people/gpusetup"
TARGETS = re.compile(r"\]\(([^)\s]+)\)")


def test_every_link_and_picture_of_the_readme_is_absolute_and_its_file_is_there():
    text = front.page(README, HOME, "0.1.0")
    targets = TARGETS.findall(text)
    assert all(target.startswith("https://") for target in targets)
    ours = [target for target in targets if target.startswith(HOME)]
    assert len(ours) > 10
    for target in ours:
        kind, _, place = target.removeprefix(f"{HOME}/").partition("/v0.1.0/")
        assert (ROOT / place).exists(), target
        assert kind == ("raw" if place.endswith(".svg") else "blob")


def test_without_an_address_words_stay_and_nothing_leads_nowhere():
    text = front.page(README, "", "0.1.0")
    assert all(target.startswith("https://") for target in TARGETS.findall(text))
    assert "a single file, a container, a collection are built" in text
    assert "session.svg" not in text
    assert front.addresses("", "0.1.0") == {}


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("https://forge.example/people/gpusetup.git", HOME),
        ("git@forge.example:people/gpusetup.git", HOME),
        ("https://me:secret@forge.example/people/gpusetup", ""),
        ("/srv/git/gpusetup", ""),
        ("", ""),
    ],
)
def test_the_address_is_gits_unless_it_is_told(told, address, tmp_path, monkeypatch):
    monkeypatch.delenv("GPUSETUP_REPOSITORY", raising=False)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    if told:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", told], check=True)
    assert front.repository(tmp_path) == address
    monkeypatch.setenv("GPUSETUP_REPOSITORY", "https://other.example/x/y/")
    assert front.repository(tmp_path) == "https://other.example/x/y"


DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides/inventories.md").read_text(encoding="utf-8")


def test_every_example_is_in_the_guide():
    files = sorted(path.name for path in (DOCS / "examples/inventories").iterdir())
    assert files == sorted(set(re.findall(r"examples/inventories/(gpus\.\w+\.yml)\)", GUIDE)))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_what_would_be_drawn_today(path):
    drawn = PICTURES[path]()
    assert path.read_text(encoding="utf-8") == drawn, "it is stale: python -m tools.pictures"
    assert ET.fromstring(drawn).get("aria-label")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_would_be_written_today(path):
    assert path.read_text(encoding="utf-8") == PAGES[path](), "it is stale: python -m tools.pictures"


def test_the_session_shows_every_command_with_an_answer():
    drawn = next(drawn for path, drawn in PICTURES.items() if path.name == "session.svg")()
    lines = [text.text for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    prompts = [number for number, line in enumerate(lines) if line.startswith("$ gpusetup ")]
    assert len(prompts) == len(SESSION)
    assert min(after - before for before, after in zip(prompts, [*prompts[1:], len(lines)], strict=True)) > 2
    assert "torch==2.6.0" in "\n".join(lines)
