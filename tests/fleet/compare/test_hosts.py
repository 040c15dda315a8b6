"""Hosts against each other: who has what most do not, and whose figures are far from the rest."""

import jsonschema
import msgspec
import pytest

from gpusetup.cli.export import schema_of
from gpusetup.cli.main import main
from gpusetup.facts.properties import COLUMNS
from gpusetup.model.facts import Facts
from gpusetup.model.facts_machine import NvLinks, Settings, Way
from gpusetup.model.verdict import Item, Result
from gpusetup_fleet.compare.hosts import compared, differing_figures, differing_settings, rows
from tests.hosts.machines import HOSTS, machine

REPLACE = msgspec.structs.replace


@pytest.fixture(scope="module")
def h200x8():
    host = machine("ubuntu24.04-h200x8-keep")
    gpus = tuple(
        REPLACE(gpu, vbios="96.00.A5.00.1A", nvlinks=NvLinks(up=18, down=0, slowest=26.562), way=Way(acs_redirect=(), iommu="identity"))
        for gpu in host.gpus
    )  # fmt: skip
    return REPLACE(host, gpus=gpus, settings=Settings(bios_version="2.1", smt=True, iommu=True))


def changed(host, index, **values):
    return REPLACE(
        host, gpus=tuple(REPLACE(gpu, **values) if place == index else gpu for place, gpu in enumerate(host.gpus))
    )


def copy_rate(*rates):
    items = tuple(Item(subject=f"GPU {index}", verdict="pass", measured=rate) for index, rate in enumerate(rates))
    return Result(id="memory.copy", level="full", verdict="pass", text="", unit="GB/s", items=items, seconds=1.0)


def stood_out(comparison):
    return {
        (item.host, item.subject, item.column, str(item.value))
        for group in comparison.groups
        for item in group.outliers
    }


def test_whoever_differs_from_most_is_named_with_what_is_usual(h200x8):
    fleet = {f"gpu-{number}": h200x8 for number in range(5)}
    fleet["gpu-1"] = changed(h200x8, 3, vbios="96.00.A1")
    fleet["gpu-2"] = REPLACE(h200x8, settings=REPLACE(h200x8.settings, smt=False))
    fleet["gpu-3"] = changed(
        h200x8,
        0,
        way=Way(acs_redirect=("0000:00:01.0",), iommu="DMA-FQ"),
        nvlinks=NvLinks(up=17, down=1, slowest=26.562),
    )
    comparison = compared(Facts(hosts=fleet), {})
    assert stood_out(comparison) == {
        ("gpu-1", "GPU 3", "gpu.vbios", "96.00.A1"),
        ("gpu-2", "", "smt", "no"),
        ("gpu-3", "GPU 0", "pcie.acs", "on"),
        ("gpu-3", "GPU 0", "pcie.iommu", "DMA-FQ"),
        ("gpu-3", "GPU 0", "nvlink.up", "17"),
    }  # fmt: skip
    (vbios,) = [item for item in comparison.groups[0].outliers if item.column == "gpu.vbios"]
    assert (vbios.usual, vbios.alike, vbios.compared) == ("96.00.A5.00.1A", 39, 40)
    (column,) = [column for column in comparison.groups[0].columns if column.id == "gpu.vbios"]
    assert (column.cells["gpu-1"].text, column.cells["gpu-1"].standing) == ("7x 96.00.A5.00.1A, 1x 96.00.A1", "outlier")
    assert column.cells["gpu-0"].standing == "usual"


def test_hosts_with_other_gpus_are_another_group(h200x8):
    other = machine("rocky9-a100-open")
    comparison = compared(Facts(hosts={"a": h200x8, "b": h200x8, "c": other}), {})
    assert [group.hosts for group in comparison.groups] == [("a", "b"), ("c",)]
    assert comparison.outliers == 0, "nothing sets alike hosts apart, and nobody is compared with another kind"


def test_without_a_majority_everybody_is_named(h200x8):
    newer = REPLACE(h200x8, driver=REPLACE(h200x8.driver, version="590.1"))
    comparison = compared(Facts(hosts={"a": h200x8, "b": newer}), {})
    assert {(item.host, item.usual) for item in comparison.groups[0].outliers} == {("a", None), ("b", None)}


