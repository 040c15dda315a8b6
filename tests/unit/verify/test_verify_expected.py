"""Expected figures against what reference tools and vendors say of the same machines."""

import json
import re
from statistics import mean

import pytest

from gpusetup.recovery.table import catalogue
from gpusetup.verify import expected
from tests.unit.verify.verify_documents import FIXTURES, captured, results

H200 = {
    "memory_bus_bits": 6016,
    "memory_clock_khz": 3201000,
    "multiprocessors": 132,
    "clock_khz": 1980000,
    "compute_capability": "9.0",
}
TOOLS = FIXTURES / "reference-tools"
NVLINK = 18 * 26.562


def _nccl_tests(name):
    """Bus bandwidth by size, the better of out-of-place and in-place."""
    rows = {}
    for line in (TOOLS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if re.match(r"\s+\d+\s+\d+\s+float", line):
            cells = line.split()
            rows[int(cells[0])] = max(float(cells[7]), float(cells[11]))
    return rows


def _nvbandwidth(test):
    """Every cell of one of its matrices."""
    text = (TOOLS / "nvbandwidth_8.txt").read_text(encoding="utf-8")
    block = text.split(f"Running {test}.")[1].split("SUM")[0]
    return [
        float(cell)
        for line in block.splitlines()
        if re.match(r" \d ", line)
        for cell in line.split()[1:]
        if cell != "N/A"
    ]


def test_memory_bandwidth_is_the_datasheets():
    assert expected.memory("memory.copy", H200).theory == pytest.approx(4800, rel=0.01)
    l40s = {"memory_bus_bits": 384, "memory_clock_khz": 9001000}
    assert expected.memory("memory.copy", l40s).theory == pytest.approx(864, rel=0.01)
    t4 = {"memory_bus_bits": 256, "memory_clock_khz": 5001000}
    assert expected.memory("memory.copy", t4).theory == pytest.approx(320, rel=0.01)
    assert expected.memory("memory.copy", {"memory_bus_bits": None, "memory_clock_khz": None}) is None


def test_matrix_rates_are_the_datasheets_at_the_boost_clock():
    at_boost = H200 | {"clock_khz": 1830000}
    assert expected.matrix_rate("bf16", at_boost).theory == pytest.approx(989, rel=0.01)
    assert expected.matrix_rate("tf32", at_boost).theory == pytest.approx(494, rel=0.01)
    a100 = {"multiprocessors": 108, "clock_khz": 1410000, "compute_capability": "8.0"}
    assert expected.matrix_rate("fp16", a100).theory == pytest.approx(312, rel=0.01)
    assert expected.matrix_rate("bf16", a100 | {"compute_capability": "8.6"}) is None, "not known is not guessed"


@pytest.mark.parametrize(
    ("test", "figure"),
    [("device_to_device_memcpy_write_ce", "p2p.write"), ("device_to_device_memcpy_read_ce", "p2p.read")],
)
def test_peer_copies_as_nvbandwidth_measures_them(test, figure):
    bound = expected.link(figure, NVLINK, 26.562)
    assert bound.expected == pytest.approx(mean(_nvbandwidth(test)), rel=0.01)
    assert bound.fail < bound.warn < min(_nvbandwidth(test))


def test_host_copies_as_nvbandwidth_measures_them():
    for test, figure in (("host_to_device_memcpy_ce", "pcie.h2d"), ("device_to_host_memcpy_ce", "pcie.d2h")):
        assert expected.pcie(figure, 5, 16).expected == pytest.approx(mean(_nvbandwidth(test)), rel=0.01)


@pytest.mark.parametrize(
    ("name", "collective"),
    [("all_reduce_8", "all_reduce"), ("all_gather_8", "all_gather"), ("reduce_scatter_8", "reduce_scatter")],
)
def test_collectives_as_nccl_tests_measures_them(name, collective):
    """At 4 GiB the expectation is the figure; below, it is no more than the figure."""
    for size, measured in _nccl_tests(name).items():
        bound = expected.collective(collective, 8, size, NVLINK, nvls=False, nvlink=True)
        assert measured > bound.warn, size
        if size == 4 << 30:
            assert bound.expected == pytest.approx(measured, rel=0.02)


def test_nvls_helps_above_four_gpus_only():
    ring = expected.collective("all_reduce", 8, 4 << 30, NVLINK, nvls=False, nvlink=True)
    nvls = expected.collective("all_reduce", 8, 4 << 30, NVLINK, nvls=True, nvlink=True)
    assert nvls.expected == pytest.approx(480, rel=0.02)
    assert nvls.expected > 1.25 * ring.expected
    four = [expected.collective("all_reduce", 4, 4 << 30, NVLINK, nvls=nvls, nvlink=True) for nvls in (True, False)]
    assert four[0] == four[1]


def test_expectations_grow_with_the_message_and_the_link():
    sizes = [1 << power for power in range(16, 34)]
    figures = [expected.collective("all_reduce", 8, size, NVLINK, nvls=False, nvlink=True).expected for size in sizes]
    assert figures == sorted(figures)
    half = expected.collective("all_reduce", 8, 4 << 30, NVLINK / 2, nvls=False, nvlink=True).expected
    assert half == pytest.approx(figures[sizes.index(4 << 30)] / 2, rel=0.01)


def test_our_checks_reach_what_the_reference_tools_reach():
    """On machines of the same kind; three per cent is the difference allowed to a good check."""
    for name, groups in (("all_reduce_2", 2), ("all_reduce_4", 4)):
        ours = next(
            group for group in captured("h200-x4-full")["sections"]["nccl"]["groups"] if group["world"] == groups
        )
        rank = ours["ranks"]["0"]["results"]
        for size, reference in _nccl_tests(name).items():
            mine = [max(part["bus"]) for part in rank if part["collective"] == "all_reduce" and part["bytes"] == size]
            if mine:
                assert mine[0] >= 0.97 * reference, (name, size)
    found = results(captured("h200-x4-full"))
    assert found["p2p.write"].measured >= 0.97 * mean(_nvbandwidth("device_to_device_memcpy_write_ce"))
    assert found["p2p.read"].measured >= 0.97 * mean(_nvbandwidth("device_to_device_memcpy_read_ce"))
    assert found["memory.copy"].measured >= 0.97 * 2 * mean(_nvbandwidth("device_local_copy"))
    assert found["pcie.h2d"].measured >= 0.97 * mean(_nvbandwidth("host_to_device_memcpy_ce"))


def test_another_gpu_is_judged_by_its_own_figures_and_measured_as_plain_programs_measure_it():
    """Two H100: the expectations come from bus width, clock and links, not from a list of machines."""
    plain = json.loads((TOOLS / "plain_h100_2.json").read_text(encoding="utf-8"))
    found = results(captured("h100-x2-full"))
    assert {found[check].verdict for check in found if check != "driver.security"} == {"pass", "skip", "unsupported"}
    measured = {name: result.measured for name, result in found.items()}
    assert found["memory.copy"].expected < 3_352  # the datasheet's peak of this memory, in GB/s
    for name, figure in plain["figures"].items():
        assert measured[name] >= 0.97 * figure, name


def test_the_data_cites_its_sources():
    data = expected.expectations()
    cited = [source for rule in data.figures.values() for source in rule.sources]
    cited += [source for rule in data.settings.values() for source in rule.sources] + list(data.nccl.sources)
    assert set(cited) <= set(data.sources)
    for name, rule in data.figures.items():
        assert 0 < rule.fail < rule.warn < rule.typical <= 1, name
    xids = catalogue()
    for number, entry in xids.xids.items():
        assert entry.sources, number
        assert set(entry.sources) <= set(xids.sources)
