"""The resolver's own search, compiled for a browser: values, masks, groups and ranks, and no rule a second time.

The resolver builds a space for every question (gpusetup/resolve/space.py). A question of the page differs from another
one of the same framework and CPU in its GPU, its system, its driver and the release alone, and each of them only adds
constraints or changes ranks. So one space is built with every driver in it, and one for each GPU and each system; what
these add is kept beside, equal additions once. tools/explorer/web/lookup.js puts them together again and searches.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple, replace

from gpusetup.errors import GpuSetupError
from gpusetup.matrix.gpus import find_gpu
from gpusetup.model.request import DriverCandidate, Request, Requirement
from gpusetup.plan.compilers import CAPPED_MAJOR
from gpusetup.resolve.constraints import build
from gpusetup.resolve.preferences import Ranked, criteria
from gpusetup.resolve.search import Pair, Unary
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from gpusetup.matrix.load import Matrix
    from gpusetup.resolve.domains import Value
    from gpusetup.resolve.preferences import Criterion
    from gpusetup.resolve.space import Space

__all__ = ["FRAMEWORKS", "Compiled", "Gpus", "drivers", "releases"]

FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy", "cuda")
_OF_THE_DRIVER = {"repository-offers", "installed-driver-stays"}
"""What only says which drivers are in question: the page says it by the values themselves."""
_NO_LIMIT_WHEN_GIVEN = {"jetson-driver-elsewhere"}
"""Rules that leave exactly the driver that was given."""


def drivers(matrix: Matrix) -> list[str]:
    """Return every driver that a person may have, the newest first."""
    known = {item.version for item in matrix.driver.versions if item.platform == "linux"}
    oldest = min(item.branch for item in matrix.driver.branches)
    return sorted((version for version in known if nv(version).major >= oldest), key=nv, reverse=True)


class Gpus:
    """What people call GPUs, and which of them the rules cannot tell apart."""

    def __init__(self, matrix: Matrix) -> None:
        self.names: dict[str, int] = {}
        """Name → kind: the products, and each part of their names that means products of one kind alone."""
        self.kinds: list[tuple[str, str | None]] = []
        """A name of the kind, and the CPU that it exists beside alone."""
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
    """Yield the parts of a name that people use for it: h100, rtx 4090, gtx 1080 ti."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    for start, first in enumerate(words):
        for length in (1, 2, 3):
            text = " ".join(words[start : start + length])
            if first[0].isalpha() and re.search(r"\d", text):
                yield text


def releases(space: Space, framework: str) -> list[str]:
    """Return the releases of a framework, the newest first."""
    from gpusetup.resolve.domains import parsed

    return sorted({value.version for value in space.values[framework]}, key=parsed, reverse=True)


