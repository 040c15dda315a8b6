"""Bandwidths and collectives: what is slow, wrong or impossible."""

import pytest

from tests.unit.verify.verify_documents import captured, differences, results, verdicts


def test_one_slow_pass_is_not_a_failure_and_two_are():
    document = captured("h200-x1-full")
    document["sections"]["memory"]["0"]["copy"] = [2000.0, 4280.0]
    assert verdicts(document)["memory.copy"] == "pass"
    document["sections"]["memory"]["0"]["copy"] = [2000.0, 2010.0]
    found = results(document)["memory.copy"]
    assert found.verdict == "fail"
    assert (found.measured, found.limit) == (2010.0, pytest.approx(3466, abs=2))


def test_warn_and_fail_are_different():
    document = captured("h200-x1-full")
    document["sections"]["pcie"]["0"]["nodes"]["0"]["h2d"] = [45.0, 45.2]
    assert verdicts(document)["pcie.h2d"] == "warn"
    document["sections"]["pcie"]["0"]["nodes"]["0"]["h2d"] = [25.0, 25.2]
    assert verdicts(document)["pcie.h2d"] == "fail"


def test_more_than_the_hardware_can_do_is_a_wrong_measurement():
    document = captured("h200-x1-full")
    document["sections"]["matrix"]["0"]["formats"]["bf16"]["tflops"] = [82545.9, 95100.3]
    found = results(document)["matrix.bf16"]
    assert found.verdict == "fail"
    assert "measurement is invalid" in found.text


def test_data_that_arrives_wrong():
    healthy, broken = captured("h200-x4-full"), captured("h200-x4-full")
    broken["sections"]["peer"]["wrong"][1][2] = 512
    assert differences(healthy, broken) == {"p2p.access": "fail"}
    broken = captured("h200-x4-full")
    group = broken["sections"]["nccl"]["groups"][-1]
    group["ranks"]["2"]["results"][3]["wrong"] = 4
    assert differences(healthy, broken) == {"nccl.all-reduce": "fail"}


def test_an_nvlink_pair_without_access():
    healthy, broken = captured("h200-x4-full"), captured("h200-x4-full")
    broken["sections"]["peer"]["access"][0][3] = False
    assert differences(healthy, broken) == {"p2p.access": "fail"}


def test_a_slow_pair_is_found_in_the_matrix():
    healthy, broken = captured("h200-x4-full"), captured("h200-x4-full")
    broken["sections"]["peer"]["write"][2][1] = [210.0, 212.0]
    assert differences(healthy, broken) == {"p2p.write": "fail"}
    assert "GPU 2 → GPU 1" in results(broken)["p2p.write"].text


def test_a_slow_collective_fails_at_large_messages_and_warns_at_small_ones():
    healthy = captured("h200-x4-full")
    for size, verdict in ((4 << 30, "fail"), (16 << 20, "warn")):
        broken = captured("h200-x4-full")
        for rank in broken["sections"]["nccl"]["groups"][-1]["ranks"].values():
            for part in rank["results"]:
                if part["collective"] == "all_reduce" and part["bytes"] == size:
                    part["bus"] = [value / 2.5 for value in part["bus"]]
        assert differences(healthy, broken) == {"nccl.all-reduce": verdict}, size


def test_a_rank_that_hangs():
    document = captured("h200-x4-full")
    document["sections"]["nccl"]["groups"][-1]["ranks"]["3"] = {"error": "timeout", "deadline": 120, "message": "x"}
    found = results(document)["nccl.all-gather"]
    assert found.verdict == "fail"
    assert "120 s" in found.text


def test_a_worker_that_was_stopped_on_a_real_gpu_costs_its_own_measurement_alone():
    """Captured on two GPUs while the first worker was stopped (SIGSTOP) during the matrix products."""
    found = results(captured("h200-x2-worker-stopped"))
    failed = {name for name, result in found.items() if result.verdict == "fail"}
    assert failed == {"matrix.bf16", "matrix.fp16", "matrix.fp32", "matrix.tf32"}
    assert "no answer within 6 s" in found["matrix.bf16"].text
    assert found["nccl.all-reduce"].verdict == "pass", "a new worker took part"


def test_a_busy_gpu_is_measured_gently_and_not_judged():
    found = results(captured("h200-x1-busy"))
    assert found["gpu.idle"].verdict == "warn"
    assert found["memory.copy"].verdict == "warn"
    assert "low load" in found["memory.copy"].text
    assert found["cupy.kernel"].verdict == "pass"


def test_memory_that_is_full_of_somebodys_job():
    found = results(captured("h200-x1-memory-full"))
    assert (found["cuda.context"].verdict, found["cuda.context"].blame) == ("warn", "job")
    assert "another job" in found["cuda.context"].text
    assert found["cupy.kernel"].verdict == "skip"


def test_a_device_file_that_is_not_the_drivers():
    found = results(captured("h200-x1-no-device"))
    assert found["device.files"].verdict == found["cuda.context"].verdict == found["gpu.count"].verdict == "fail"
    assert "uses no GPU" in found["driver.responds"].text


def test_between_hosts():
    document = captured("h200-x4-full")
    assert verdicts(document)["nccl.hosts"] == "skip"
    document["sections"]["hosts"] = captured("h200-x4-hosts-first")["sections"]["hosts"]
    found = results(document)["nccl.hosts"]
    assert found.verdict == "pass"
    assert "Socket" in found.text
    document["sections"]["hosts"]["ranks"]["0"]["results"][0]["wrong"] = 3
    assert verdicts(document)["nccl.hosts"] == "fail"
    document["sections"]["hosts"] = {"error": "unreachable", "message": "gpu1 did not hand out NCCL's id within 60 s"}
    assert verdicts(document)["nccl.hosts"] == "fail"
