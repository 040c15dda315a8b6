"""New drivers from NVIDIA's list: real in shape, and truncated, stale, hostile; a server that answers with each of them."""

import datetime as dt
import http.server
import json
import threading
from pathlib import Path

import pytest

from gpusetup.matrix.load import Matrix, matrix
from gpusetup.refresh.drivers import with_drivers
from gpusetup.refresh.gathering import Gathering
from tests.unit.cli.test_matrix_releases import asked, home

__all__ = ["home"]  # a fixture

KNOWN = json.loads(Path(Matrix().path("driver")).read_text(encoding="utf-8"))
TODAY = dt.datetime.now(tz=dt.timezone.utc).date()
NEW = "580.201.07"


def listed(*more, branch="580", kind="lts branch"):
    """The list as it is published: what the matrix knows of a branch, and more before it."""
    versions = [
        {"release_version": item["version"], "release_date": item.get("date", ""), "runfile_url": {}}
        for item in reversed(KNOWN["versions"])
        if item["branch"] == int(branch)
    ]
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


def test_what_is_known_already_is_nothing_new():
    found = gathered(listed())
    assert (found.documents["driver"], found.told) == (KNOWN, [])


def test_a_new_release_says_where_it_is_from_and_that_nobody_tried_it():
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
        (release("580.201.07; rm -rf /"), "580", "no version of a driver"),
        (release("../../etc/passwd"), "580", "no version of a driver"),
        (release("595.201.07"), "580", "it stands under R580"),
        (release("799.10.01"), "799", "R799 is new"),
        (release(NEW, day="2999-01-01"), "580", "still to come"),
        (release(NEW, day=""), "580", "its day is missing"),
        (release(NEW, day="soon"), "580", "its day is soon"),
    ],
)
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
def server():
    """A server whose answers a test sets: {path: (status, bytes)}."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, content = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield answers, f"http://127.0.0.1:{web.server_port}"
    web.shutdown()


def test_from_a_server_to_an_answer(home, capsys, server):
    answers, url = server
    answers["/releases.json"] = (200, json.dumps(listed(release(NEW))).encode())
    source = ("--from", f"{url}/releases.json")
    code, out, _err = asked(capsys, "update", *source, "--check")
    assert code == 9
    assert NEW in out
    assert NEW not in {item.version for item in matrix().driver.versions}
    code, out, err = asked(capsys, "update", *source, "--format", "json")
    assert code == 0, err
    document = json.loads(out)
    assert {change["what"] for change in document["changes"]} == {"added", "changed"}
    assert any(NEW in text for text in document["answers"]), document["answers"]
    assert NEW in {item.version for item in matrix().driver.versions}
    assert NEW in asked(capsys, "driver", "580.*")[1]
    assert asked(capsys, "update", *source)[:2] == (0, "nothing is new\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(listed(release(NEW))).encode()[:-30], "not NVIDIA's list of drivers, or not all of it"),
        (b"<html>proxy login</html>", "not NVIDIA's list"),
        (b'{"580": {"driver_info": "none"}}', "not NVIDIA's list"),
        (b"\xff\xfe", "not NVIDIA's list"),
        (b"[]", "not NVIDIA's list"),
    ],
)
def test_a_broken_answer_changes_nothing(home, capsys, server, content, said):
    answers, url = server
    answers["/releases.json"] = (200, content)
    code, out, err = asked(capsys, "update", "--from", f"{url}/releases.json")
    assert (code, out) == (3, "")
    assert said in " ".join(err.split())
    assert matrix().overlay is None


def test_a_server_that_says_no_is_unreachable(home, capsys, server):
    answers, url = server
    answers["/releases.json"] = (404, b"")
    code, _out, err = asked(capsys, "update", "--from", f"{url}/releases.json")
    assert code == 6
    assert "404" in err


def test_sources_that_fail_cost_only_themselves(home, capsys, server):
    answers, url = server
    answers["/releases.json"] = (200, json.dumps(listed(release(NEW))).encode())
    answers |= dict.fromkeys(("/cuda/",), (404, b""))
    places = ("--from", f"drivers={url}/releases.json", "--from", f"cuda={url}/cuda")
    code, out, err = asked(capsys, "update", "drivers", "cuda", *places, "--format", "json")
    document = json.loads(out)
    assert code == 6
    assert [item["source"] for item in document["failed"]] == ["cuda"]
    assert "NVIDIA's archives of CUDA: http://" in " ".join(err.split())
    assert NEW in {item.version for item in matrix().driver.versions}


def test_an_answer_says_that_nobody_has_tried_what_it_takes(home, capsys, server):
    answers, url = server
    answers["/releases.json"] = (200, json.dumps(listed(release(NEW))).encode())
    asked(capsys, "update", "--from", f"{url}/releases.json")
    from gpusetup.model.request import Request, Requirement
    from gpusetup.resolve.api import resolve

    wish = Requirement(component="driver", specifier=f"=={NEW}")
    told = resolve(Request(gpus=("h100",), gpu_count=1, requirements=(wish,)), matrix()).reasons
    assert [item.text for item in told if item.rule == "candidate"] == [
        f"driver {NEW}: read by a program on {TODAY}; nobody of gpusetup has tried it"
    ]


def manifest(folder, version):
    document = {"version": version, "cuda_variant": ["13"]}
    (folder / "redistrib_9.99.0.json").write_text(json.dumps({
        "release_date": "2026-11-20", "release_label": "9.99.0", "release_product": "cudnn", "cudnn": document,
    }))  # fmt: skip


def test_copies_in_a_folder_do_as_well(home, capsys, tmp_path):
    manifest(tmp_path, "9.99.0.7")
    code, out, _err = asked(capsys, "update", "cudnn", "--from", f"cudnn={tmp_path}", "--check")
    assert code == 9
    assert "cudnn: 9.99.0.7" in out
    assert "cudnn 9.28.0.42 -> 9.99.0.7: " in out


def test_rows_that_break_a_law_of_answers_are_refused(home, capsys, tmp_path, monkeypatch):
    manifest(tmp_path, "9.99.0.7")
    monkeypatch.setattr("gpusetup.refresh.judging.new_breaches", lambda _before, _after: ["first_row: it is another"])
    code, out, err = asked(capsys, "update", "cudnn", "--from", f"cudnn={tmp_path}")
    assert (code, out) == (3, "")
    assert "answers would contradict each other: first_row" in " ".join(err.split())
    assert matrix().overlay is None


def test_rows_that_break_a_lint_are_refused_with_their_source(home, capsys, tmp_path, monkeypatch):
    manifest(tmp_path, "9.99.0.7")
    lints = {"made up": lambda documents: ["9.99"] * ("9.99.0.7" in str(documents["cudnn"]["releases"][-1]))}
    monkeypatch.setattr("gpusetup.refresh.sources.LINTS", lints)
    code, out, err = asked(capsys, "update", "cudnn", "--from", f"cudnn={tmp_path}")
    assert (code, out) == (3, "")
    assert "NVIDIA's archives of cuDNN says cannot be: 9.99" in " ".join(err.split())
    assert matrix().overlay is None


def test_a_source_that_nobody_knows_is_told(home, capsys):
    code, _out, err = asked(capsys, "update", "cudas")
    assert code == 3
    assert "drivers, cuda, cudnn, repositories, wheels, torch, packages" in " ".join(err.split())
