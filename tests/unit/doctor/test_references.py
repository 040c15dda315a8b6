"""gpusetup's own references, clean logs, and the numbers in the names of libraries."""

import json
import re
import sys
from pathlib import Path

import pytest

from gpusetup.doctor.references import nearest, reference_in

ROOT = Path(__file__).resolve().parents[3]


def used():
    files = [path for folder in ("gpusetup", "gpusetup_fleet", "plugins") for path in (ROOT / folder).rglob("*.py")]
    files.append(ROOT / "gpusetup/bootstrap/instance/first-stage")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return sorted(set(re.findall(r"[\"'](GS-\d{3})[\"']", text)))


CATALOGUE = ROOT / "gpusetup/references.json"


def listed():
    return json.loads(CATALOGUE.read_text(encoding="utf-8"))["references"]


def test_every_reference_that_is_raised_is_in_the_catalogue_and_no_other():
    assert list(listed()) == used(), "gpusetup/references.json has each that is raised, in the order of the numbers"
    assert all(entry["title"] and entry["fix"] for entry in listed().values())


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (("GS-324",), ""), (("[gs-324]",), ""), (("GS324",), ""), (("--explain", "GS-324"), ""),
        (("--explain", "gs 324"), ""), (("-",), "GS-324\n"),
        (("error: a driver from an installer is on node7 [GS-324]",), ""),
        (("--text", "-"), "begin\nerror: a driver from an installer is on node7 [GS-324]\nend\n"),
    ],
)  # fmt: skip
def test_the_doctor_knows_a_reference_however_it_is_given(doctor, arguments, given):
    answer = doctor(0, *arguments, given=given)
    assert ".run installer" in answer
    assert "--replace" in answer
    assert "reference/errors" not in answer, "an installed gpusetup has no such page"


def test_an_xid_is_known_however_it_is_given(doctor):
    for arguments in (("Xid 79",), ("--explain", "Xid 79"), ("-",)):
        assert "fell off the PCI bus" in doctor(0, *arguments, given="Xid 79\n")


@pytest.mark.parametrize(("terminal", "wide"), [(True, ["kubectl"]), (False, ["Either ", "kubectl"])])
def test_the_page_of_a_cause_is_as_wide_as_the_terminal_and_whole_in_a_file(doctor, monkeypatch, terminal, wide):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    page = doctor(0, "--explain", "k8s-insufficient-gpu")
    assert [row[:7] for row in page.splitlines() if len(row) > 80] == wide


def test_the_json_of_a_reference_has_its_page(doctor):
    answer = json.loads(doctor(0, "--explain", "GS-324", "--format", "json"))
    assert (answer["page"], *map(bool, (answer["title"], answer["fix"]))) == ("reference/errors/GS-324.md", True, True)


@pytest.mark.parametrize(("typed", "meant"), [("GS-999", "GS-499"), ("GS-3244", "GS-324"), ("gs-325x", "")])
def test_a_reference_that_does_not_exist_gets_the_nearest(doctor, typed, meant):
    for arguments in ((typed,), ("--explain", typed)):
        assert meant in doctor(3, *arguments)
    assert not meant or meant in nearest(reference_in(typed))


def test_a_clean_log_is_healthy_and_one_with_an_error_that_nobody_knows_is_not(doctor):
    clean = "using device cuda:0\nepoch 1 loss 0.3\nepoch 2 loss 0.2\n"
    assert doctor(0, "--text", "-", given=clean).startswith("healthy")
    assert doctor(3, "--text", "-", given=f"{clean}frobnication failed: 42\n").startswith("not recognised")
