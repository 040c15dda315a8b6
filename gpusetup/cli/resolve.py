"""Print one complete, compatible stack with the reason for every choice.

examples:
  gpusetup resolve                                   a long-lived driver, its newest CUDA, cuDNN, NCCL and CuPy
  gpusetup resolve 'torch==2.6.*' --gpu v100
  gpusetup resolve torch cupy --gpu h200 --os ubuntu24.04 --lock stack.lock.json
  gpusetup resolve torch --gpu h100 --install docker > Dockerfile
  gpusetup resolve --from uv.lock --gpu h100 --driver 570.86.15     do a project's pins fit a machine?
  gpusetup facts inventory.ini --format json --out facts.json && gpusetup resolve --from facts.json
"""

import argparse
import textwrap
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpusetup.cli.options import add_newer, add_output, add_request, add_requirements, not_together
from gpusetup.cli.output import answer, csv_text, json_text, markdown_table, table, warn, write_answer
from gpusetup.cli.requests import about_host, age_warning, gpus_taken_for, gpus_text, request_of, take_project
from gpusetup.errors import Exit, NoStackError, PreflightError, gravest
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.matrix.systems import by_id
from gpusetup.model.stack import Resolution, Way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_requirements(parser)
    add_request(parser)
    add_newer(parser)
    parser.add_argument("--lock", metavar="FILE", help="also write a lock for plan and apply")
    parser.add_argument(
        "--install", choices=WAYS, metavar="WAY", help=f"print only the lines that install the stack: {', '.join(WAYS)}"
    )
    add_output(parser, ("text", "json", "csv", "md"))


def run(arguments: argparse.Namespace) -> Exit:
    """Resolve and print."""
    from gpusetup.cli.newer import resolve

    matrix = load_matrix()
    take_project(arguments, matrix)
    if arguments.install is not None and (arguments.format != "text" or arguments.facts is not None):
        other = f"--format {arguments.format}" if arguments.format != "text" else "--from"
        raise not_together("--install", other, "it prints lines to copy for one stack; JSON has them all as `install`")
    if arguments.lock is not None and arguments.facts is not None:
        raise not_together("--lock", "--from", "a lock is of one stack, and facts may need several")
    if arguments.facts is not None:
        return _run_classes(arguments, matrix)
    resolution = resolve(request_of(arguments, matrix), matrix, newer=arguments.newer)
    age = age_warning(matrix)
    if arguments.lock is not None:
        from gpusetup.cli.lock import write_lock

        write_lock(resolution, matrix, arguments.lock)
    if arguments.format == "json":
        document = _document(resolution, matrix)
        if age:
            document["warnings"] = [*document["warnings"], age]
        write_answer(json_text(document), arguments.out)
        return Exit.DONE
    write_answer(_answer(resolution, matrix, arguments), arguments.out)
    for text in (*resolution.warnings, *((age,) if age else ())):
        warn(text)
    return Exit.DONE


def _document(resolution: Resolution, matrix: Matrix) -> dict[str, Any]:
    from gpusetup.plan.install import install_of

    told = replace(resolution, install=install_of(resolution, matrix))
    if resolution.request.gpus:
        told = replace(told, gpus=gpus_taken_for(resolution.request, matrix))
    return told.to_document()


def _answer(resolution: Resolution, matrix: Matrix, arguments: argparse.Namespace) -> str:
    """Return only the lines of `--install`, or the table with its reasons."""
    if arguments.install is None:
        return stack_text(resolution, matrix, arguments.format)
    from gpusetup.plan.install import copied, install_of

    install = install_of(resolution, matrix)
    text = copied(install, arguments.install, f"--install {arguments.install}")
    if arguments.install in install.notes:
        warn(install.notes[arguments.install])
    return text


