"""Tables of everything the data knows: drivers, libraries, GPUs, distributions, Pythons, vGPU."""

import csv
import datetime as dt
import io
import json

import pytest
from packaging.version import Version

from gpusetup.matrix.load import Matrix, matrix, package_files
from tests.property.test_command_line import run
from tests.stored import stored_rows

SHIPPED = Matrix()


def ask(*words):
    return run(["matrix", *words])


def rows(*words):
    code, out, _ = ask(*words, "--format", "json")
    document = json.loads(out)
    assert (code, document["ok"], document["schema"]) == (0, True, "gpusetup/matrix/1")
    return list(document["rows"])


@pytest.mark.parametrize("name", ["driver", "cudnn", "nccl", "gpu", "os", "python", "vgpu"])
def test_each_table_is_about_what_was_asked(name):
    found = rows(name)
    assert all(row[name] for row in found)
    assert all(row["sources"] or name == "python" for row in found)
    assert not any("ptx" in row and "gcc_max" in row for row in found), "that is CUDA's table"
    assert len(list(csv.DictReader(io.StringIO(ask(name, "--format", "csv")[1])))) == len(found)
    lines = ask(name, "--format", "md")[1].splitlines()
    assert (len(lines), len({line.count("|") for line in lines}), lines[1].strip("|-")) == (len(found) + 2, 1, "")
    assert max(len(line) for line in ask(name)[1].splitlines()) <= 80


def test_libraries_are_filtered_by_the_rules():
    versions = [row["cudnn"].split(".") for row in rows("cudnn", "--gpu", "v100")]
    assert max(int(minor) for major, minor, *_ in versions if major == "9") == 10
    assert all(row["nccl"] and row["cuda"].split(".")[0] == "12" for row in rows("nccl", "cuda==12.*"))
    for row in rows("nccl", "--gpu", "h100"):
        assert "9.0" in row["archs"] or row["ptx"] or row["kind"] == "package"


def test_gpus_by_architecture_capability_and_driver():
    assert {row["architecture"] for row in rows("gpu", "hopper")} == {"Hopper"}
    assert {row["cc"] for row in rows("gpu", "sm_103")} == {"10.3"}
    names = {row["gpu"] for row in rows("gpu", "blackwell")}
    assert {"B200", "GeForce RTX 5090"} <= names
    old = {row["architecture"] for row in rows("gpu", "--driver", "470.256.02")}
    assert not old & {"Ada", "Hopper", "Blackwell"}
    assert all(row["only_cpu"] != "aarch64" for row in rows("gpu", "hopper", "--arch", "amd64"))


def test_distributions_pythons_and_vgpu():
    ubuntu = {item.id for item in SHIPPED.os.systems if item.family == "ubuntu"}
    assert {row["os"] for row in rows("os", "ubuntu")} == ubuntu
    assert [row["os"] for row in rows("os", "jammy")] == ["ubuntu22.04"]
    (system,) = [item for item in SHIPPED.os.systems if item.id == "rhel8"]
    own = {row["python"]: row for row in rows("python", "--os", "RHEL 8")}
    assert set(own) == {system.python, *(item.version for item in system.pythons)}
    assert own[system.python]["base_of"] == ["rhel8"]
    (row,) = rows("python", "3.12")
    assert (row["python"], row["torch"]) == ("3.12", max(SHIPPED.torch.releases, key=lambda item: item.date).version)
    assert {row["branch"] for row in rows("vgpu", "17")} == {"R550"}
    assert all("535.129.03" in (row["guest"], row["host"]) for row in rows("vgpu", "--driver", "535.129.03"))
    (bullseye,) = [item for item in SHIPPED.os.systems if item.id == "debian11"]
    known = [row["driver"] for row in rows("driver", ">=400") if int(row["branch"][1:]) <= bullseye.last_branch]
    assert [row["driver"] for row in rows("driver", ">=400", "--os", "debian11")] == known


