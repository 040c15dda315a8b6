"""Print the rules that forbid a version, and the nearest changes that would allow it.

examples:
  gpusetup why-not cuda=13.1 --gpu v100
  gpusetup why-not torch=2.6.0 --gpu 'rtx 5090'
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from gpusetup.cli.output import json_text, warn, write_answer
from gpusetup.cli.requests import age_warning, request_about
from gpusetup.cli.why import add_subject, split_subject
from gpusetup.errors import BadInputError, Exit, NoStackError
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.model.answers import Clash, WhyNot

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_subject(parser, "NAME=VERSION")


def run(arguments: argparse.Namespace) -> Exit:
    """Explain; exit 4 when the version is forbidden, 0 when nothing forbids it."""
    from gpusetup.resolve.api import resolve

    matrix = load_matrix()
    wish = split_subject(arguments)
    if not wish.specifier:
        raise BadInputError(
            "GS-129",
            f"why-not needs a version of {wish.component}",
            path=arguments.subject,
            hint=f"gpusetup why-not {wish.component}=VERSION",
        )
    request = request_about(arguments, matrix)
    others = tuple(item for item in request.requirements if item.component != wish.component)
    try:
        resolution = resolve(msgspec.structs.replace(request, requirements=(*others, wish)), matrix)
    except NoStackError as error:
        found = error.to_document()
        conflict = msgspec.convert(found["conflict"], tuple[Clash, ...])
        document = WhyNot(
            ok=False,
            matrix=matrix.stamp,
            version=str(wish),
            forbidden=True,
            conflict=conflict,
            suggestions=tuple(found["suggestions"]),
        )
        lines = [f"{wish} is forbidden:", ""]
        for item in found["conflict"]:
            lines += textwrap.wrap(f"- {item['text']} [{item['rule']}]", 80, subsequent_indent="  ")
            if item["source"]:
                lines.append(f"  {item['source']}")
        if found["suggestions"]:
            lines += ["", "hint: " + "; or ".join(found["suggestions"])]
        text, code = "\n".join(lines) + "\n", Exit.NO_STACK
    else:
        limits = resolution.warnings
        document = WhyNot(ok=True, matrix=matrix.stamp, version=str(wish), forbidden=False, warnings=limits)
        lines = [f"nothing forbids {wish}" + (", with these limits:" if limits else "")]
        for limit in limits:
            lines += textwrap.wrap(f"- {limit}", 80, subsequent_indent="  ")
        text, code = "\n".join(lines) + "\n", Exit.DONE
    text = f"{text.rstrip()}\n\nmatrix of {matrix.date}\n"
    if (age := age_warning(matrix)) is not None:
        warn(age)
    write_answer(json_text(document) if arguments.format == "json" else text, arguments.out)
    return code
