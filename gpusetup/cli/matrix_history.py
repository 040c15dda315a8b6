"""Show how a component changed between the shipped matrix and the imported ones.

examples:
  gpusetup matrix history driver
  gpusetup matrix history vllm --format json
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli.matrix_diff import lines, of_component
from gpusetup.cli.output import json_text, write_answer
from gpusetup.errors import Exit
from gpusetup.matrix import kept
from gpusetup.matrix.load import Matrix, releases_place

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("component", metavar="COMPONENT", help="driver, cuda, torch, vllm, gpus …")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--out", metavar="FILE", help="write the answer to FILE")


def run(arguments: argparse.Namespace) -> Exit:
    """Compare each release with the one before it."""
    from gpusetup.model.documents import MatrixDiff, MatrixHistory

    releases = [kept.release_of(Matrix())]
    releases += [kept.release_of(Matrix(path)) for path in kept.all_kept(Path(releases_place(os.environ)))]
    releases.sort(key=lambda release: release.date)
    of_component((), arguments.component, releases[-1])
    steps = []
    for before, after in itertools.pairwise(releases):
        found = tuple(of_component(kept.changes(before.files, after.files), arguments.component, after))
        steps.append(MatrixDiff(before=before.date, after=after.date, changes=found))
    if arguments.format == "json":
        write_answer(json_text(MatrixHistory(component=arguments.component, steps=tuple(steps))), arguments.out)
        return Exit.DONE
    told = [f"{releases[0].date}: the oldest matrix on this machine"]
    for step in steps:
        told += ["", f"{step.after}:", *(list(lines(step.changes)) or ["  nothing of it changed"])]
    write_answer("\n".join(told), arguments.out)
    return Exit.DONE
