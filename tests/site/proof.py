"""The explorer's answers against the resolver's: python -m tests.site.proof [WISH …] [--arch ARCH] [--more N].

The page's own scripts answer in Chromium. Asked are, for each wish alone, every release, every series and none, and with it

- one GPU of each kind and none, with one driver of each kind and none: drivers of a kind are those that no rule and no
  criterion tells apart, as the compiled masks and levels show,
- one GPU of each kind with one system of each kind and the driver that is recommended, as systems speak of no driver;

and `--more` questions at random: one to all seven wishes, any GPU, driver and system, or none. Of these the lines to
copy are compared too, and of a refusal the rules that cannot hold together, in their order.

GPUs and systems of a kind add the same to a question; tests/site/problems.py shows that for each of them.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from gpusetup.matrix.load import matrix as load
from gpusetup.model.stack import MatrixStamp, Resolution
from gpusetup.plan.install import install_of
from gpusetup.resolve.answer import stack_of, warnings_about
from gpusetup.resolve.package_sentences import python_warnings
from gpusetup.resolve.preferences import best
from gpusetup.resolve.reasons import conflict
from gpusetup.resolve.search import minimal_conflict
from tests.lab.browser import browser
from tools.explorer.compiled import WISHES, Compiled, Gpus
from tools.explorer.folder import ARCHES, documents
from tools.explorer.reasons import about_reasons

WEB = Path(__file__).resolve().parents[2] / "tools/explorer/web"
_AT_ONCE = 500
_ASK = """asked.map(({ lines, said, ...question }) => {
  const found = Lookup.best(problem, question);
  const solution = found && Object.fromEntries(Object.entries(found));
  if (!lines) return { solution };
  if (!found) return { rules: Lookup.conflict(problem, question).map((item) => [item.rule, item.of, item.and ?? ""]), conflict: reasons.conflict(question, said) };
  const { line, note } = words.pip(problem, question, found);
  return { solution, apply: words.apply(problem, question, found), pip: line ?? note, python: words.pythons(problem, found),
    warnings: words.warnings(problem, question, found, { name: said.name, label: said.gpu }).sort() };
})"""
Question = dict[str, Any]
"""wishes: component → version, series or nothing; gpu: a kind's number; system; driver; lines: whether to compare these."""


class Explored:
    """What the page holds about one CPU, and the resolver behind it."""

    def __init__(self, arch: str) -> None:
        self.matrix = load()
        self.gpus, self.compiled = Gpus(self.matrix), Compiled(self.matrix, arch)
        self.about, problems = documents(self.matrix, self.gpus, [self.compiled])
        self.problem = problems[arch]
        self.reasons = about_reasons(self.compiled, self.gpus)

    @cached_property
    def systems(self) -> list[str]:
        return list(self.problem["systems"])

    def texts(self, name: str) -> list[str]:
        """Return what can be said of a wish's version."""
        return ["", *self.about["releases"][name], *self.about["series"][name]]

    def versions(self, name: str, text: str) -> list[str] | None:
        return self.about["series"][name].get(text, [text]) if text else None

    def of_each_kind(self) -> tuple[list[int | None], list[str]]:
        """Return a GPU of each kind and none, and a system of each kind."""
        gpus = {number: place for place, number in reversed(list(enumerate(self.problem["gpus"])))}
        systems = {number: system for system, number in self.problem["systems"].items()}
        return [None, *gpus.values()], list(systems.values())


def whole(known: Explored, wish: str) -> list[Question]:
    """Return every question about one wish."""
    gpus, systems = known.of_each_kind()
    plain = itertools.product(gpus, ["", *_drivers_that_differ(known.problem)], known.texts(wish))
    by_system = itertools.product(gpus, systems, known.texts(wish))
    return [{"gpu": gpu, "driver": driver, "wishes": {wish: text}} for gpu, driver, text in plain] + [
        {"gpu": gpu, "system": system, "wishes": {wish: text}} for gpu, system, text in by_system
    ]


def some(known: Explored, more: int, seed: int) -> list[Question]:
    """Return questions at random."""
    chance = random.Random(seed)

    def one() -> Question:
        wishes = chance.sample(WISHES, chance.choice((1, 1, 2, 2, 2, 3, 3, 4, 5, 7)))
        return {
            "wishes": {name: chance.choice(known.texts(name)) if chance.random() < 0.4 else "" for name in wishes},
            "gpu": chance.choice([None, *range(len(known.gpus.kinds))]),
            "driver": chance.choice(["", chance.choice(known.about["drivers"])]),
            "system": chance.choice(["", chance.choice(known.systems)]),
            "lines": True,
        }

    return [one() for _ in range(more)]


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