def stack_rows(resolution: Resolution, matrix: Matrix) -> list[tuple[str, str, str]]:
    """Return a stack as rows: component, version, particulars."""
    stack = resolution.stack
    rows: list[tuple[str, str, str]] = []
    if stack.driver:
        driver, state = stack.driver, "installed, stays" if stack.driver.installed else f"R{stack.driver.branch}"
        rows.append(("driver", driver.version, f"{state}; {driver.module} modules; {driver.relation}"))
    if stack.cuda:
        compat = f"; needs {stack.cuda.compat}" if stack.cuda.compat else ""
        role = "the default toolkit" if stack.cudas else "toolkit on the system"
        rows.append(("cuda", stack.cuda.version, f"{role}; {stack.cuda.relation}{compat}"))
    rows += [("cuda", other.version, f"toolkit beside it; {other.relation}") for other in stack.cudas]
    for name, library in (("cudnn", stack.cudnn), ("nccl", stack.nccl)):
        if library:
            rows.append((name, library.version, f"for CUDA {library.cuda}"))
    if stack.torch:
        parts = [f"CUDA {stack.torch.cuda}"]
        parts += [f"cuDNN {stack.torch.cudnn}"] if stack.torch.cudnn else []
        parts += [f"NCCL {stack.torch.nccl}"] if stack.torch.nccl else []
        where = "on PyPI" if stack.torch.on_pypi else stack.torch.index_url
        rows.append(("torch", f"{stack.torch.version}+{stack.torch.variant}", f"{', '.join(parts)} inside; {where}"))
        rows += _companions(resolution, matrix)
    if stack.tensorflow:
        flow, extra = stack.tensorflow, f"tensorflow[{stack.tensorflow.extra}]; " if stack.tensorflow.extra else ""
        rows.append(("tensorflow", flow.version, f"{extra}CUDA {flow.cuda}, cuDNN {flow.cudnn}"))
    if stack.jax:
        rows.append(("jax", stack.jax.version, f"jax[{stack.jax.extra}]"))
    if stack.cupy:
        rows.append(("cupy", stack.cupy.version, stack.cupy.package))
    rows += _packages(resolution)
    if stack.python:
        version, range_ = stack.python.version, stack.python.requires
        rows.append(("python", version or range_, f"this stack takes {range_}" if version else ""))
    return rows


def _packages(resolution: Resolution) -> list[tuple[str, str, str]]:
    rows = []
    for name, chosen in resolution.stack.packages().items():
        parts = [f"for CUDA {chosen.cuda}"] if chosen.cuda else []
        parts += ["built on the host"] if chosen.kind == "source" else []
        parts += [f"needs {', '.join(chosen.adds)} as well"] if chosen.adds else []
        rows.append((name, chosen.version, "; ".join(parts)))
    return rows


def _companions(resolution: Resolution, matrix: Matrix) -> list[tuple[str, str, str]]:
    from gpusetup.plan.install import companions_of

    torch = resolution.stack.torch
    where = "" if torch is None or torch.on_pypi else ", from the same index"
    return [
        (name, version, "comes with torch" if name == "triton" else f"matches this torch{where}")
        for name, version in companions_of(resolution.stack, matrix).items()
        if name not in resolution.stack.packages()
    ]


def stack_text(resolution: Resolution, matrix: Matrix, output_format: str) -> str:
    """Return a stack as text, CSV or Markdown."""
    rows = stack_rows(resolution, matrix)
    columns = ("component", "version", "particulars")
    if output_format != "text":
        return (csv_text if output_format == "csv" else markdown_table)(columns, rows)
    head = gpus_text(resolution.request, matrix) + table(columns, rows)
    return "\n".join((head, _reasons_text(resolution), ending(resolution, matrix)))


def _reasons_text(resolution: Resolution) -> str:
    from gpusetup.resolve.reasons import PROVENANCE

    lines: list[str] = []
    for reason in (item for item in resolution.reasons if item.rule != PROVENANCE):
        head = f"{reason.component}: "
        lines += textwrap.wrap(head + reason.text, width=80, subsequent_indent="  ")
    return "\n".join((*lines, "", f"matrix of {resolution.matrix.date}; sources of each reason: --format json", ""))


