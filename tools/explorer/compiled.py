"""Compile the resolver's search for a browser: values, masks, groups and ranks, without a second copy of its rules.

The resolver builds a space for every question (gpusetup/resolve/space.py): constraints on one and on two components,
and ordered criteria. A constraint depends only on its components. So this module builds one space with everything,
including all drivers, and one for each GPU and system, and stores their additions, equal ones once. A question is a
subset: tools/explorer/web/lookup.js assembles it and searches.
"""

from __future__ import annotations

import re
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import astuple, replace

from gpusetup.errors import GpuSetupError
from gpusetup.matrix.gpus import find_gpu
from gpusetup.model.request import COMPONENTS, DriverCandidate, Request, Requirement
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import matches, parsed
from gpusetup.resolve.preferences import Ranked, criteria
from gpusetup.resolve.search import Pair, Unary
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.domains import DriverValue, Value
    from gpusetup.resolve.preferences import Criterion
    from gpusetup.resolve.space import Space

WISHES = ("torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl")
"""Components that can be requested, in the order of preferences (COMPONENTS)."""
_OF_THE_DRIVER = {"repository-offers", "installed-driver-stays"}
"""Rules that only limit the drivers: the page does it with the values."""
NO_LIMIT_WHEN_GIVEN = {"jetson-driver-elsewhere"}
"""Rules that leave only the given driver."""


def drivers(matrix: Matrix) -> list[str]:
    """Return every driver that can be installed, newest first."""
    known = {item.version for item in matrix.driver.versions if item.platform == "linux"}
    oldest = min(item.branch for item in matrix.driver.branches)
    return sorted((version for version in known if nv(version).major >= oldest), key=nv, reverse=True)


class Gpus:
    """Names of GPUs, and the kinds of GPUs that the rules treat alike."""

    def __init__(self, matrix: Matrix) -> None:
        self.names: dict[str, int] = {}
        """Name → kind: products, and parts of names that stand for one kind only."""
        self.kinds: list[tuple[str, str | None]] = []
        """A name of the kind, and the only CPU that it is built with."""
        numbers: dict[Hashable, int] = {}
        for name in dict.fromkeys(name for gpu in matrix.gpus.gpus for name in (gpu.name, *_spoken(gpu.name))):
            try:
                kind = find_gpu(matrix, name)
            except GpuSetupError:
                continue  # it means several
            asked = astuple(replace(kind, label="", names=(), sources=(), inferred=False))
            if asked not in numbers:
                numbers[asked] = len(self.kinds)
                self.kinds.append((name, kind.only_cpu))
            self.names[name] = numbers[asked]