def test_a_slow_gpu_is_found_among_those_of_all_hosts(h200x8):
    fleet = {f"gpu-{number}": h200x8 for number in range(4)}
    figures = {name: (copy_rate(*(4280 + number + place for place in range(8))),) for number, name in enumerate(fleet)}
    figures["gpu-2"] = (copy_rate(4281, 4282, 3852, 4284, 4285, 4286, 4287, 4288),)
    comparison = compared(Facts(hosts=fleet), figures)
    (item,) = comparison.groups[0].outliers
    assert (item.host, item.subject, item.column, item.value) == ("gpu-2", "GPU 2", "memory.copy", 3852.0)
    assert -10.2 < item.deviation < -9.8
    (column,) = [column for column in comparison.groups[0].columns if column.kind == "figure"]
    assert column.cells["gpu-2"].standing == "outlier"
    assert column.cells["gpu-0"].standing == "usual"


def test_two_hosts_are_enough_where_each_has_several_gpus(h200x8):
    figures = {"a": (copy_rate(*[4280] * 8),), "b": (copy_rate(*[4280] * 7, 3000),)}
    comparison = compared(Facts(hosts=dict.fromkeys("ab", h200x8)), figures)
    assert [(item.host, item.subject) for item in comparison.groups[0].outliers] == [("b", "GPU 7")]
    busy = msgspec.structs.replace(
        figures["b"][0], items=tuple(msgspec.structs.replace(item, blame="job") for item in figures["b"][0].items)
    )
    assert compared(Facts(hosts=dict.fromkeys("ab", h200x8)), figures | {"b": (busy,)}).groups[0].outliers == ()


@pytest.mark.parametrize(
    ("values", "unit", "far"),
    [
        ([100, 100, 100, 96], "GB/s", []),  # no spread at all: a flutter of some percent is none
        ([100, 100, 100, 94], "GB/s", [3]),
        ([100, 90, 110, 95, 105, 85], "GB/s", []),  # a wide spread hides what a narrow one would show
        ([100, 90, 110, 95, 105, 20], "GB/s", [5]),
        ([5, 5, 6], "µs", []),
        ([5, 5, 8], "µs", [2]),
        ([1, 100], "GB/s", []),  # of two nobody can say who is right
        ([0, 0, 0, 5], "GB/s", []),
    ],
)
def test_figures(values, unit, far):
    subjects = {(f"h{place}", ""): float(value) for place, value in enumerate(values)}
    assert [int(host[1:]) for host, _ in differing_figures(subjects, unit).outliers] == far


def test_settings_that_are_not_known_are_not_compared():
    apart = differing_settings({("a", ""): "x", ("b", ""): "x", ("c", ""): None, ("d", ""): "y"})
    assert (apart.usual, apart.compared, apart.alike, apart.outliers) == ("x", 3, 2, (("d", ""),))


@pytest.fixture
def files(h200x8, tmp_path):
    """Facts of three hosts and their figures, as files."""
    from gpusetup.model.examined import VerifyReport

    fleet = {f"gpu-{number}": h200x8 for number in range(3)}
    fleet["gpu-1"] = changed(h200x8, 3, vbios="<b>96</b>")
    facts, figures = tmp_path / "facts.json", tmp_path / "verify.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts=fleet)))
    report = VerifyReport(
        ok=True, level="full", started="2026-11-23T00:00:00Z", seconds=1.0, program="gpusetup",
        hosts={name: (copy_rate(*[4280 - 800 * (name == "gpu-2")] * 8),) for name in fleet}, summary={},
    )  # fmt: skip
    figures.write_bytes(msgspec.json.encode(report))
    return facts, figures


