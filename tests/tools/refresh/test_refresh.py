"""New drivers from NVIDIA's list: real in shape, and truncated, stale, hostile; a server that answers with each of them."""

import datetime as dt
import difflib
import json
import shutil
from pathlib import Path

import pytest

from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import resolve
from tools.refresh.__main__ import DATA, main
from tools.refresh.drivers import with_drivers
from tools.refresh.gathering import Gathering

KNOWN = json.loads(Path(Matrix().path("driver")).read_text(encoding="utf-8"))
TODAY = dt.datetime.now(tz=dt.timezone.utc).date()
NEW = "580.201.07"


def listed(*more, branch="580", kind="lts branch"):
    """The list as it is published: what the matrix knows of a branch, and more before it."""
    known = [item for item in reversed(KNOWN["versions"]) if item["branch"] == int(branch)]
    versions = [{"release_version": item["version"], "release_date": item.get("date", "")} for item in known]
    return {branch: {"type": kind, "driver_info": [*more, *versions]}}


def release(version, day="2026-11-21"):
    return {"release_version": version, "release_date": day, "architectures": ["x86_64"], "release_notes": "https://…"}


def gathered(document):
    found = Gathering({"driver": KNOWN}, TODAY)
    with_drivers(found, json.dumps(document).encode())
    return found


def taken(document):
    found = gathered(document)
    before = {item["version"] for item in KNOWN["versions"]}
    return found.versions("driver", "versions") - before, found.told


def test_a_new_release_says_where_it_is_from_and_that_nobody_tried_it():
    found = gathered(listed())
    assert (found.documents["driver"], found.told) == (KNOWN, []), "what is known already is nothing new"
    found = gathered(listed(release(NEW)))
    driver, told = found.documents["driver"], found.told
    (row,) = [item for item in driver["versions"] if item["version"] == NEW]
    assert row["sources"] == ["releases_json"]
    assert "nobody of gpusetup has tried it" in row["note"]
    assert driver["sources"]["releases_json"]["url"].startswith("https://docs.nvidia.com/")
    assert next(branch for branch in driver["branches"] if branch["branch"] == 580)["latest"] == NEW
    assert driver["date"] == str(TODAY)
    assert told == []


