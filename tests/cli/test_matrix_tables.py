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


def test_drivers_are_the_newest_of_each_branch_or_the_releases_of_one():
    newest = rows("driver")
    assert len({row["branch"] for row in newest}) == len(newest)
    branch = {item.branch: item for item in SHIPPED.driver.branches}[580]
    for words in ("driver 580.*", "driver==580.*", "driver 580", "R580", "driver R580", "nvidia-driver-580"):
        found = rows(*words.split())
        assert {row["branch"] for row in found} == {"R580"}
        assert found[0]["driver"] == branch.latest
        assert len(found) == sum(item.branch == 580 and item.platform == "linux" for item in SHIPPED.driver.versions)


def test_drivers_for_a_gpu():
    branches = [int(row["branch"][1:]) for row in rows("driver", "--gpu", "v100")]
    assert max(branches) == 580
    assert all("open" not in row["modules"] for row in rows("driver", "--gpu", "v100"))
    assert min(int(row["branch"][1:]) for row in rows("driver", "--gpu", "b200")) >= 570
    assert all(row["modules"] == ["open"] for row in rows("driver", "--gpu", "b200"))


def test_libraries_are_filtered_by_the_rules():
    versions = [row["cudnn"].split(".") for row in rows("cudnn", "--gpu", "v100")]
    assert max(int(minor) for major, minor, *_ in versions if major == "9") == 10
    assert all(row["nccl"] and row["cuda"].split(".")[0] == "12" for row in rows("nccl", "cuda==12.*"))
    for row in rows("nccl", "--gpu", "h100"):
        assert "9.0" in row["archs"] or row["ptx"] or row["kind"] == "package"


def test_what_is_not_known_of_a_gpu_has_no_unit():
    _, text, _ = ask("gpu", "Tesla K10")
    lines = dict(line.split(None, 1) for line in text.splitlines() if line and line[0] != " ")
    assert [lines[name] for name in ("memory", "bandwidth", "power")] == ["?"] * 3


def test_a_gpu_with_all_that_is_known():
    (row,) = rows("gpu", "H200 SXM")
    assert (row["architecture"], row["cc"], row["memory_gb"], row["bandwidth_gbs"]) == ("Hopper", "9.0", 141, 4800)
    assert all(source.startswith("https://") for source in row["figures_sources"])
    _, text, _ = ask("gpu", "h200", "sxm")
    assert "4,800 GB/s" in text
    assert "FP8           1,979 TFLOP/s dense" in text
    (old,) = rows("gpu", "Tesla P4")
    assert (old["driver_last"], old["fp8"], old["power_w"]) == ("R580", 0, None)
    assert "?" in ask("gpu", "Tesla P4")[1]
    assert [rows("gpu", name)[0]["cuda_first"] for name in ("Tesla K80", "A40", "B300")] == ["6.0", "11.1", "12.9"]


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


def test_where_the_files_are_is_a_document_too():
    document = json.loads(ask("--data", "--format", "json")[1])
    assert document["ok"] is True
    assert document["files"]["gpus"] == SHIPPED.path("gpus")
    assert ask("--data")[1].splitlines() == list(document["files"].values())


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


def test_a_name_that_differs_in_what_the_rules_ask_is_refused_by_capability(says):
    told = says(3, "resolve", "torch", "--gpu", "blackwell")
    assert "B200 (10.0)" in told
    assert told.endswith("--gpu sm_100 or sm_103 or sm_120")
    says(3, "resolve", "torch", "--gpu", "gb")


def test_every_component_tells_its_newest_version_and_how_long_ago_its_sources_were_read():
    found = {row["component"]: row for row in rows("--age")}
    assert set(found) >= {"driver", "cuda", "cudnn", "nccl", "torch", "tensorflow", "jax", "cupy"}
    assert {f"frameworks/{name}" for name in found} >= set(package_files())
    torch = max(SHIPPED.torch.releases, key=lambda release: Version(release.version))
    assert (found["torch"]["newest"], found["torch"]["published"]) == (torch.version, torch.date)
    told = ask("--age")[1]
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    for row in found.values():
        assert row["days"] == (today - dt.date.fromisoformat(row["read"])).days
        assert row["newest"] in told
    assert ask("torch", "--age")[0] == 3


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


def test_documents_name_the_chosen_row(printed):
    rows = printed(0, "matrix", "cuda", "driver==580.*")["rows"]
    assert [row["chosen"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert rows[0]["because"].startswith("not CUDA ")


def test_a_table_that_is_shortened_names_the_command_for_all_of_it(says):
    assert _said(says, "--driver", "535.154.05").endswith("all of them: gpusetup matrix cuda --driver 535.154.05")


def test_a_word_that_names_a_table_is_obeyed_beside_other_requirements():
    assert {"R580", "R570"} & {row["branch"] for row in rows("driver", "cuda==13.*", "--gpu", "t4")} == {"R580"}
    assert [row["cudnn"][:3] for row in rows("cudnn==8.9.*", "cuda==11.*")[:1]] == ["8.9"]
    assert "cuda==13.* with v100" in ask("driver", "cuda==13.*", "--gpu", "v100")[2]