def _run_classes(arguments: argparse.Namespace, matrix: Matrix) -> Exit:
    """Resolve once per class of identical hosts; a class without a stack does not stop the others."""
    from gpusetup.cli.newer import resolve
    from gpusetup.facts.classes import group
    from gpusetup.facts.collect import read_facts
    from gpusetup.model.answers import StackClasses
    from gpusetup.plan.preflight import NO_GPU, foreign_driver

    facts = read_facts(Path(arguments.facts))
    wishes = request_of(arguments, matrix)
    classes: dict[str, Any] = {}
    texts: list[str] = []
    codes: list[Exit] = [Exit.DONE]
    for digest, names in group(facts.hosts).items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        host = facts.hosts[names[0]]
        if wishes.driver is None and (refusal := foreign_driver(host)) is not None:
            error = PreflightError(refusal.reference, refusal.message, hint=refusal.hint)
            codes.append(error.exit)
            classes[digest] = {"hosts": list(names), **error.to_document()}
            texts.append(f"{shown}\n  {error.message} [{error.reference}]\n  hint: {error.hint}\n")
            continue
        if not host.gpus and not wishes.gpus and not host.virtualisation.wsl:
            classes[digest] = {"hosts": list(names), "ok": True, "stack": None, "warnings": [NO_GPU]}
            texts.append(f"{shown}\n  {NO_GPU}\n")
            continue
        try:
            resolution = resolve(about_host(host, wishes, matrix), matrix, newer=arguments.newer)
        except NoStackError as misfit:
            codes.append(misfit.exit)
            classes[digest] = {"hosts": list(names), **misfit.to_document()}
            hint = f"  hint: {misfit.hint}\n" if misfit.hint else ""
            texts.append(f"{shown}\n  no stack fits\n  {misfit.note}\n{hint}")
            continue
        classes[digest] = {"hosts": list(names), **_document(resolution, matrix)}
        texts.append((f"# {shown}\n" if arguments.install else f"{shown}\n") + _answer(resolution, matrix, arguments))
        texts += [f"warning: {text}\n" for text in resolution.warnings]
    document = StackClasses(ok=len(codes) == 1, classes=classes)
    answer(arguments.format, document, "\n".join(texts), arguments.out)
    return gravest(codes)


WAYS: tuple[Way, ...] = ("apply", "pip", "uv", "conda", "docker")
_WIDTH = 80
_INDENT = 14


def ending(resolution: Resolution, matrix: Matrix) -> str:
    """Return the end of a stack's text: the lines that install it, with root and without."""
    from gpusetup.plan.install import install_of

    install = install_of(resolution, matrix)
    told = [_folded("install:", line) for line in install.apply]
    told += [_folded("" if number else "without root:", line) for number, line in enumerate(install.pip)]
    more = [way for way in WAYS[1:] if install.lines(way)]
    if more:
        told.append(f"more ways:    --install {', '.join(more[:-1])}{' or ' if more[1:] else ''}{more[-1]}")
    if install.pip and (python := _not_the_base(resolution, matrix)):
        told.append(f"              (uv and conda install Python {python} themselves)")
    return "\n".join(told) + "\n"


def _not_the_base(resolution: Resolution, matrix: Matrix) -> str:
    """Return the stack's Python if it differs from the distribution's python3, else an empty string."""
    python = resolution.stack.python.version if resolution.stack.python else None
    system = by_id(matrix, resolution.request.os)
    return python if python and system is not None and system.python != python else ""


def _folded(head: str, command: str) -> str:
    """Wrap a command between words with backslashes, so that the shell reads it as one."""
    words = _units(command)
    lines, current = [], f"{head:<{_INDENT}}{words[0]}"
    for word in words[1:]:
        if len(current) + len(word) + 3 > _WIDTH:
            lines.append(current + " \\")
            current = " " * (_INDENT + 2) + word
        else:
            current += f" {word}"
    return "\n".join([*lines, current])


def _units(command: str) -> list[str]:
    units: list[str] = []
    for word in command.split(" "):
        if units and units[-1].startswith("-") and " " not in units[-1]:
            units[-1] += f" {word}"
        else:
            units.append(word)
    return units
