"""Look the compatibility matrix up: every row that fits, newest first.

examples:
  gpusetup matrix                                    an overview
  gpusetup matrix 'torch==2.6.*' --gpu v100          which builds of torch 2.6 run on a V100
  gpusetup matrix --driver 535.154.05                what runs on this driver
  gpusetup matrix tensorflow --os ubuntu22.04 --format csv
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from gpusetup.cli.options import add_output, add_request, add_requirements
from gpusetup.cli.output import csv_text, json_text, markdown_table, table, warn, write_answer
from gpusetup.cli.requests import age_warning, request_about
from gpusetup.errors import Exit
from gpusetup.matrix.load import NAMES
from gpusetup.matrix.load import matrix as load_matrix

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.request import Request

__all__ = ["add_arguments", "run"]

_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "torch": (
        ("torch", "torch"),
        ("build", "build"),
        ("cudnn", "cuDNN"),
        ("driver_min", "driver ≥"),
        ("driver_native", "native ≥"),
        ("python", "Python"),
        ("archs", "GPUs"),
    ),
    "tensorflow": (
        ("tensorflow", "TensorFlow"),
        ("cuda", "CUDA"),
        ("cudnn", "cuDNN"),
        ("driver_min", "driver ≥"),
        ("driver_native", "native ≥"),
        ("python", "Python"),
        ("archs", "GPUs"),
    ),
    "jax": (
        ("jax", "JAX"),
        ("extra", "extra"),
        ("cuda", "CUDA ≥"),
        ("driver_min", "driver ≥"),
        ("python", "Python"),
        ("archs", "GPUs"),
    ),
    "cupy": (
        ("cupy", "CuPy"),
        ("package", "package"),
        ("cuda", "CUDA"),
        ("driver_min", "driver ≥"),
        ("python", "Python"),
        ("archs", "GPUs"),
    ),
    "cuda": (
        ("cuda", "CUDA"),
        ("label", "release"),
        ("driver_min", "driver ≥"),
        ("driver_native", "native ≥"),
        ("archs", "GPUs"),
        ("gcc_max", "gcc ≤"),
        ("ptx", "PTX"),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_requirements(parser)
    add_request(parser)
    parser.add_argument("--data", action="store_true", help="print where the matrix files are")
    add_output(parser, ("text", "json", "csv", "md"))


def run(arguments: argparse.Namespace) -> Exit:
    """Look up and print."""
    from gpusetup.resolve.lookup import lead_of, lookup

    matrix = load_matrix()
    if arguments.data:
        write_answer("\n".join(matrix.path(name) for name in NAMES), arguments.out)
        return Exit.DONE
    request = request_about(arguments, matrix)
    lead = lead_of(request)
    rows = lookup(request, matrix)
    beside = _beside(request, matrix) if lead == "cuda" and request.driver is not None else {}
    warnings = _warnings(request, matrix)
    if arguments.format == "json":
        document: dict[str, Any] = {
            "schema": "gpusetup/matrix/1",
            "ok": True,
            "matrix": {"date": matrix.date, "digest": matrix.digest},
            "rows": rows,
            "warnings": warnings,
        }
        if beside:
            document["fits"] = beside
        write_answer(json_text(document), arguments.out)
        return Exit.DONE
    for warning in warnings:
        warn(warning)
    overview = arguments.format == "text" and lead == "cuda" and not _asked(request)
    if overview:
        from gpusetup.cli.matrix_overview import overview_text

        write_answer(overview_text(matrix), arguments.out)
        return Exit.DONE
    write_answer(_printed(lead, rows, arguments.format, beside), arguments.out)
    return Exit.DONE


def _warnings(request: Request, matrix: Matrix) -> list[str]:
    from gpusetup.resolve.warn import unknown_driver

    about_driver = unknown_driver(request.driver, matrix) if request.driver else ""
    return [text for text in (age_warning(matrix), about_driver) if text]


def _asked(request: Request) -> bool:
    return bool(request.requirements or request.gpus or request.driver or request.os or request.arch)


def _beside(request: Request, matrix: Matrix) -> dict[str, list[str]]:
    """Return, for each framework, the newest builds that fit a driver."""
    import msgspec

    from gpusetup.errors import NoStackError
    from gpusetup.model.request import Requirement
    from gpusetup.resolve.lookup import LEADS, lookup

    found = {}
    for name in LEADS:
        wish = msgspec.structs.replace(request, requirements=(*request.requirements, Requirement(component=name)))
        try:
            rows = lookup(wish, matrix)
        except NoStackError:
            rows = []
        found[name] = list(dict.fromkeys(_short(name, row) for row in rows))
    return found


def _short(name: str, row: dict[str, Any]) -> str:
    return f"{row[name]}+{row['variant']}" if name == "torch" else str(row[name])


def _cell(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if name == "build":
        return str(row["variant"]) + (" (PyPI)" if row["default"] else "")
    if value is None or value == "":
        return "?" if name == "cudnn" else ""
    if name == "python":
        plain = [text for text in value if not text.endswith("t")]
        return f"{plain[0]}-{plain[-1].partition('.')[2]}" if plain else "none"
    if name in ("archs", "cuda") and isinstance(value, list):
        if name == "archs" and len(value) == 1:
            return f"from {value[0]}"  # the upper end is open, or nobody measured it
        return f"{value[0]} - {value[-1]}" if len(value) > 1 else "".join(value)
    return str(value)


def _printed(lead: str, rows: Sequence[dict[str, Any]], output_format: str, beside: dict[str, list[str]]) -> str:
    if output_format == "csv":
        flat = [
            [" ".join(map(str, value)) if isinstance(value, list) else value for value in row.values()] for row in rows
        ]
        return csv_text(list(rows[0]), flat)
    columns = _COLUMNS[lead]
    names = [shown for _, shown in columns]
    cells = [[_cell(key, row) for key, _ in columns] for row in rows]
    if output_format == "md":
        return markdown_table(names, cells)
    text = table(names, cells)
    for name, versions in beside.items():
        shown = ", ".join(versions[:6]) + (f" and {len(versions) - 6} older" if len(versions) > 6 else "")
        text += "\n" + textwrap.fill(f"{name:<10}  {shown or 'none'}", 80, subsequent_indent=" " * 12)
    return text + ("\n" if beside else "")
