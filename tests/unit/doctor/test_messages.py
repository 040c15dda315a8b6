"""Messages, numbers and logs: what is recognised, decoded, left out and counted."""

import io

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.advice import api_version, capability
from gpusetup.doctor.builds import compiles, cuda_of_driver, needs_driver, runs, torch_build
from gpusetup.doctor.findings import diagnose_chunks, diagnose_text
from gpusetup.doctor.logs import read_pieces
from gpusetup.doctor.scan import scan
from tests.unit.doctor.score import WORDINGS, named, score


def causes(text):
    return [finding.cause for finding in diagnose_text(text)]


def test_an_old_driver_is_decoded_to_branch_and_builds():
    (found,) = diagnose_text("The NVIDIA driver on your system is too old (found version 11040).")
    assert found.cause == "driver-too-old"
    for word in ("11.4", "R470", "+cu118", "525.60.13"):
        assert word in " ".join(found.details)


@pytest.mark.parametrize(("asked", "cause"), WORDINGS["bare numbers"])
def test_bare_numbers(asked, cause):
    assert causes(asked)[:1] == ([cause] if cause else [])


def test_numbers():
    assert [api_version(number) for number in (11040, 13000)] == ["11.4", "13.0"]
    texts = ("sm_90a", "compute_120", "8.6", "Ampere")
    assert [capability(text) for text in texts] == ["9.0", "12.0", "8.6", None]


def test_what_runs_on_a_driver():
    assert cuda_of_driver("470.256.02") == "11.4"
    assert needs_driver("12.4") == "525.60.13"
    assert runs("11.8", "470.256.02")
    assert not runs("12.1", "470.256.02")
    assert not runs("12.0", "525.60.11"), "older than the first driver for CUDA 12, though of its branch"
    assert runs("12.8", "525.60.13")
    assert not compiles("12.8", "525.60.13"), "runs, but its PTX is newer than the driver"
    assert compiles("13.0", "580.159.04")
    assert not compiles("13.3", "580.159.04")
    assert compiles("13.0", "999.10"), "a driver newer than the matrix is at least as new as its newest branch"


def test_torch_without_a_suffix_is_the_build_that_pypi_has_for_the_processor():
    assert [getattr(torch_build("2.14.0", arch), "variant", "") for arch in ("x86_64", "aarch64")] == ["cu130"] * 2
    assert [torch_build(text, "aarch64") is None for text in ("2.10.0", "2.10.0+cu128")] == [True, False]


def test_pytorchs_warning_is_known_without_its_beginning():
    assert "12.0 is Blackwell" in str(diagnose_text("sm_120 is not compatible with the current PyTorch installation"))


def test_a_symptom_has_a_line_that_no_cause_has():
    known = "CUDA error: no kernel image is available"
    assert causes(known) == ["no-kernel-image"]
    assert causes(f"{known}\nRuntimeError: CUDA error: some other text") == ["no-kernel-image", "cuda-error"]


def test_matches_are_counted_and_have_their_first_line():
    text = "ok\n" * 10 + "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n" * 100
    (match,) = [match for match in scan(text) if match.cause == "gpu-fallen-off-bus"]
    assert (match.line, match.times) == (11, 100)


def test_broken_bytes_and_endless_lines():
    raw = b"\xfe\xfd\x00" * 1000 + b"x" * 3_000_000 + b" Failed to initialize NVML: Driver/library version mismatch"
    (found,) = diagnose_chunks(read_pieces(io.BytesIO(raw)))
    assert found.cause == "nvml-version-mismatch"
    assert found.evidence[0].endswith(" Failed to initialize NVML: Driver/library version mismatch")
    assert len(found.evidence[0]) < 500


@pytest.mark.parametrize(("name", "missed", "wrong"), WORDINGS["missed of a set"])
def test_a_set_stays_named(name, missed, wrong):
    found = score(name)
    assert len(found.missed) <= missed, found.missed
    assert found.wrong <= wrong


@pytest.mark.parametrize(
    ("cause", "wordings", "words"), WORDINGS["of a class"], ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_rule_holds_for_its_whole_class(cause, wordings, words):
    lines = [wording.format(word) for wording in wordings for word in words]
    assert [(line, named(line)) for line in lines] == [(line, cause) for line in lines]


@pytest.mark.parametrize("line", WORDINGS["of no rule"])
def test_a_rule_leaves_what_is_not_its_own(line):
    assert named(line) is None


@pytest.mark.parametrize(("symbol", "cause"), WORDINGS["of a symbol"])
def test_a_symbol_tells_its_library(symbol, cause):
    assert named(f"ImportError: /opt/env/x.so: undefined symbol: {symbol}") == cause


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
