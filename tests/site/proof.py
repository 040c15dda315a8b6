"""The explorer's answers against the resolver's: python -m tests.site.proof [FRAMEWORK …] [--arch ARCH].

The page's own lookup.js answers in Chromium. Asked are every kind of GPU and none, every release and none, and with them

- one driver of each kind, and none: drivers of a kind are those that no rule and no criterion tells apart, as the
  compiled masks and levels show,
- one system of each kind, with the driver that is recommended, as systems speak of no driver,
- and at random `--more` questions about any driver and system. --every asks about each of them instead.

Products of one kind of GPU differ in names alone (gpusetup.matrix.gpus.GpuKind), so one of each is asked for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.matrix.load import matrix as load
from gpusetup.resolve.preferences import best
from tests.lab.browser import browser
from tools.explorer.compiled import FRAMEWORKS, Compiled, Gpus, drivers, releases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpusetup.matrix.load import Matrix

LOOKUP = Path(__file__).resolve().parents[2] / "tools/explorer/web/lookup.js"
_AT_ONCE = 500
_ASK = """asked.map((question) => {
  const found = Lookup.best(problem, question);
  return found && problem.variables.map((name) => found[name]);
})"""
Question = dict[str, Any]


def questions(
    matrix: Matrix, compiled: Compiled, gpus: Gpus, document: dict[str, Any], *, every: bool, more: int, seed: int
) -> list[Question]:
    """What is asked."""
    kinds: list[int | None] = [None, *range(len(gpus.kinds))]
    wanted = ["", *releases(compiled.base, compiled.framework)]
    all_drivers = ["", *drivers(matrix)]
    all_systems = [item.id for item in matrix.os.systems if compiled.arch in item.arches]

    def asked(about: Sequence[str], systems: Sequence[str]) -> list[Question]:
        plain = itertools.product(kinds, about, wanted)
        by_system = itertools.product(kinds, systems, wanted)
        return [{"gpu": kind, "driver": driver, "release": release} for kind, driver, release in plain] + [
            {"gpu": kind, "system": system, "release": release} for kind, system, release in by_system
        ]

    if every:
        return asked(all_drivers, all_systems)
    one_of_each = {document["systems"][system]: system for system in reversed(all_systems)}
    some = asked(["", *_drivers_that_differ(document)], list(one_of_each.values()))
    return some + random.Random(seed).sample(asked(all_drivers, all_systems), more)


def _drivers_that_differ(document: dict[str, Any]) -> list[str]:
    """Return one driver of each kind."""
    constraints = [*document["base"], *(item for added in document["additions"] for item in added["always"])]
    about = [item for item in constraints if "driver" in (item["of"], item.get("and"))]
    levels = [item for item in document["order"] if item["of"] == "driver" and "levels" in item]

    def seen(index: int) -> Iterator[Any]:
        bit = 1 << index
        for item in about:
            if "allowed" in item:
                yield bool(int(item["allowed"], 16) & bit)
            elif item["of"] == "driver":
                yield next((partners for group, partners in item["goes"] if int(group, 16) & bit), "")
            else:
                yield [group for group, partners in item["goes"] if int(partners, 16) & bit]
        yield from (item["levels"][item["first"][index]] for item in levels)

    told: dict[str, str] = {}
    for index, (version, module) in enumerate(zip(document["versions"]["driver"], document["modules"], strict=True)):
        told[version] = told.get(version, "") + repr((module, list(seen(index))))
    return list({text: version for version, text in told.items()}.values())


def expected(compiled: Compiled, gpus: Gpus, question: Question) -> list[str] | None:
    """What the resolver chooses: a text for each component."""
    kind = question["gpu"]
    space = compiled.space(
        gpu=gpus.kinds[kind][0] if kind is not None else "",
        system=question.get("system"),
        driver=question.get("driver") or None,
        release=question["release"],
        every_driver=False,
    )
    solution = best(space)
    return None if solution is None else [_told(value) for value in solution.values()]


def _told(value: Any) -> str:
    words = [value.version]
    for place, name in (
        ("", "module"),
        ("build", "variant"),
        ("build", "cuda"),
        ("release", "package"),
        ("release", "extra"),
    ):
        holder = getattr(value, place, None) if place else value
        words.append(str(getattr(holder, name, "")))
    return " ".join(words)


def answers(compiled: Compiled, document: dict[str, Any], asked: Sequence[Question]) -> Iterator[list[str] | None]:
    """What the page answers, in order."""
    values = compiled.base.values
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        page = chromium.open("about:blank")
        page.tells(f"{LOOKUP.read_text(encoding='utf-8')}; window.Lookup = Lookup; 1")
        page.tells(f"window.problem = Lookup.prepare({json.dumps(document)}); 1")
        for start in range(0, len(asked), _AT_ONCE):
            some = [{n: v for n, v in one.items() if v not in ("", None)} for one in asked[start : start + _AT_ONCE]]
            for found in page.tells(f"(() => {{ const asked = {json.dumps(some)}; return {_ASK} }})()"):
                told = zip(values, found or (), strict=bool(found))
                yield None if found is None else [_told(values[name][index]) for name, index in told]


@cache
def _gpus(matrix: Matrix) -> Gpus:
    return Gpus(matrix)


def differences(
    matrix: Matrix, framework: str, arch: str, some: Callable[..., list[Question]]
) -> tuple[int, list[str]]:
    """Ask; return how many questions there were and what differs."""
    gpus, compiled = _gpus(matrix), Compiled(matrix, framework, arch)
    document = compiled.document(gpus)
    asked, found, began = some(matrix, compiled, gpus, document), list[str](), time.monotonic()
    for number, (question, page) in enumerate(zip(asked, answers(compiled, document, asked), strict=True), 1):
        right = expected(compiled, gpus, question)
        if page != right:
            found.append(f"{question}: the page says {page}, the resolver {right}")
        if number % 20000 == 0:
            print(f"{framework} {arch}: {number} of {len(asked)}, {time.monotonic() - began:.0f} s", flush=True)
    return len(asked), found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.site.proof", description=__doc__)
    parser.add_argument("framework", nargs="*", choices=(*FRAMEWORKS, []))
    parser.add_argument("--arch", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--more", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    wrong = 0
    for framework in arguments.framework or FRAMEWORKS:
        some = partial(questions, every=arguments.every, more=arguments.more, seed=arguments.seed)
        asked, found = differences(load(), framework, arguments.arch, some)
        print(f"{framework} {arguments.arch}: {asked} questions, {len(found)} answered otherwise", flush=True)
        for text in found[:10]:
            print(f"  {text}")
        wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