def _spoken(name: str) -> Iterator[str]:
    """Yield the short forms of a name: h100, rtx 4090, gtx 1080 ti."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    for start, first in enumerate(words):
        for length in (1, 2, 3):
            text = " ".join(words[start : start + length])
            if first[0].isalpha() and re.search(r"\d", text):
                yield text


def sets() -> list[tuple[str, ...]]:
    """Return all sets of components that can be requested together."""
    return [some for length in range(1, len(WISHES) + 1) for some in combinations(WISHES, length)]


def releases(space: Space, component: str) -> list[str]:
    """Return the releases of a component, newest first."""
    return sorted({value.version for value in space.values[component]}, key=parsed, reverse=True)


def series(space: Space, component: str) -> dict[str, list[str]]:
    """Return the series of a component, newest first, with their releases."""
    known = releases(space, component)
    numbers = [parsed(version).release for version in known]
    beginnings = {number[:length] for number in numbers for length in range(1, len(number))}
    texts = [".".join(map(str, number)) + ".*" for number in sorted(beginnings, reverse=True)]
    found = {text: matches(Requirement(component=component, specifier=f"=={text}"), known) for text in texts}
    return {text: [version for version in known if version in some] for text, some in found.items()}


def drivers_of(space: Space) -> tuple[DriverValue, ...]:
    """Return the driver values of a space."""
    return cast("tuple[DriverValue, ...]", tuple(space.values["driver"]))


class Compiled:
    """All data for one CPU."""

    def __init__(self, matrix: Matrix, arch: str) -> None:
        self.matrix, self.arch = matrix, arch
        self._all = tuple(DriverCandidate(version=version, modules=()) for version in drivers(matrix))
        self.base = self.space()
        usual = {(value.version, value.module) for value in drivers_of(self.space(every_driver=False))}
        self._usual = [(value.version, value.module) in usual for value in drivers_of(self.base)]
        self._here = {_identity(item) for item in self.base.constraints}
        self._order = list({_name(item): item for item in criteria(self.base)}.values())
        self._own: dict[int, Any] = {}
        self._kinds: dict[Hashable, int] = {}
        self._additions: list[dict[str, Any]] = []
        self._places: dict[tuple[Any, ...], int] = {}

    @cached_property
    def newest_driver(self) -> Any:
        """The newest driver."""
        return max(drivers_of(self.base), key=lambda item: item.number)

    def space(self, *, wishes: Mapping[str, str] | None = None, gpu: str = "", system: str | None = None,
              driver: str | None = None, every_driver: bool = True) -> Space:  # fmt: skip
        """Return the resolver's space for a question; wishes: component → ``2.6.0``, ``2.6.*`` or an empty string."""
        asked = wishes if wishes is not None else dict.fromkeys(WISHES, "")
        requirements = tuple(
            Requirement(component=name, specifier=f"=={asked[name]}" if asked[name] else "")
            for name in COMPONENTS if name in asked
        )  # fmt: skip
        request = Request(
            requirements=requirements, gpus=(gpu,) if gpu else (), gpu_count=int(bool(gpu)), os=system, driver=driver,
            arch=self.arch, driver_candidates=self._all if every_driver else None,
        )  # fmt: skip
        return build(self.matrix, request)

    def document(self, gpus: Gpus) -> dict[str, Any]:
        """Return all data that the page needs for this CPU."""
        space = self.base
        systems = [item.id for item in self.matrix.os.systems if self.arch in item.arches]
        self._places = self._placed([name for name, _cpu in gpus.kinds], systems)
        return {
            "arch": self.arch,
            "wishes": WISHES,
            "variables": list(space.values),
            "versions": {name: [value.version for value in values] for name, values in space.values.items()},
            "modules": [value.module for value in drivers_of(space)],
            "usual": _text(sum(1 << index for index, there in enumerate(self._usual) if there)),
            "base": [self._constraint(item) for item in space.constraints if item.rule not in _OF_THE_DRIVER],
            "order": [self._criterion(item) for item in self._order],
            "sets": {"+".join(some): self._set(some) for some in sets()},
            "gpus": [self._addition(gpu=name) for name, _cpu in gpus.kinds],
            "systems": {system: self._addition(system=system) for system in systems},
            "additions": self._additions,
        }

    def _set(self, some: tuple[str, ...]) -> list[list[int]]:
        """Return the components of a question, and the criteria of the choice.

        The last list is for a named CUDA, which uses another order: it prefers the driver that it was built with.
        """
        names = list(self.base.values)
        free = self.space(wishes=dict.fromkeys(some, ""))
        found = [[names.index(name) for name in free.values], self._ordered(free)]
        if "cuda" in some:
            release = releases(self.base, "cuda")[0]
            found.append(self._ordered(self.space(wishes=dict.fromkeys(some, "") | {"cuda": release})))
        return found

    def _ordered(self, space: Space) -> list[int]:
        places = {_name(item): place for place, item in enumerate(self._order)}
        return [places[_name(item)] for item in criteria(space)]

    def _placed(self, gpus: Sequence[str], systems: Sequence[str]) -> dict[tuple[Any, ...], int]:
        """Return the index of each constraint in the resolver's order, on which conflicts depend."""
        asked = [{"gpu": name, "system": systems[0]} for name in gpus]
        asked += [{"gpu": gpus[0], "system": system} for system in systems]
        before: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
        for question in asked:
            keys = [(item.rule, item.scope) for item in self.space(**question).constraints]
            for one, other in pairwise(keys):
                before.setdefault(other, set()).add(one)
        return {key: place for place, key in enumerate(TopologicalSorter(before).static_order())}

    def _addition(self, **question: Any) -> int:
        """Return the number of a GPU's or system's additions; equal additions have the same number."""
        space = self.space(**question)
        free = self._new(space)
        given = self._new(self.space(**question, driver=self._all[0].version))
        always = {key: item for key, item in free.items() if key in given}
        unexpected = {item.rule for key, item in given.items() if key not in free} - NO_LIMIT_WHEN_GIVEN
        if unexpected:
            raise RuntimeError(f"{question}: {unexpected} depends on the driver in a way that is not compiled")
        document = {
            "always": [self._constraint(item) for item in always.values()],
            "free": [self._constraint(item) for key, item in free.items() if key not in always],
            "ranks": self._other_ranks(space),
        }
        key = repr(document)
        if key not in self._kinds:
            self._kinds[key] = len(self._additions)
            self._additions.append(document)
        return self._kinds[key]

    def _new(self, space: Space) -> dict[Hashable, Unary | Pair]:
        found = {_identity(item): item for item in space.constraints if item.rule not in _OF_THE_DRIVER}
        lost = [key for key in self._here if key not in found and key[0] not in _OF_THE_DRIVER]
        if lost:
            raise RuntimeError(f"{lost[0][0]} holds no longer in a narrower question: that is not compiled")
        return {key: item for key, item in found.items() if key not in self._here}

    def _other_ranks(self, space: Space) -> dict[str, list[int]]:
        """Return the criteria with other ranks here, by index."""
        found = {}
        there = {_name(item): item for item in criteria(space)}
        if list(there) != [_name(item) for item in self._order]:
            raise RuntimeError("the criteria are others: that is not compiled")
        for index, (mine, other) in enumerate(zip(self._order, there.values(), strict=True)):
            if isinstance(mine, Ranked) and isinstance(other, Ranked):
                ranks = _ranks(other, space.values[other.component])
                if ranks != self._of_base(index)["ranks"]:
                    found[str(index)] = ranks
            elif self._of_base(index) != self._criterion(other):
                raise RuntimeError(f"{mine.name} relates otherwise: that is not compiled")
        return found

    def _of_base(self, index: int) -> Any:
        if index not in self._own:
            self._own[index] = self._criterion(self._order[index])
        return self._own[index]

    def _criterion(self, item: Criterion) -> dict[str, Any]:
        values = self.base.values
        if isinstance(item, Ranked):
            same = {"alike": True} if item.alike is not None else {}
            return {"name": item.name, "of": item.component, "ranks": _ranks(item, values[item.component]), **same}
        (one, first), (other, second) = item.first, item.second
        mine, theirs = [first(value) for value in values[one]], [second(value) for value in values[other]]
        columns = list(dict.fromkeys(theirs))
        rows = {key: tuple(item.level(key, column) for column in columns) for key in dict.fromkeys(mine)}
        distinct = list(dict.fromkeys(rows.values()))
        return {
            "name": item.name, "of": one, "and": other, "levels": distinct,
            "first": [distinct.index(rows[key]) for key in mine], "second": [columns.index(key) for key in theirs],
        }  # fmt: skip

    def _constraint(self, item: Unary | Pair) -> dict[str, Any]:
        if isinstance(item, Unary):
            return {"rule": item.rule, "of": item.scope[0], "allowed": _text(item.allowed), **self._told(item)}
        # Groups whose partners are the same behave alike: they are one.
        mine: dict[int, int] = {}
        for (_key, group), partners in zip(item.groups[0], item.masks[0], strict=True):
            mine[partners] = mine.get(partners, 0) | group
        return {
            "rule": item.rule, "of": item.scope[0], "and": item.scope[1],
            "goes": [[_text(group), _text(partners)] for partners, group in mine.items()], **self._told(item),
        }  # fmt: skip

    def _told(self, item: Unary | Pair) -> dict[str, int]:
        """Return the source of a conflict: the index of a constraint, and whether it concerns a given value."""
        return {"place": self._places[item.rule, item.scope], **({"given": 1} if item.subject is not None else {})}


def _ranks(item: Ranked, values: Sequence[Value]) -> list[int]:
    """Return the rank of each value as an index into the sorted ranks."""
    given = [item.rank(value) for value in values]
    ordered: list[Any] = []
    for rank in sorted(given):
        if not ordered or rank != ordered[-1]:
            ordered.append(rank)
    places = {rank: place for place, rank in enumerate(ordered)}
    return [places[rank] for rank in given]


def _identity(item: Unary | Pair) -> tuple[Any, ...]:
    if isinstance(item, Unary):
        return (item.rule, item.scope, item.allowed)
    return (item.rule, item.scope, tuple(item.masks[0]), tuple(mask for _key, mask in item.groups[0]))


def _name(item: Criterion) -> tuple[str, ...]:
    return (item.name, item.component) if isinstance(item, Ranked) else (item.name, item.first[0], item.second[0])


def _text(mask: int) -> str:
    return format(mask, "x")