def test_the_command_in_every_form(files, tmp_path, printed, says):
    facts, figures = map(str, files)
    page = tmp_path / "compare.html"
    text = says(0, "fleet", "compare", "--from", facts, "--figures", figures, "--html", str(page))
    assert text.startswith("8 x H200 SXM: 3 hosts, 9 values stand out")
    assert "gpu-1 GPU 3" in text
    assert "-18.7 %" in text
    html = page.read_text()
    assert "&lt;b&gt;96&lt;/b&gt;" in html
    assert "<b>96" not in html
    assert html.count("hsl(") == 3
    assert "http" not in html.replace("http-equiv", ""), "nothing comes from elsewhere"
    document = printed(9, "fleet", "compare", "--from", facts, "--figures", figures, "--exit-code")
    jsonschema.validate(document, schema_of("compare"))
    assert document["groups"][0]["hosts"] == ["gpu-0", "gpu-1", "gpu-2"]


def test_figures_of_one_host_are_told_together(h200x8):
    fleet = {f"gpu-{number}": h200x8 for number in range(4)}
    rates = {name: [4280.0] * 8 for name in fleet} | {"gpu-2": [3400.0, 3500.0, *[4280.0] * 5, 5000.0]}
    comparison = compared(Facts(hosts=fleet), {name: (copy_rate(*found),) for name, found in rates.items()})
    (group,) = comparison.groups
    assert rows(group) == [
        ("memory.copy", "4280 GB/s", "3400 to 3500", "gpu-2 GPU 0, GPU 1", "-20.6 to -18.2 %"),
        ("memory.copy", "4280 GB/s", "5000", "gpu-2 GPU 7", "+16.8 %"),
    ]


def test_figures_come_from_the_histories_of_the_hosts(files, monkeypatch, tmp_path, printed):
    from gpusetup.report.history import append, file_of
    from gpusetup.report.model import HostReport, Report

    facts, _ = files
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    for name, rates in {"gpu-0": [4270], "gpu-1": [4280], "gpu-2": [4280, 3000]}.items():
        for day, rate in enumerate(rates):
            host = HostReport(name=name, results=(copy_rate(*[rate] * 8),))
            report = Report(
                title="",
                started=f"2026-11-2{day}T00:00:00Z",
                seconds=1.0,
                program="gpusetup",
                level="full",
                hosts=(host,),
            )
            append(file_of(name, {"GPUSETUP_STATE": str(tmp_path / "state")}, here=False), host, report, "boards")
    slow = [
        item
        for item in printed(0, "fleet", "compare", "--from", facts)["groups"][0]["outliers"]
        if item["column"] == "memory.copy"
    ]
    assert {(item["host"], item["value"]) for item in slow} >= {("gpu-2", 3000.0)}, "the last run counts"
    assert all(item["host"] != "gpu-1" for item in slow)


@pytest.mark.parametrize(
    ("words", "reference"),
    [((), "GS-951"), (("inventory.ini", "--from", "x"), "GS-951"), (("--from", "/no/such"), "GS-305")],
)
def test_bad_input(words, reference, says):
    assert reference in says(3, "fleet", "compare", *words)


def test_figures_that_are_none(files, says):
    facts, _ = files
    for path, reference in (("/no/such", "GS-952"), (str(facts), "GS-952")):
        assert reference in says(3, "fleet", "compare", "--from", str(facts), "--figures", path)


def test_one_host_has_nobody_to_be_compared_with(h200x8, tmp_path, says):
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts={"a": h200x8})))
    words = ("fleet", "compare", "--from", facts)
    assert says(0, *words) == "8 x H200 SXM: a alone, nothing to compare it with"
    said = says(0, *words, "--from", facts, "--exit-code")
    assert said.startswith("8 x H200 SXM: 2 hosts, all alike"), "two files may name their host alike"


def test_facts_as_table_and_csv(capsys, says):
    import csv

    root = str(HOSTS / "ubuntu24.04-h200x8-keep/root")
    assert "localhost ubuntu24.04 8 x H200 SXM 580.159.04" in says(0, "facts", "--root", root, "--format", "table")
    assert main(["facts", "--root", root, "--format", "csv"]) == 0
    header, row = csv.reader(capsys.readouterr().out.splitlines())
    told = dict(zip(header, row, strict=True))
    assert tuple(header) == COLUMNS
    assert (told["host"], told["gpus"], told["driver"], told["gpu.memory"], told["pcie.width"]) == (
        "localhost", "8 x H200 SXM", "580.159.04", "143771", "16",
    )  # fmt: skip
