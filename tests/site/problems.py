"""The explorer's problems against the resolver's spaces: python -m tests.site.problems [--arch ARCH].

tests/site/proof.py asks one GPU, driver and system of each kind. That the others of a kind are asked alike is shown here:
for every GPU, system and driver, and every set of wishes, the page's question holds the very constraints and criteria that
the resolver builds, in its order. A GPU and a system are asked together for each wish alone, else one after the other.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from gpusetup.resolve.preferences import Ranked, criteria
from gpusetup.resolve.search import Unary
from gpusetup.resolve.space import Space
from tests.site.proof import Explored, Question, page_of, posed
from tools.explorer.compiled import NO_LIMIT_WHEN_GIVEN, WISHES, sets
from tools.explorer.folder import ARCHES

_AT_ONCE = 200
_ASK = """asked.map((question) => {
  const hex = (set) => set.toString(16);
  window.known ??= new Map();
  const told = (item) => item.place !== undefined && known.get(item) ? known.get(item) : tell(item);
  const tell = (item) => {
    const said = JSON.stringify(item.sides ? [item.rule, item.of, item.and, item.sides[0].map(([group, partners]) => [hex(group), hex(partners)])]
      : [item.rule, item.of, hex(item.allowed)]);
    if (!numbers.has(said)) { numbers.set(said, numbers.size); fresh.push(said); }
    if (item.place !== undefined) known.set(item, numbers.get(said));
    return numbers.get(said);
  };
  window.numbers ??= new Map();
  const { variables, full, constraints, order } = Lookup.question(problem, question);
  return { variables, driver: hex(full.driver), constraints: constraints.map(told), order: order.map((item) => [item.name, item.of, item.and ?? ""]),
    ranks: Object.fromEntries(order.filter((item) => item.ranks).map((item) => [`${item.name} ${item.of}`, item.ranks.join()])) };
})"""


def every(known: Explored) -> Iterator[Question]:
    """Yield what is asked."""
    gpus: list[int | None] = [None, *range(len(known.gpus.kinds))]
    none: dict[str, Any] = {"gpu": None, "system": "", "driver": ""}
    newest = known.about["releases"]["cuda"][0]
    for some in sets():
        wishes = dict.fromkeys(some, "")
        together = len(some) == 1
        pairs = itertools.product(gpus, ["", *known.systems]) if together else [
            *((gpu, "") for gpu in gpus), *((None, system) for system in known.systems)
        ]  # fmt: skip
        for gpu, system in pairs:
            yield {**none, "wishes": wishes, "gpu": gpu, "system": system}
        if "cuda" in some:
            yield {**none, "wishes": wishes | {"cuda": newest}}
    whole = dict.fromkeys(WISHES, "")
    for driver in known.about["drivers"]:
        yield {**none, "wishes": whole, "driver": driver}
    for gpu in gpus[1:]:
        yield {**none, "wishes": whole, "gpu": gpu, "driver": known.about["drivers"][-1]}
    for name in WISHES:
        for text in known.texts(name):
            yield {**none, "wishes": {name: text}}


class _Told:
    """The resolver's space in the page's terms: its drivers are fewer, and have other places."""

    def __init__(self, known: Explored) -> None:
        values = known.compiled.base.values["driver"]
        self._places = {(value.version, value.module): index for index, value in enumerate(values)}
        self._known: dict[tuple[int, int], tuple[Any, Any]] = {}

    def mask(self, space: Space, name: str, mask: int) -> int:
        if name != "driver":
            return mask
        moved = [self._places[value.version, value.module] for value in space.values["driver"]]
        return sum(1 << place for index, place in enumerate(moved) if mask >> index & 1)

    def constraint(self, space: Space, item: Any) -> Any:
        key = (id(item), id(space.values["driver"]))
        if key not in self._known:
            self._known[key] = (self._constraint(space, item), item)
        return self._known[key][0]

    def _constraint(self, space: Space, item: Any) -> Any:
        if isinstance(item, Unary):
            return [item.rule, item.scope[0], self.mask(space, item.scope[0], item.allowed)]
        one, other = item.scope
        groups = [
            [self.mask(space, one, group), self.mask(space, other, partners)]
            for (_key, group), partners in zip(item.groups[0], item.masks[0], strict=True)
        ]
        return [item.rule, one, other, _merged(groups)]


def _merged(groups: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return who goes with whom: one entry for all that have the same partners, none for those that have none."""
    by_partners: dict[int, int] = {}
    for group, partners in groups:
        if group and partners:
            by_partners[partners] = by_partners.get(partners, 0) | group
    return sorted((group, partners) for partners, group in by_partners.items())


