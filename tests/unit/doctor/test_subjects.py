"""Messages by subject: the open half is right, rules hold for whole classes, a text says the same however it comes."""

import json
from hashlib import sha256

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.scan import NEAR, another_module
from gpusetup.model.diagnosis import CompanionFile
from tests.unit.doctor.score import FIXTURES, WORDINGS, entries, named, score

COMPANIONS = msgspec.json.decode(read_table("companions.json"), type=CompanionFile).companions


@pytest.mark.parametrize(("name", "missed", "wrong"), WORDINGS["missed of a set"])
def test_a_set_stays_named(name, missed, wrong):
    found = score(name)
    assert len(found.missed) <= missed, found.missed
    assert found.wrong <= wrong


@pytest.mark.parametrize("name", ["subjects", "messages"])
def test_the_halves_are_split_by_the_seeded_hash(name):
    for half, file in enumerate(("open", "held")):
        told = json.loads((FIXTURES / f"{name}_{file}.json").read_text(encoding="utf-8"))
        for entry in told["entries"]:
            number = int(sha256((told["seed"] + entry["thread"]).encode()).hexdigest(), 16)
            assert number % 2 == half, entry["thread"]


@pytest.mark.parametrize("companion", COMPANIONS, ids=lambda one: one.package)
def test_every_companion_is_known_in_every_wording(companion):
    for module in companion.modules:
        assert named(f"ModuleNotFoundError: No module named '{module}'") == "torch-abi-mismatch"
        assert named(f"ImportError: No module named {module}") == "torch-abi-mismatch"
        assert named(f"ModuleNotFoundError: No module named '{module}_other'") is None
    for name in {companion.package, companion.package.replace("-", "_")}:
        assert named(f"  ERROR: Failed building wheel for {name}") == "nvcc-failed"
        assert named(f"ERROR: Failed building wheel for {name}x") is None


@pytest.mark.parametrize(
    ("cause", "wordings", "words"), WORDINGS["of a class"], ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_rule_holds_for_its_whole_class(cause, wordings, words):
    lines = [wording.format(word) for wording in wordings for word in words]
    assert [(line, named(line)) for line in lines] == [(line, cause) for line in lines]


@pytest.mark.parametrize("line", WORDINGS["of no rule"])
def test_a_rule_leaves_what_is_not_its_own(line):
    assert named(line) is None


@pytest.mark.parametrize("module", ["zfs", "v4l2loopback", "rtl8852bu", "wireguard"])
def test_another_modules_build_is_not_nvidias(module):
    build = f"Error! Bad return status for module build on kernel: 6.8.0 (x86_64)\nsee /var/lib/dkms/{module}/1.2/build/make.log"
    assert named(build) is None
    assert named(build.replace(module, "nvidia")) == "dkms-build-failed"
    assert all(another_module(cause, build) for cause in NEAR)
    assert not another_module("gpu-lost", build)


@pytest.mark.parametrize(("symbol", "cause"), WORDINGS["of a symbol"])
@pytest.mark.parametrize("wording", ["undefined symbol: {}", "undefined symbol {}"])
def test_a_symbol_tells_its_library(symbol, cause, wording):
    assert named(f"ImportError: /opt/env/x.so: {wording.format(symbol)}") == cause


def test_the_firmware_file_and_its_package_are_named(says):
    said = says(0, "doctor", "Direct firmware load for nvidia/550.76/gsp_ga10x.bin failed with error -2")
    assert "/lib/firmware/nvidia/550.76/gsp_ga10x.bin" in said
    assert "nvidia-firmware-550-550.76" in said


@pytest.mark.parametrize(
    "text",
    [
        "hello", "hello\nworld, all good", "NCCL INFO Connected all trees\nNCCL INFO Init COMPLETE", "Xid 79",
        "CUDA error: out of memory", "Permission denied (publickey).", "some error that nobody knows", "GS-324", "CVE-2025-23266",
        *(entry["text"] for entry in entries("subjects_open")[::9]),
    ],
)  # fmt: skip
def test_a_text_says_the_same_as_an_argument_and_as_a_file(text, tmp_path, capsys):
    by_argument = main(["doctor", text]), capsys.readouterr().out
    for mark in ("", "\ufeff"):  # Windows begins a file with it
        (tmp_path / "log").write_text(mark + text, encoding="utf-8")
        assert (main(["doctor", "--text", str(tmp_path / "log")]), capsys.readouterr().out) == by_argument


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)) * 20, "this is not text"),
        (b"hello\nworld\n", "no line of this text is known"),
    ],
)
def test_healthy_is_said_only_of_what_is_known(raw, words, tmp_path, capsys):
    log = tmp_path / "log"
    log.write_bytes(raw)
    assert main(["doctor", "--text", str(log)]) == 3
    told = capsys.readouterr()
    assert words in " ".join((told.out + told.err).split())
    assert "healthy" not in told.out