def expected(known: Explored, question: Question) -> dict[str, Any]:
    """What the resolver answers, in the page's terms."""
    kind, compiled = question["gpu"], known.compiled
    space = compiled.space(
        wishes=question["wishes"], gpu=known.gpus.kinds[kind][0] if kind is not None else "",
        system=question.get("system") or None, driver=question.get("driver") or None, every_driver=False,
    )  # fmt: skip
    solution, lines = best(space), question.get("lines")
    if solution is None:
        if not lines:
            return {"solution": None}
        members = minimal_conflict(space.problem())
        rules = [[item.rule, item.scope[0], item.scope[1] if len(item.scope) > 1 else ""] for item in members]
        return {"rules": rules, "conflict": conflict(space, members)}
    told: dict[str, Any] = {"solution": {name: _told(value) for name, value in solution.items()}}
    if lines:
        stamp = MatrixStamp(date=known.matrix.date, digest=known.matrix.digest)
        stack = stack_of(space, solution)
        said = install_of(Resolution(matrix=stamp, request=space.request, stack=stack, reasons=()), known.matrix)
        pip = next((line.partition("-m ")[2] for line in said.pip if "-m pip install" in line), said.notes.get("pip"))
        # Only the program says that a newer Python would bring newer releases.
        kept = {text for text in python_warnings(space, solution) if "nobody published" not in text}
        told["warnings"] = sorted(text for text in warnings_about(space, solution) if text not in kept)
        told |= {"apply": said.apply[0], "pip": pip, "python": stack.python.requires if stack.python else ""}
    return told


def _told(value: Any) -> str:
    words = [value.version]
    for place, name in (
        ("", "module"),
        ("build", "variant"),
        ("build", "cuda"),
        ("build", "kind"),
        ("row", "version"),
        ("release", "package"),
        ("release", "extra"),
    ):
        holder = getattr(value, place, None) if place else value
        words.append(str(getattr(holder, name, "")))
    return " ".join(words)


@contextmanager
def page_of(known: Explored) -> Iterator[Callable[[str], Any]]:
    """Yield what asks the page's scripts: an expression in, its value out."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        page = chromium.open("about:blank")
        for name, alone in (("lookup", "Lookup"), ("words", "Words"), ("reasons", "Reasons")):
            page.tells(f"{(WEB / f'{name}.js').read_text(encoding='utf-8')}; window.{alone} = {alone}; 1")
        page.tells(f"window.problem = Lookup.prepare({json.dumps(known.problem)}); 1")
        page.tells(f"window.words = Words({json.dumps(known.about)}); 1")
        page.tells(f"window.reasons = Reasons({json.dumps(known.about)}, problem, {json.dumps(known.reasons)}); 1")
        yield page.tells


def posed(known: Explored, question: Question) -> Question:
    """Return a question as the page asks it of its search."""
    wishes = {name: known.versions(name, text) for name, text in question["wishes"].items()}
    name = known.gpus.kinds[question["gpu"]][0] if question["gpu"] is not None else ""
    gpu = known.about["labels"].get(name, name)
    said = {"gpu": gpu, "name": name, "wishes": question["wishes"]}
    return {name: value for name, value in question.items() if value not in ("", None)} | {
        "wishes": wishes,
        "said": said,
    }


def answers(known: Explored, asked: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """What the page answers, in order."""
    values = known.compiled.base.values
    with page_of(known) as tells:
        for start in range(0, len(asked), _AT_ONCE):
            some = [posed(known, one) for one in asked[start : start + _AT_ONCE]]
            for found in tells(f"(() => {{ const asked = {json.dumps(some)}; return {_ASK} }})()"):
                if solution := found.get("solution"):
                    found["solution"] = {name: _told(values[name][index]) for name, index in solution.items()}
                yield found


def differences(known: Explored, asked: list[Question]) -> list[str]:
    """Ask; return what differs."""
    found, began = list[str](), time.monotonic()
    for number, (question, page) in enumerate(zip(asked, answers(known, asked), strict=True), 1):
        right = expected(known, question)
        if page != right:
            found.append(f"{question}: the page says {page}, the resolver {right}")
        if number % 20000 == 0:
            print(f"{known.compiled.arch}: {number} of {len(asked)}, {time.monotonic() - began:.0f} s", flush=True)
    return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.site.proof", description=__doc__)
    parser.add_argument("wish", nargs="*", choices=(*WISHES, []))
    parser.add_argument("--arch", default="x86_64", choices=ARCHES)
    parser.add_argument("--more", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(words)
    known, wrong = Explored(arguments.arch), 0
    questions = {name: whole(known, name) for name in arguments.wish or WISHES}
    questions["at random"] = some(known, arguments.more, arguments.seed)
    for name, asked in questions.items():
        found = differences(known, asked)
        print(f"{name}, {arguments.arch}: {len(asked)} questions, {len(found)} answered otherwise", flush=True)
        for text in found[:10]:
            print(f"  {text}")
        wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
