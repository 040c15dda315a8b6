"""Bandwidths and collectives: what is slow, wrong or impossible; a fault that changes one verdict is a row of the runs."""

import pytest

from tests.unit.verify.verify_documents import broken, captured, differences, results, verdicts

FULL, FOUR = "h200-x1-full", "h200-x4-full"
COPY, PCIE = "sections/memory/0/copy", "sections/pcie/0/nodes/0/h2d"
BF16, RANK = "sections/matrix/0/formats/bf16/tflops", "sections/nccl/groups/-1/ranks/3"


@pytest.mark.parametrize(
    ("on", "path", "value", "check", "verdict", "says"),
    [
        (FULL, COPY, [2000.0, 4280.0], "memory.copy", "pass", ""),  # one slow pass is not a failure and two are
        (FULL, COPY, [2000.0, 2010.0], "memory.copy", "fail", ""),
        (FULL, PCIE, [45.0, 45.2], "pcie.h2d", "warn", ""),
        (FULL, PCIE, [25.0, 25.2], "pcie.h2d", "fail", ""),
        (FULL, BF16, [82545.9, 95100.3], "matrix.bf16", "fail", "measurement is invalid"),  # no hardware can do that
        (FOUR, RANK, {"error": "timeout", "deadline": 120, "message": "x"}, "nccl.all-gather", "fail", "120 s"),
    ],
)
def test_what_is_slow_impossible_or_hangs(on, path, value, check, verdict, says):
    found = results(broken(on, {path: value}))[check]
    assert (found.verdict, says in found.text) == (verdict, True), found.text


def test_a_bad_figure_is_told_with_its_limit():
    found = results(broken(FULL, {COPY: [2000.0, 2010.0]}))["memory.copy"]
    assert (found.measured, found.limit) == (2010.0, pytest.approx(3466, abs=2))


@pytest.mark.parametrize(("size", "verdict"), [(4 << 30, "fail"), (16 << 20, "warn")])
def test_a_slow_collective_fails_at_large_messages_and_warns_at_small_ones(size, verdict):
    document = captured(FOUR)
    for rank in document["sections"]["nccl"]["groups"][-1]["ranks"].values():
        for part in rank["results"]:
            if part["collective"] == "all_reduce" and part["bytes"] == size:
                part["bus"] = [value / 2.5 for value in part["bus"]]
    assert differences(captured(FOUR), document) == {"nccl.all-reduce": verdict}


def test_a_worker_that_was_stopped_on_a_real_gpu_costs_its_own_measurement_alone():
    """Captured on two GPUs while the first worker was stopped (SIGSTOP) during the matrix products."""
    found = results(captured("h200-x2-worker-stopped"))
    failed = {name for name, result in found.items() if result.verdict == "fail"}
    assert failed == {"matrix.bf16", "matrix.fp16", "matrix.fp32", "matrix.tf32"}
    assert "no answer within 6 s" in found["matrix.bf16"].text
    assert found["nccl.all-reduce"].verdict == "pass", "a new worker took part"


@pytest.mark.parametrize(
    ("on", "told", "check", "says"),
    [
        ("h200-x1-busy", "gpu.idle warn, memory.copy warn, cupy.kernel pass", "memory.copy", "low load"),
        ("h200-x1-memory-full", "cuda.context warn, cupy.kernel skip", "cuda.context", "another job"),
        ("h200-x1-no-device", "device.files fail, cuda.context fail, gpu.count fail", "driver.responds", "uses no GPU"),
    ],
)
def test_machines_that_were_busy_full_or_without_their_device(on, told, check, says):
    found = results(captured(on))
    assert ", ".join(f"{pair.split()[0]} {found[pair.split()[0]].verdict}" for pair in told.split(", ")) == told
    assert says in found[check].text
    assert on != "h200-x1-memory-full" or found["cuda.context"].blame == "job"


def test_between_hosts():
    document = captured(FOUR)
    assert verdicts(document)["nccl.hosts"] == "skip"
    document["sections"]["hosts"] = captured("h200-x4-hosts-first")["sections"]["hosts"]
    found = results(document)["nccl.hosts"]
    assert (found.verdict, "Socket" in found.text) == ("pass", True)
    document["sections"]["hosts"]["ranks"]["0"]["results"][0]["wrong"] = 3
    assert verdicts(document)["nccl.hosts"] == "fail"
    document["sections"]["hosts"] = {"error": "unreachable", "message": "gpu1 did not hand out NCCL's id within 60 s"}
    assert verdicts(document)["nccl.hosts"] == "fail"
