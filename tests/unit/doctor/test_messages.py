"""Messages, numbers and logs: what is recognised, decoded, left out and counted."""

import gzip
import html
import io
import json
import re

import pytest

from gpusetup.doctor.advice import api_version, bare_numbers, capability
from gpusetup.doctor.builds import compiles, cuda_of_driver, needs_driver, runs, torch_build
from gpusetup.doctor.findings import diagnose_chunks, diagnose_text
from gpusetup.doctor.logs import Log, read_pieces
from gpusetup.doctor.patterns import Expression, one_line
from gpusetup.doctor.scan import scan
from tests.unit.doctor.score import WORDINGS


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


def test_a_number_in_a_sentence_is_no_message():
    assert bare_numbers("the loss after 802 steps") == bare_numbers("we have 79 machines") == []


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


COPIES = {
    "of a forum": lambda text: text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}").replace(" ", "\N{NO-BREAK SPACE}"),
    "of a word processor": lambda text: re.sub(
        r'"([^"]*)"', "\N{LEFT DOUBLE QUOTATION MARK}\\1\N{RIGHT DOUBLE QUOTATION MARK}", text
    ),
    "of a page's source": html.escape,
    "in JSON": json.dumps,
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "in JSON of Go": lambda text: json.dumps(text).replace(">", r"\u003e"),
    "in quotes": lambda text: "'" + text.replace("'", r"\'") + "'",
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_message_is_the_message(copied):
    for told, cause in (
        ("host doesn't support passthrough of host PCI devices", "passthrough-not-ready"),
        ('exec: "nvidia-smi": executable file not found in $PATH', "smi-missing"),
        ("libcuda.so.1 => not found", "libcuda-missing"),
    ):
        assert cause in causes(copied(told)), told
        raw = copied(told).encode()
        for cut in range(0, len(raw), 9):
            assert cause in [found.cause for found in diagnose_chunks(iter((raw[:cut], raw[cut:])))]


def test_a_symptom_has_a_line_that_no_cause_has():
    known = "CUDA error: no kernel image is available"
    assert causes(known) == ["no-kernel-image"]
    assert causes(f"{known}\nRuntimeError: CUDA error: some other text") == ["no-kernel-image", "cuda-error"]


def test_the_root_hides_what_it_explains():
    text = "RuntimeError: No CUDA GPUs are available\nCUDA initialization: Error 802: system not yet initialized"
    assert causes(text)[0] == "fabric-not-ready"
    assert "no-cuda-device" not in causes(text)


def test_short_texts_of_errors_need_cuda_beside_them():
    assert causes("slurmstepd: error: Detected 1 oom-kill event, out of memory") == []
    assert causes("mysql: unknown error") == []
    assert causes("CUDA error: out of memory") == ["out-of-memory"]


def test_a_message_broken_over_lines_with_prefixes():
    text = (
        "[  903.609564] NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b06)\n"
        "[  903.609564] NVRM: installed in this system is not supported by the\n"
        "[  903.609564] NVRM: NVIDIA 590.44.01 driver release.\n"
    )
    assert one_line("[  1.0] NVRM: one\n[  1.1] NVRM: two") == "one two"
    prefixes = ["[rank0]: ", "Nov 01 10:11:12 node7 python3[12]: ", "(Engine pid=12, ip=10.0.0.2) ", "vllm-1  | "]
    for before in (*prefixes, "[  1.0] [   T12] "):
        assert one_line(f"{before}one\n{before}two") == "one two"
    assert "gpu-not-supported-by-driver" in causes(text)
    (found,) = diagnose_text(f"ok\n{'x' * 60} host doesn't support\npassthrough of host PCI devices")
    assert (found.cause, found.line) == ("passthrough-not-ready", 2)


def test_matches_are_counted_and_have_their_first_line():
    text = "ok\n" * 10 + "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n" * 100
    (match,) = [match for match in scan(text) if match.cause == "gpu-fallen-off-bus"]
    assert (match.line, match.times) == (11, 100)


def test_chunks_do_not_cut_messages_and_count_lines_on(monkeypatch):
    monkeypatch.setattr("gpusetup.doctor.logs.PIECE", 64)
    raw = b"noise noise noise noise\n" * 20 + b"docker: Error response from daemon: Unknown runtime specified nvidia.\n"
    for stream in (io.BytesIO(raw), io.BytesIO(gzip.compress(raw))):
        (found,) = diagnose_chunks(read_pieces(stream))
        assert (found.cause, found.line) == ("docker-runtime-unknown", 21)


def test_broken_bytes_and_endless_lines():
    raw = b"\xfe\xfd\x00" * 1000 + b"x" * 3_000_000 + b" Failed to initialize NVML: Driver/library version mismatch"
    (found,) = diagnose_chunks(read_pieces(io.BytesIO(raw)))
    assert found.cause == "nvml-version-mismatch"
    assert found.evidence[0].endswith(" Failed to initialize NVML: Driver/library version mismatch")
    assert len(found.evidence[0]) < 500


def test_a_log_on_one_line_is_read_as_quickly_as_one_of_many():
    """Each part of the line is judged once, however often it has the message."""
    tried, real = [], Expression.fits
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Expression, "fits", lambda one, place: tried.append(one) or real(one, place))
        line = " ".join(f"RuntimeError: CUDA error: out of memory at {at}" for at in range(9000))
        assert causes(line)[0] == "out-of-memory"
    assert len(tried) < len(line) / 100


def test_nothing_in_nothing():
    assert diagnose_text("") == ()
    assert diagnose_chunks(read_pieces(io.BytesIO(b""))) == ()


def test_lines_that_differ_in_digits_only_are_searched_once(monkeypatch):
    searched = list[str]()
    monkeypatch.setattr("gpusetup.doctor.logs.names_gpu", searched.append)
    list(Log(iter([b"".join(b"step %d\n" % step for step in range(5000))])).pieces())
    assert len("".join(searched)) < 100
