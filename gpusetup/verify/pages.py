# ruff: noqa: E501 - rows of tables
"""Generate the pages about checks: one per level, the expected figures with their sources, the Xid catalogue."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from gpusetup.model.verdict import Level
from gpusetup.recovery.table import Source, catalogue, of_xid
from gpusetup.verify.expected import expectations
from gpusetup.verify.registry import LEVELS, NEEDS, Check, checks

LEVEL_TEXTS = {
    "quick": "seconds, no CUDA context",
    "smoke": "seconds on one GPU, longer with packages; the default after `apply`",
    "full": "about half a minute, longer with packages",
    "stress": "minutes, as asked",
}


def explained() -> dict[str, Callable[[], str]]:
    """Return what `--explain` takes: the names of checks, levels and tables, with a function that returns the page."""
    found: dict[str, Callable[[], str]] = {check.id: partial(page, check) for check in checks()}
    return found | {level: partial(level_page, level) for level in LEVELS} | TABLES


def level_page(level: Level) -> str:
    """Return the page of a level, with all its checks."""
    text = f"{LEVEL_TEXTS[level][:1].upper()}{LEVEL_TEXTS[level][1:]}."
    parts = [page(check).replace("# ", "## ", 1) for check in checks() if check.level == level]
    return "\n".join([f"# Checks of level `{level}`\n\n{text}\n", *parts])


def page(check: Check) -> str:
    """Return a check's page."""
    title, _, body = check.page.partition("\n")
    needs = "; ".join(NEEDS[need][0] for need in check.needs)
    lines = [
        f"# `{check.id}`: {check.title}",
        "",
        title,
        "",
        body.strip(),
        "",
        f"Level: `{check.level}`. Needs: {needs}.",
    ]
    rule = expectations().figures.get(check.id)
    if rule is not None:
        lines += ["", f"Theory: {rule.theory}. Floors and sources: [expectations](expectations.md)."]
    elif check.id.startswith("nccl."):
        lines += ["", "Floors and sources: [expectations](expectations.md)."]
    elif check.id == "kernel.xid":
        lines += ["", "Numbers, meanings and sources: [the Xid catalogue](xid.md)."]
    return "\n".join(lines) + "\n"


def expectations_page() -> str:
    """Return the page of the expected figures: the data file as tables."""
    data = expectations()
    figures, differing = [], []
    for name, rule in data.figures.items():
        floors = [f"{rule.typical:g}", f"{rule.warn:g}", f"{rule.fail:g}"]
        figures.append([f"`{name}`", rule.unit, rule.theory, *floors, ", ".join(rule.sources)])
        if wide := rule.wide:
            named = f"`{name}`, bus of {data.wide_bus_bits} bits or more"
            floors = [f"{wide.typical:g}", f"{wide.warn:g}", f"{wide.fail:g}"]
            figures.append([named, rule.unit, "as above", *floors, "as above"])
        for words, table in (("PCI Express generation {}", rule.by_generation), ("links of {} GB/s", rule.by_rate)):
            differing += [[f"`{name}`", words.format(key), f"{value:g}"] for key, value in table.items()]
    nccl = data.nccl
    lines = [
        "# Expectations",
        "",
        f"Rendered from `gpusetup/verify/data/expectations.json` of {data.date}. Floors are fractions of the theory, which is",
        "computed from the machine. The better of two passes is judged; more than 1.15 of the theory is a wrong measurement.",
        *_table("figure | unit | theory | usual | warn below | fail below | sources", figures),
        "",
        "Usual fractions that differ by generation or link rate:",
        *_table("figure | for | usual", differing),
        "",
        "## NCCL bus bandwidth",
        "",
        f"Theory: {nccl.theory}. A warning below {nccl.warn:g} and a fail below {nccl.fail:g} of the usual figure, which is the",
        "theory times the fraction for the number of GPUs times the fraction for the message size; only messages of",
        f"{nccl.judged_from // 2**30} GiB and more can fail. Without NVLink: usual {nccl.pcie.typical:g}, warn {nccl.pcie.warn:g} of PCI Express, never a fail.",
        f"Sources: {', '.join(nccl.sources)}.",
        *_table(
            "algorithm | collective | fraction by number of GPUs",
            [
                [algorithm, name, ", ".join(f"{key}: {value:g}" for key, value in row.items())]
                for algorithm, rows in (("ring", nccl.ring), ("NVLS", nccl.nvls))
                for name, row in rows.items()
            ],
        ),
        *_table("message | fraction", [[f"{int(key) / 2**20:,.0f} MiB", f"{nccl.size[key]:g}"] for key in nccl.size]),
        "",
        "## Parts",
        *_table("PCI Express generation | GB/s per lane", [[key, str(value)] for key, value in data.pcie_lane.items()]),
        *_table(
            "compute capability | operations per clock and multiprocessor",
            [
                [key, ", ".join(f"{name} {value}" for name, value in row.items())]
                for key, row in data.matrix_per_clock.items()
            ],
        ),
        *_table("PCI device id | NVLinks", [[f"10de:{key}", str(value)] for key, value in data.nvlinks.items()]),
        "",
        "## Thresholds",
        *_table(
            "name | value | of what | sources",
            [
                [f"`{name}`", f"{item.value:g}", item.text, ", ".join(item.sources)]
                for name, item in data.settings.items()
            ],
        ),
        "",
        "## Sources",
        *_sources(data.sources),
    ]
    return "\n".join(lines) + "\n"


def xid_page() -> str:
    """Return the Xid catalogue as a table."""
    data = catalogue()
    rows = [
        [str(number), one.verdict, one.text, one.action, one.bucket, of_xid(number).need, ", ".join(one.sources)]
        for number, one in sorted(data.xids.items())
    ]
    rows.append(["others", data.default.verdict, data.default.text, data.default.action, "", "look", ""])
    lines = [
        "# Xid catalogue",
        "",
        f"Rendered from `gpusetup/recovery/data/xid.json` of {data.date}; `kernel.xid` judges by it and the doctor explains by it.",
        *_table("Xid | verdict | meaning | what to do | the vendor's bucket | it needs | sources", rows),
        *_sources(data.sources),
    ]
    return "\n".join(lines) + "\n"


def _sources(sources: Mapping[str, Source]) -> list[str]:
    rows = [[key, source.title, source.publisher, source.url] for key, source in sources.items()]
    return _table("key | document | publisher | address", rows)


def _table(columns: str, rows: Iterable[list[str]]) -> list[str]:
    return ["", f"| {columns} |", "|---" * len(columns.split("|")) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


TABLES: dict[str, Callable[[], str]] = {"expectations": expectations_page, "xid": xid_page}