class Compiled:
    """One framework on one CPU."""

    def __init__(self, matrix: Matrix, framework: str, arch: str) -> None:
        self.matrix, self.framework, self.arch = matrix, framework, arch
        self._all = tuple(DriverCandidate(version=version, modules=()) for version in drivers(matrix))
        self.base = self.space()
        usual = {(value.version, value.module) for value in self.space(every_driver=False).values["driver"]}  # type: ignore[union-attr]
        self._usual = [(value.version, value.module) in usual for value in self.base.values["driver"]]  # type: ignore[union-attr]
        self._here = {_identity(item) for item in self.base.constraints}
        self._order = criteria(self.base)
        self._own: dict[int, Any] = {}
        self._kinds: dict[Hashable, int] = {}
        self._additions: list[dict[str, Any]] = []

    @cached_property
    def newest_driver(self) -> Any:
        """The newest driver of all."""
        return max(self.base.values["driver"], key=lambda item: item.number)  # type: ignore[union-attr]

    @cached_property
    def counting(self) -> dict[str, Value]:
        """A driver of each branch that can change what pip is told, one for all others: `gpusetup.plan.compilers`."""
        newest: dict[str, Any] = {}
        for value in sorted(self.base.values["driver"], key=lambda item: item.number):  # type: ignore[union-attr]
            major = (value.branch.cuda or "0").partition(".")[0]  # type: ignore[union-attr]
            newest[str(value.branch.branch) if int(major) == CAPPED_MAJOR else "*"] = value  # type: ignore[union-attr]
        return newest

    def space(self, *, gpu: str = "", system: str | None = None, driver: str | None = None, every_driver: bool = True,
              release: str = "") -> Space:  # fmt: skip
        """Return the resolver's own space for a question."""
        wish = Requirement(component=self.framework, specifier=f"=={release}" if release else "")
        request = Request(
            requirements=(wish,), gpus=(gpu,) if gpu else (), gpu_count=int(bool(gpu)), os=system, driver=driver,
            arch=self.arch, driver_candidates=self._all if every_driver else None,
        )  # fmt: skip
        return build(self.matrix, request)

    def document(self, gpus: Gpus) -> dict[str, Any]:
        """Return everything that the page needs for this framework on this CPU."""
        space, own = self.base, len(self._order)
        named = self._named()
        added = [self._addition(gpu=name) for name, _cpu in gpus.kinds]
        systems = {
            item.id: self._addition(system=item.id) for item in self.matrix.os.systems if self.arch in item.arches
        }
        return {
            "framework": self.framework,
            "variables": list(space.values),
            "versions": {name: [value.version for value in values] for name, values in space.values.items()},
            "modules": [value.module for value in space.values["driver"]],  # type: ignore[union-attr]
            "usual": _text(sum(1 << index for index, there in enumerate(self._usual) if there)),
            "base": [self._constraint(item) for item in space.constraints if item.rule not in _OF_THE_DRIVER],
            "order": [self._criterion(item) for item in self._order],
            "any": own,
            "named": named,
            "gpus": added,
            "systems": systems,
            "additions": self._additions,
        }

    def _named(self) -> list[int] | None:
        """Return the order of the criteria when a release is named, where that is another one: of CUDA it is."""
        release = releases(self.base, self.framework)[0]
        named = criteria(self.space(release=release))
        if [_name(item) for item in named] == [_name(item) for item in self._order]:
            return None
        found = []
        for item in named:
            known = [index for index, other in enumerate(self._order) if _name(other) == _name(item)]
            if not known:
                self._order.append(item)
                known = [len(self._order) - 1]
            found.append(known[0])
        return found

    def _addition(self, **question: Any) -> int:
        """Return the number of what a GPU or a system adds; those that add the same have the same number."""
        space = self.space(**question)
        free = self._new(space)
        given = self._new(self.space(**question, driver=self._all[0].version))
        always = {key: item for key, item in free.items() if key in given}
        unexpected = {item.rule for key, item in given.items() if key not in free} - _NO_LIMIT_WHEN_GIVEN
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
        """Return the criteria that rank otherwise here, by their place."""
        found = {}
        there = criteria(space)
        if [_name(item) for item in there] != [_name(item) for item in self._order[: len(there)]]:
            raise RuntimeError("the criteria are others: that is not compiled")
        for index, (mine, other) in enumerate(zip(self._order, there, strict=False)):
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
            return {"rule": item.rule, "of": item.scope[0], "allowed": _text(item.allowed)}
        # Groups whose partners are the same behave alike: they are one.
        mine: dict[int, int] = {}
        for (_key, group), partners in zip(item.groups[0], item.masks[0], strict=True):
            mine[partners] = mine.get(partners, 0) | group
        return {
            "rule": item.rule, "of": item.scope[0], "and": item.scope[1],
            "goes": [[_text(group), _text(partners)] for partners, group in mine.items()],
        }  # fmt: skip


def _ranks(item: Ranked, values: Sequence[Value]) -> list[int]:
    """Return the place of each value's rank among all ranks."""
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