@pytest.mark.parametrize(
    ("more", "branch", "said"),
    [
        (release("580.201.07; rm -rf /"), "580", "no version of a driver"), (release("799.10.01"), "799", "R799 is new"),
        (release("../../etc/passwd"), "580", "no version of a driver"), (release(NEW, day=""), "580", "its day is missing"),
        (release("595.201.07"), "580", "it stands under R580"), (release(NEW, day="soon"), "580", "its day is soon"),
        (release(NEW, day="2999-01-01"), "580", "still to come"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_left_out_and_said(more, branch, said):
    found, told = taken(listed(more, branch=branch))
    assert found == set()
    assert said in " ".join(told)


def test_an_old_copy_and_another_kind_are_said():
    old = listed(kind="Production Branch")
    del old["580"]["driver_info"][0]
    found, told = taken(old)
    assert found == set()
    assert any("may be an old copy" in text for text in told)
    assert any("the list calls it PB, the matrix LTSB" in text for text in told)


@pytest.fixture
def served(site):
    """Serve a list of drivers, and return the words that ask for it."""

    def serve(content=None):
        site.bodies["/releases.json"] = ("application/json", content or json.dumps(listed(release(NEW))).encode())
        return ("drivers", "--from", f"drivers={site.url}/releases.json")

    return serve


@pytest.fixture
def data(tmp_path):
    """The shipped matrix, in a folder that may be written to."""
    return Path(shutil.copytree(DATA, tmp_path / "data"))


@pytest.fixture
def refresh(data, capsys):
    def asked(*words):
        code = main(list(map(str, words)), data)
        told = capsys.readouterr()
        return code, told.out, told.err

    return asked


def drivers(data):
    return {item.version for item in Matrix(data).driver.versions}


def test_from_a_server_to_an_answer(data, refresh, served):
    source = served()
    code, out, _err = refresh(*source)
    assert code == 9
    assert f"added driver: {NEW}" in out
    assert out.partition("answers that change:")[2].count(NEW)
    assert NEW not in drivers(data)
    code, _out, err = refresh(*source, "--write")
    assert code == 0, err
    assert NEW in drivers(data)
    assert Matrix(data).date == str(TODAY)
    assert refresh(*source)[:2] == (0, "nothing is new\n")


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(listed(release(NEW))).encode()[:-30], b"<html>proxy login</html>", b'{"580": {"driver_info": "none"}}',
        b"\xff\xfe", b"[]",
    ],
)  # fmt: skip
def test_a_broken_answer_changes_nothing(data, refresh, served, content):
    before = drivers(data)
    code, out, err = refresh(*served(content), "--write")
    assert (code, out) == (3, "nothing is new\n")
    assert "not NVIDIA's list of drivers" in err
    assert drivers(data) == before


def test_sources_that_fail_cost_only_themselves(data, refresh, served, site):
    code, _out, err = refresh("drivers", "--from", f"drivers={site.url}/releases.json")
    assert (code, "404" in err) == (6, True)
    code, _out, err = refresh("cuda", *served(), "--from", f"cuda={site.url}/cuda", "--write")
    assert (code, "cuda brought nothing: http://" in err) == (6, True)
    assert NEW in drivers(data)


def test_an_answer_says_that_nobody_has_tried_what_it_takes(data, refresh, served):
    refresh(*served(), "--write")
    wish = Requirement(component="driver", specifier=f"=={NEW}")
    told = resolve(Request(gpus=("h100",), gpu_count=1, requirements=(wish,)), Matrix(data)).reasons
    said = f"driver {NEW}: read by a program on {TODAY}; nobody of gpusetup has tried it"
    assert [item.text for item in told if item.rule == "candidate"] == [said]


def manifest(folder, version):
    document = {"release_date": "2026-11-20", "release_label": "9.99.0", "release_product": "cudnn"}
    document["cudnn"] = {"version": version, "cuda_variant": ["13"]}
    (folder / "redistrib_9.99.0.json").write_text(json.dumps(document))


def test_copies_in_a_folder_do_as_well_and_what_is_written_is_a_diff_of_what_is_new(data, refresh, tmp_path):
    manifest(tmp_path, "9.99.0.7")
    code, out, _err = refresh("cudnn", "--from", f"cudnn={tmp_path}")
    assert code == 9
    assert "cudnn: 9.99.0.7" in out
    assert "cudnn 9.28.1.4 -> 9.99.0.7: " in out
    before = {name: (data / f"{name}.json").read_text().splitlines() for name in ("cudnn", "driver")}
    assert refresh("cudnn", "--from", f"cudnn={tmp_path}", "--write")[0] == 0
    for name, lines in before.items():
        after = (data / f"{name}.json").read_text().splitlines()
        same = difflib.SequenceMatcher(None, lines, after, autojunk=False).get_matching_blocks()
        assert len(lines) - sum(block.size for block in same) <= 2, name


def test_rows_that_break_a_law_of_answers_are_refused(data, refresh, tmp_path, monkeypatch):
    manifest(tmp_path, "9.99.0.7")
    monkeypatch.setattr("tools.refresh.__main__.new_breaches", lambda _before, _after: ["first_row: it is another"])
    code, out, err = refresh("cudnn", "--from", f"cudnn={tmp_path}", "--write")
    assert (code, out) == (3, "")
    assert "answers would contradict each other" in err
    assert "first_row" in err
    assert "9.99.0.7" not in (data / "cudnn.json").read_text()


def test_rows_that_break_a_lint_are_refused_with_their_source(data, refresh, tmp_path, monkeypatch):
    manifest(tmp_path, "9.99.0.7")
    lints = {"made up": lambda documents: ["9.99"] * ("9.99.0.7" in str(documents["cudnn"]["releases"][-1]))}
    monkeypatch.setattr("tools.refresh.sources.LINTS", lints)
    code, _out, err = refresh("cudnn", "--from", f"cudnn={tmp_path}", "--write")
    assert code == 3
    assert "NVIDIA's archives of cuDNN says cannot be: 9.99" in err
    assert "9.99.0.7" not in (data / "cudnn.json").read_text()