@pytest.mark.parametrize(
    ("words", "option"), [("os --gpu h100", "--gpu"), ("vgpu --os jammy", "--os"), ("gpu --native", "--native")]
)
def test_an_option_that_a_table_has_nothing_to_do_with_is_refused(words, option):
    code, out, err = ask(*words.split())
    assert (code, out) == (3, "")
    assert f"cannot be narrowed by {option} [GS-135]" in err


def test_the_newest_cuda_for_a_driver_is_a_sentence():
    code, out, err = ask("--driver", "550.54")
    assert code == 0
    assert "driver 550.54 is taken for 550.54.14" in err
    told = " ".join(out.split("\n\n")[0].split())
    assert "CUDA 12.4.0 is the newest that it supports itself; up to CUDA 12.9.2 runs" in told
    assert told.startswith("Driver 550.54.14 (R550): ")
    document = json.loads(ask("--driver", "550.54.15", "--format", "json")[1])
    assert document["conclusion"].startswith("Driver 550.54.15 (R550): CUDA 12.4.1 is the newest")
    assert len(document["rows"]) > len(out.splitlines()), "the text has one release of each minor, JSON has all"
    whole = ask("cuda", "--driver", "535.154.05")[1]
    assert "CUDA 12.2.2 is the newest that it supports itself" in whole
    assert "12.9.1" in whole, "who asks for CUDA by name sees every release"
    assert ask("cuda", "--driver", "580.178.04", "--native")[1].split("itself")[1][0] == "."


@pytest.mark.parametrize(
    ("name", "arch", "cc", "product", "beside"), stored_rows("the-answer-says-what-a-name-was-taken-fo.json")
)
def test_the_answer_says_what_a_name_was_taken_for(printed, says, name, arch, cc, product, beside):
    for command in ("matrix", "resolve"):
        words = (0, command, "torch", "--gpu", name)
        (taken,) = printed(*words)["gpus"]
        assert (taken["asked"], taken["architecture"], taken["compute_capability"]) == (name, arch, cc)
        assert product in taken["products"]
        assert f"GPU {name}: {arch}{beside}, compute capability {cc}" in says(*words)


def test_every_component_tells_its_newest_version_and_how_long_ago_its_sources_were_read():
    found = {row["component"]: row for row in rows("--age")}
    assert {f"frameworks/{name}" for name in found} >= set(package_files())
    torch = max(SHIPPED.torch.releases, key=lambda release: Version(release.version))
    assert (found["torch"]["newest"], found["torch"]["published"]) == (torch.version, torch.date)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    assert found["torch"]["days"] == (today - dt.date.fromisoformat(found["torch"]["read"])).days


def _said(says, *words):
    """Return what is said before the day of the matrix, with which each answer ends."""
    said, mark, day = says(0, "matrix", *words).rpartition(" matrix of ")
    assert (mark, day) == (" matrix of ", str(matrix().date))
    return said


@pytest.mark.parametrize(("words", "mark", "reason"), stored_rows("the-chosen-row-is-marked-and-says-why.json"))
def test_the_chosen_row_is_marked_and_says_why(says, words, mark, reason):
    said = _said(says, *words.split())
    assert mark in said
    version = mark.partition(" ")[0]
    assert said.endswith(f"* {version} is what `gpusetup resolve` chooses; {reason}")


def test_the_newest_row_needs_no_reason_and_one_row_no_mark(says):
    assert _said(says, "cupy").endswith("* 14.2.0 is what `gpusetup resolve` chooses")
    assert "*" not in _said(says, "torch==2.6.*", "--arch", "aarch64")


def test_a_word_that_names_a_table_is_obeyed_beside_other_requirements():
    assert {"R580", "R570"} & {row["branch"] for row in rows("driver", "cuda==13.*", "--gpu", "t4")} == {"R580"}
    assert [row["cudnn"][:3] for row in rows("cudnn==8.9.*", "cuda==11.*")[:1]] == ["8.9"]
    assert "cuda==13.* with v100" in ask("driver", "cuda==13.*", "--gpu", "v100")[2]
