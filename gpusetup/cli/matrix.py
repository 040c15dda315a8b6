"""Look up the compatibility matrix: every row that fits, newest first.

examples:
  gpusetup matrix                                    an overview
  gpusetup matrix 'torch==2.6.*' --gpu v100          which builds of torch 2.6 run on a V100
  gpusetup matrix --driver 535.154.05                what runs on this driver, and its newest CUDA
  gpusetup matrix driver '580.*'                     the releases of a driver branch
  gpusetup matrix h100                               a GPU: drivers, memory, bandwidth, power, rates
  gpusetup matrix cve driver=580.95.05               its known vulnerabilities
  gpusetup matrix cudnn --gpu v100                   also: nccl, os, vgpu, python, instances, variants
  gpusetup matrix tensorflow --os ubuntu22.04 --format csv
  gpusetup matrix --age                              how old the data of each component is
"""

import argparse
import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.cli.options import add_newer, add_output, add_request, add_requirements, refuse_beside
from gpusetup.cli.output import answer, json_text, warn, write_answer
from gpusetup.cli.requests import age_warning, gpus_taken_for, gpus_text, request_about
from gpusetup.errors import Exit, NoStackError
from gpusetup.matrix.load import NAMES, Matrix, package_files
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.model.record import MatrixFile
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.domains import parsed
from gpusetup.resolve.naming import alone, unknown_driver
from gpusetup.resolve.requests import joined_words, parse_requirements, table_of

_TABLES = {name: name for name in ("gpu", "mig", "os", "vgpu", "cve", "instances", "variants")}
_TABLES |= {"gpus": "gpu", "grid": "vgpu", "instance": "instances", "variant": "variants"}
"""Words that name a table which needs no resolver → the table."""
_WISHES = ("REQ", "--gpu", "--on", "--os", "--arch", "--driver", "--python", "--from", "--native", "--forward")
_ALSO_REQUIREMENTS = ("driver", "python")
"""Such tables that a requirement names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_requirements(parser)
    add_request(parser)
    parser.add_argument("--data", action="store_true", help="print where the matrix files are")
    parser.add_argument(
        "--age", action="store_true", help="show each component's newest version, and how old its data is"
    )
    add_newer(parser)
    add_output(parser, ("text", "json", "csv", "md"))


def run(arguments: argparse.Namespace) -> Exit:
    """Look up and print."""
    matrix = load_matrix()
    if arguments.data:
        refuse_beside(arguments, "--data", "it names files, and looks up nothing", *_WISHES)
        from gpusetup.model.answers import MatrixFiles

        paths = {name: matrix.path(name) for name in NAMES}
        return answer(arguments.format, MatrixFiles(files=paths), "\n".join(paths.values()), arguments.out)
    if arguments.age or arguments.newer:
        first = "--newer" if arguments.newer else "--age"
        refuse_beside(arguments, first, "it is about all components", *_WISHES)
    name, wanted = _table(arguments)
    if name == "vgpu" and not wanted:  # its releases have drivers of their own: 570 is any of them
        wanted, arguments.driver = arguments.driver or "", None
    request = request_about(arguments, matrix)
    if name == "variants" and (request.driver is None or arguments.facts):
        request = _of_host(request, arguments)
    conclusion = ""
    beside: dict[str, list[str]] = {}
    if arguments.age or arguments.newer:
        name = "newer" if arguments.newer else "age"
        rows = ages(matrix, dt.datetime.now(tz=dt.timezone.utc).date(), newer=arguments.newer)
    elif name:
        from gpusetup.resolve.tables import table_rows

        rows = table_rows(name, wanted, request, matrix)
    else:
        from gpusetup.resolve.lookup import lead_of, lookup, newest_for_driver

        name = lead_of(request)
        rows = lookup(request, matrix)
        by_driver = name == "cuda" and request.driver is not None
        beside = _fitting_frameworks(request, matrix) if by_driver else {}
        conclusion = newest_for_driver(request, matrix) if by_driver else ""
    warnings = _warnings(request, matrix)
    from gpusetup.cli.matrix_text import answer_text, overview, overview_text, printed

    bare = name == "cuda" and not any((request.requirements, request.gpus, request.driver, request.os, request.arch))
    if arguments.format == "json":
        from gpusetup.model.answers import MatrixRows

        document = MatrixRows(
            matrix=matrix.stamp,
            rows=tuple(rows),
            warnings=tuple(warnings),
            fits={name: tuple(found) for name, found in beside.items()} if beside else UNSET,
            conclusion=conclusion if beside else UNSET,
            gpus=gpus_taken_for(request, matrix) if request.gpus else UNSET,
            overview=overview(matrix) if bare else UNSET,
        )
        write_answer(json_text(document), arguments.out)
        return Exit.DONE
    for warning in warnings:
        warn(warning)
    if arguments.format != "text":
        text = printed(name, rows, arguments.format)
    elif bare:
        text = overview_text(matrix)
    else:
        taken, whole = gpus_text(request, matrix) if name != "gpu" else "", bool(arguments.requirements)
        text = answer_text(name, rows, beside, conclusion, taken, driver=request.driver, whole=whole)
        text = f"{text.rstrip()}\n\nmatrix of {matrix.date}"
    write_answer(text, arguments.out)
    return Exit.DONE


def _table(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the table that the words name, and its filter; both are empty if the resolver finds the rows."""
    words, said = joined_words(arguments.requirements), " ".join(arguments.requirements)
    head = re.findall("^[a-z-]*", words[0].lower())[0] if words else ""
    if head in _TABLES:
        arguments.requirements = []
        return _TABLES[head], re.sub(rf"^{head}[\s=]*", "", said, flags=re.IGNORECASE).strip()
    if table := table_of(said):
        arguments.requirements = []
        return table, said.strip()
    wishes = parse_requirements(words)
    if len(wishes) > 1 and Requirement(component="driver") in wishes:
        return "driver", ""  # the drivers that the other requirements run on
    if len(wishes) != 1 or wishes[0].component not in _ALSO_REQUIREMENTS:
        return "", ""
    arguments.requirements = []
    return wishes[0].component, wishes[0].specifier


