"""Expected figures against what reference tools and vendors say of the same machines."""

import json
import re
from statistics import mean

import pytest

from gpusetup.recovery.table import catalogue
from gpusetup.verify import expected
from tests.unit.verify.verify_documents import FIXTURES, captured, results

NVLINK = 18 * 26.562
H200 = {
    "memory_bus_bits": 6016, "memory_clock_khz": 3201000, "multiprocessors": 132, "clock_khz": 1980000, "compute_capability": "9.0",
}  # fmt: skip
A100 = {"multiprocessors": 108, "clock_khz": 1410000, "compute_capability": "8.0"}


def _nvbandwidth(test):
    """Every cell of one of its matrices."""
    text = (TOOLS / "nvbandwidth_8.txt").read_text(encoding="utf-8")
    block = text.split(f"Running {test}.")[1].split("SUM")[0]
    lines = [line.split()[1:] for line in block.splitlines() if re.match(r" \d ", line)]
    return [float(cell) for line in lines for cell in line if cell != "N/A"]


@pytest.mark.parametrize(
    ("bits", "clock", "theory"), [(6016, 3201000, 4800), (384, 9001000, 864), (256, 5001000, 320), (None, None, None)]
)
def test_memory_bandwidth_is_the_datasheets(bits, clock, theory):
    found = expected.memory("memory.copy", {"memory_bus_bits": bits, "memory_clock_khz": clock})
    assert found is None if theory is None else found.theory == pytest.approx(theory, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "gpu", "theory"),
    [
        ("bf16", H200 | {"clock_khz": 1830000}, 989), ("tf32", H200 | {"clock_khz": 1830000}, 494), ("fp16", A100, 312),
        ("bf16", A100 | {"compute_capability": "8.6"}, None),  # not known is not guessed
    ],
)  # fmt: skip
def test_matrix_rates_are_the_datasheets_at_the_boost_clock(kind, gpu, theory):
    found = expected.matrix_rate(kind, gpu)
    assert found is None if theory is None else found.theory == pytest.approx(theory, rel=0.01)


@pytest.mark.parametrize(
    ("test", "figure"),
    [
        ("device_to_device_memcpy_write_ce", "p2p.write"), ("device_to_device_memcpy_read_ce", "p2p.read"),
        ("host_to_device_memcpy_ce", "pcie.h2d"), ("device_to_host_memcpy_ce", "pcie.d2h"),
    ],
)  # fmt: skip
def test_copies_as_nvbandwidth_measures_them(test, figure):
    peer = figure.startswith("p2p.")
    bound = expected.link(figure, NVLINK, 26.562) if peer else expected.pcie(figure, 5, 16)
    assert bound.expected == pytest.approx(mean(_nvbandwidth(test)), rel=0.01)
    assert not peer or bound.fail < bound.warn < min(_nvbandwidth(test))


def _all_reduce(gpus=8, size=4 << 30, link=NVLINK, *, nvls=False):
    return expected.collective("all_reduce", gpus, size, link, nvls=nvls, nvlink=True)


def test_nvls_helps_above_four_gpus_only():
    nvls = _all_reduce(nvls=True).expected
    assert nvls == pytest.approx(480, rel=0.02)
    assert nvls > 1.25 * _all_reduce().expected
    assert _all_reduce(4, nvls=True) == _all_reduce(4)


def test_expectations_grow_with_the_message_and_the_link():
    figures = [_all_reduce(size=1 << power).expected for power in range(16, 34)]
    assert figures == sorted(figures)
    assert _all_reduce(link=NVLINK / 2).expected == pytest.approx(_all_reduce().expected / 2, rel=0.01)


TOOLS = FIXTURES / "reference-tools"


def _nccl_tests(name):
    """Bus bandwidth by size, the better of out-of-place and in-place."""
    rows = {}
    for line in (TOOLS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if re.match(r"\s+\d+\s+\d+\s+float", line):
            cells = line.split()
            rows[int(cells[0])] = max(float(cells[7]), float(cells[11]))
    return rows


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


def test_our_checks_reach_what_the_reference_tools_reach():
    """On machines of the same kind; three per cent is the difference allowed to a good check."""
    for name, world in (("all_reduce_2", 2), ("all_reduce_4", 4)):
        groups = captured("h200-x4-full")["sections"]["nccl"]["groups"]
        rank = next(group for group in groups if group["world"] == world)["ranks"]["0"]["results"]
        for size, reference in _nccl_tests(name).items():
            mine = [max(part["bus"]) for part in rank if part["collective"] == "all_reduce" and part["bytes"] == size]
            assert not mine or mine[0] >= 0.97 * reference, (name, size)
    found = results(captured("h200-x4-full"))
    for check, test, times in (
        ("p2p.write", "device_to_device_memcpy_write_ce", 1), ("p2p.read", "device_to_device_memcpy_read_ce", 1),
        ("memory.copy", "device_local_copy", 2), ("pcie.h2d", "host_to_device_memcpy_ce", 1),
    ):  # fmt: skip
        assert found[check].measured >= 0.97 * times * mean(_nvbandwidth(test)), check


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