@cache
def _within(said: str, drivers: int) -> Any:
    """Return a constraint of the page among these drivers; None where it says nothing of them."""
    rule, one, *rest = json.loads(said)
    if len(rest) == 1:
        mask = int(rest[0], 16) & (drivers if one == "driver" else -1)
        return None if one == "driver" and mask == drivers else [rule, one, mask]
    other, groups = rest
    limits = [drivers if name == "driver" else -1 for name in (one, other)]
    return [
        rule, one, other,
        _merged([[int(text, 16) & limit for text, limit in zip(pair, limits, strict=True)] for pair in groups]),
    ]  # fmt: skip


def differences(known: Explored, asked: list[Question]) -> list[str]:
    """Compare; return what differs."""
    told, found, said = _Told(known), list[str](), list[str]()
    with page_of(known) as tells:
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            expression = (
                f"const asked = {json.dumps([posed(known, one) for one in some])}, fresh = []; const pages = {_ASK};"
            )
            answer = tells(f"(() => {{ {expression} return {{ pages, fresh }}; }})()")
            said += answer["fresh"]
            for question, page in zip(some, answer["pages"], strict=True):
                found += [f"{question}: {text}" for text in _unlike(known, told, question, page, said)]
    return found


def _unlike(known: Explored, told: _Told, question: Question, page: dict[str, Any], said: list[str]) -> Iterator[str]:
    space = known.compiled.space(
        wishes=question["wishes"], gpu=known.gpus.kinds[question["gpu"]][0] if question["gpu"] is not None else "",
        system=question["system"] or None, driver=question["driver"] or None, every_driver=False,
    )  # fmt: skip
    if page["variables"] != list(space.values):
        yield f"{page['variables']} are in question, {list(space.values)} in the resolver"
    drivers = int(page["driver"], 16)
    if drivers != told.mask(space, "driver", (1 << len(space.values["driver"])) - 1):
        yield "other drivers are in question"
    theirs = [item for number in page["constraints"] if (item := _within(said[number], drivers)) is not None]
    # Some rules leave exactly the driver that was given: it was given already.
    saying = [item for item in space.constraints if not (question["driver"] and item.rule in NO_LIMIT_WHEN_GIVEN)]
    ours = [told.constraint(space, item) for item in saying]
    if theirs != ours:
        yield f"{[item for item in theirs if item not in ours]} holds, in the resolver {[item for item in ours if item not in theirs]}"
    order = criteria(space)
    names = [
        [item.name, item.component, ""] if isinstance(item, Ranked) else [item.name, item.first[0], item.second[0]]
        for item in order
    ]
    if page["order"] != names:
        yield f"the criteria are {page['order']}, in the resolver {names}"
    for item in order:
        if isinstance(item, Ranked) and not _ranked_alike(
            space, item, told, page["ranks"][f"{item.name} {item.component}"]
        ):
            yield f"{item.name} ranks {item.component} otherwise"


def _ranked_alike(space: Space, item: Ranked, told: _Told, ranks: str) -> bool:
    """Tell whether two ranks put the values in the same order: the page's has drivers between these."""
    values, theirs = space.values[item.component], ranks.split(",")
    own = [item.rank(value) for value in values]
    places = [told.mask(space, item.component, 1 << index).bit_length() - 1 for index in range(len(values))]
    ordered = sorted(range(len(values)), key=lambda index: own[index])
    return all(
        (own[one] == own[other]) == (theirs[places[one]] == theirs[places[other]])
        and int(theirs[places[one]]) <= int(theirs[places[other]])
        for one, other in itertools.pairwise(ordered)
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.site.problems", description=__doc__)
    parser.add_argument("--arch", default="x86_64", choices=ARCHES)
    known, began = Explored(parser.parse_args(words).arch), time.monotonic()
    asked = list(every(known))
    found = differences(known, asked)
    print(
        f"{known.compiled.arch}: {len(asked)} questions, {len(found)} posed otherwise, {time.monotonic() - began:.0f} s"
    )
    for text in found[:10]:
        print(f"  {text[:1500]}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
