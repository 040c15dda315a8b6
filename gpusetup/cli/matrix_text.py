"""The matrix as text: the overview, and the columns and cells of its tables."""

import textwrap
from collections.abc import Sequence
from typing import Any

from gpusetup.cli.grammar import tables
from gpusetup.cli.output import csv_text, markdown_table, table
from gpusetup.matrix.load import Matrix
from gpusetup.model.release import DriverBranch
from gpusetup.versions import nv

_KINDS = {"LTSB": "long-term", "PB": "production", "NFB": "new features"}


def overview(matrix: Matrix) -> dict[str, list[dict[str, str]]]:
    """Return the tables of the overview: a title → rows, each a column's heading → its text."""
    return {"Drivers in support": _drivers(matrix), "CUDA toolkits": _toolkits(matrix), "PyTorch": _torch(matrix)}


def overview_text(matrix: Matrix) -> str:
    """Return the overview."""
    tables = (
        table(tuple(rows[0]), map(tuple, map(dict.values, rows)), title=title)
        for title, rows in overview(matrix).items()
    )
    return "\n".join((*tables, _footer(matrix)))


def _drivers(matrix: Matrix) -> list[dict[str, str]]:
    alive = [item for item in matrix.driver.branches if item.latest and not item.has_ended(matrix.date)]
    return [
        {
            "branch": f"R{branch.branch}", "newest": branch.latest or "", "kind": _KINDS.get(branch.kind, branch.kind),
            "until": branch.eol, "CUDA": branch.cuda or "", "GPUs": _span(branch),
        }
        for branch in sorted(alive, key=lambda item: item.branch, reverse=True)
    ]  # fmt: skip


def _span(branch: DriverBranch) -> str:
    return f"{branch.architectures[0]} - {branch.architectures[-1]}" if branch.architectures else ""


def _toolkits(matrix: Matrix) -> list[dict[str, str]]:
    newest = {}
    for release in matrix.cuda.releases:
        if release.system and nv(release.minor) >= nv("11.8"):
            newest[release.minor] = release
    floors = {row.major: row.min_driver for row in matrix.cuda.majors}
    return [
        {
            "toolkit": item.version, "its own driver": f"R{item.driver_branch}",
            "runs from driver": floors.get(nv(item.version).major, item.driver or ""),
        }
        for item in sorted(newest.values(), key=lambda item: nv(item.version), reverse=True)[:12]
    ]  # fmt: skip


def _torch(matrix: Matrix) -> list[dict[str, str]]:
    builds: dict[str, list[str]] = {}
    for build in matrix.torch.builds:
        shown = f"{build.variant} (PyPI)" if build.default else build.variant
        builds.setdefault(build.version, []).append(shown)
    rows = []
    for release in sorted(matrix.torch.releases, key=lambda item: nv(item.version), reverse=True)[:8]:
        plain = [text for text in release.pythons if not text.endswith("t")]
        shown = ", ".join(builds.get(release.version, ()))
        rows.append({"torch": release.version, "builds": shown, "Python": f"{plain[0]} - {plain[-1]}"})
    return rows


def _footer(matrix: Matrix) -> str:
    return (
        f"matrix of {matrix.date}; tables: tensorflow, jax, cupy, cuda, cudnn, nccl, driver,\n"
        f"os, python, vgpu, gpu ({len(matrix.gpus.gpus)} of them), mig, instances, variants, cve, eol\n"
        "ask:  gpusetup matrix --driver 535.154.05  gpusetup resolve torch --gpu h100\n"
        "      gpusetup matrix torch --gpu v100     gpusetup why-not cuda=13.1 --gpu v100\n"
    )


_RATES = ("fp16", "bf16", "fp8")
_NOTES = {"gpu": "\nrates: TFLOP/s, dense; ?: not known; one GPU by its whole name has more\n"}
_SHOWN = 6
"""The most values of a feature in a line."""
_FIGURES = frozenset({"memory_gb", "bandwidth_gbs", "power_w", "nvlink_gbs", "fp16", "bf16", "fp8"})


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if name in _FIGURES:
        return "?" if value is None else f"{value:,g}" if value else "no"
    if name == "build":
        return str(row["variant"]) + (" (PyPI)" if row["default"] else "")
    if value is None or value == "":
        return "?" if name == "cudnn" else ""
    if name == "kind":
        return _KINDS.get(value, str(value))
    if name == "python" and isinstance(value, list):
        plain = [text for text in value if not text.endswith("t")]
        return f"{plain[0]}-{plain[-1].partition('.')[2]}" if plain else "none"
    if name in ("archs", "cuda", "gpus") and isinstance(value, list):
        if name == "archs" and len(value) == 1:
            return f"from {value[0]}"  # the upper end is open or unknown
        return f"{value[0]} - {value[-1]}" if len(value) > 1 else "".join(value)
    if name == "values" and len(value) > _SHOWN:
        return f"{', '.join(value[: _SHOWN - 1])} … {value[-1]}"
    if isinstance(value, (list, dict)):
        return ", ".join(map(str, value))
    return str(value)