def _of_host(request: Request, arguments: argparse.Namespace) -> Request:
    """Return the request with the GPUs and driver of a host in a file, or of this machine, if it names none."""
    from gpusetup.facts.variants import host_in, seen

    gpus, driver = seen(host_in(arguments.facts))
    named = request.gpus if arguments.gpu else tuple(gpus)
    return replace(request, gpus=named, driver=request.driver or driver, os=arguments.os, arch=arguments.arch)


def _warnings(request: Request, matrix: Matrix) -> list[str]:
    about_driver = unknown_driver(request.driver, matrix) if request.driver else ""
    exact = (alone(wish, matrix) for wish in request.requirements)
    return [text for text in (age_warning(matrix), about_driver, *exact) if text]


def _fitting_frameworks(request: Request, matrix: Matrix) -> dict[str, list[str]]:
    from gpusetup.resolve.lookup import LEADS, lookup

    found = {}
    for name in LEADS:
        wish = replace(request, requirements=(*request.requirements, Requirement(component=name)))
        try:
            rows = lookup(wish, matrix)
        except NoStackError:
            rows = []
        found[name] = list(dict.fromkeys(_short(name, row) for row in rows))
    return found


def _short(name: str, row: dict[str, Any]) -> str:
    return f"{row[name]}+{row['variant']}" if name == "torch" else str(row[name])


_RELEASED = ("cuda", "cudnn", "nccl", "torch", "tensorflow", "jax", "cupy")


def ages(matrix: Matrix, today: dt.date, *, newer: bool = False) -> list[dict[str, Any]]:
    """Return a row for each component: it lacks everything published since its sources were read.

    With `newer`, ask the publishers: a row also has the newest release, and for how many days the matrix lacks one.
    """
    rows = [_row(name, file, releases, today) for name, file, releases in _components(matrix)]
    return _compared(rows, today) if newer else rows


def _compared(rows: list[dict[str, Any]], today: dt.date) -> list[dict[str, Any]]:
    from gpusetup.cli.newer import published_of

    lists = published_of(row["component"] for row in rows)
    for row in rows:
        listed = lists[row["component"]]
        if isinstance(listed, str):
            row |= {"publisher": "not reached", "behind": None}
            continue
        lacking = [release for release in listed if release.version > parsed(row["newest"])]
        first = min((release.date for release in lacking if release.date), default="")
        behind = (today - dt.date.fromisoformat(first)).days if first else 0 if not lacking else None
        row |= {"publisher": str(lacking[-1].version) if lacking else row["newest"], "behind": behind}
    return rows


def _components(matrix: Matrix) -> Iterator[tuple[str, MatrixFile, Any]]:
    yield "driver", matrix.driver, [one for one in matrix.driver.versions if one.platform == "linux"]
    for name in _RELEASED:
        file = getattr(matrix, name)
        yield name, file, file.releases
    for name in (name.rpartition("/")[2] for name in package_files()):
        package = matrix.package(name)
        yield name, package, package.releases


def _row(name: str, file: MatrixFile, releases: Any, today: dt.date) -> dict[str, Any]:
    newest = max(releases, key=lambda release: parsed(release.version))
    return {
        "component": name,
        "newest": newest.version,
        "published": getattr(newest, "date", "") or "unknown",
        "read": file.date,
        "days": (today - dt.date.fromisoformat(file.date)).days,
        "confidence": newest.confidence,
        "sources": [file.sources[key].url for key in newest.sources if key in file.sources and file.sources[key].url],
    }