def columns_of(lead: str) -> dict[str, str]:
    """Return a table's columns: a row's key → the heading."""
    known = tables()["columns"]
    found: dict[str, str] = known.get(lead) or {lead: lead, **known[""]}
    return found


def printed(lead: str, rows: Sequence[dict[str, Any]], output_format: str) -> str:
    """Return rows as a table, CSV or Markdown."""
    if output_format == "csv":
        keys = dict.fromkeys(key for row in rows for key in row)  # only a chosen row says why it is not the newest
        lines = ([row.get(key, "") for key in keys] for row in rows)
        flat = [[" ".join(map(str, one)) if isinstance(one, (list, dict)) else one for one in line] for line in lines]
        return csv_text(list(keys), flat)
    columns = columns_of(lead)
    names = list(columns.values())
    cells = [[_cell(key, row) for key in columns] for row in rows]
    if rows[0].get("chosen") and len(rows) > 1:
        cells[0][0] += " *"
    return markdown_table(names, cells) if output_format == "md" else table(names, cells)


def answer_text(
    lead: str,
    rows: Sequence[dict[str, Any]],
    beside: dict[str, list[str]],
    conclusion: str,
    taken: str,
    *,
    driver: str | None,
    whole: bool,
) -> str:
    """Return the whole answer: how names were understood, the conclusion, the rows, and frameworks that fit."""
    if lead == "gpu" and len(rows) == 1:
        return _one_gpu(rows[0])
    shown = rows if whole or not conclusion else [row for row in rows if row in _newest_minors(rows)]
    text = (taken + "\n" if taken else "") + (_filled("", conclusion) + "\n\n" if conclusion else "")
    text += printed(lead, shown, "text")
    if rows[0].get("chosen") and len(rows) > 1:
        reason = f"; {rows[0]['because']}" if rows[0].get("because") else ""
        text += _filled("", f"* {rows[0][lead]} is what `gpusetup resolve` chooses{reason}") + "\n"
    elif rows[0].get("kind") == "source":
        text += (
            _filled("", "no wheel fits: `gpusetup resolve` builds one of these on the host with --allow-builds") + "\n"
        )
    for name, versions in beside.items():
        listed = ", ".join(versions[:6]) + (f" and {len(versions) - 6} older" if len(versions) > 6 else "")
        text += "\n" + _filled(f"{name:<12}", listed or "none")
    if len(shown) < len(rows):
        text += f"\n\nThe newest release of each CUDA minor; all of them:\n  gpusetup matrix cuda --driver {driver}"
    return text + ("\n" if beside else "") + (_NOTES.get(lead, ""))


def _newest_minors(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    newest: dict[str, dict[str, Any]] = {}
    for row in rows:
        newest.setdefault(".".join(row["cuda"].split(".")[:2]), row)
    return list(newest.values())


def _filled(head: str, text: str) -> str:
    return textwrap.fill(head + text, 80, subsequent_indent=" " * len(head), break_on_hyphens=False)


def _window(first: str, last: str | None) -> str:
    return f"from {first}" + (f", last {last}" if last else "")


def _one_gpu(row: dict[str, Any]) -> str:
    lines = [
        ("GPU", row["gpu"]),
        ("architecture", f"{row['architecture']}, compute capability {row['cc']}"),
        ("PCI ids", ", ".join(row["pci_ids"]) or "?"),
        ("drivers", _window(row["driver_first"] or "?", row["driver_last"])),
        ("CUDA toolkits", _window(row["cuda_first"], row["cuda_last"]) if row["cuda_first"] else ""),
        ("open modules", row["open_module"]),
        ("MIG", f"from driver {row['mig_driver'] or '?'}" if row["mig_driver"] or row["mig_profiles"] else ""),
        ("MIG profiles", ", ".join(row["mig_profiles"])),
        ("only beside", row["only_cpu"] or ""),
        ("memory", f"{_cell('memory_gb', row)} GB {row['memory_type'] or ''}".rstrip() if row["memory_gb"] else "?"),
        ("bandwidth", f"{_cell('bandwidth_gbs', row)} GB/s" if row["bandwidth_gbs"] else "?"),
        ("power", f"{_cell('power_w', row)} W" if row["power_w"] else "?"),
        ("NVLink", f"{_cell('nvlink_gbs', row)} GB/s" if row["nvlink_gbs"] else _cell("nvlink_gbs", row)),
        *((name.upper(), f"{_cell(name, row)} TFLOP/s dense" if row[name] else _cell(name, row)) for name in _RATES),
        ("note", row["note"]),
        *(("source", source) for source in (*row["sources"], *row["figures_sources"]) if source),
    ]
    return "\n".join(_filled(f"{name:<14}", text) for name, text in lines if text) + "\n"
