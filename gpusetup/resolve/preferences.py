"""What makes one stack better than another: ordered, named criteria, applied one after the other and never weighed.

Each criterion keeps the best of what the earlier ones left. In order: components requested as `latest`, a working
installed driver, recorded versions, a supported branch, a driver without known vulnerabilities, the newest
vendor-confirmed release of each requested component, a driver native to a requested CUDA, a branch with a year to live,
native before minor-version compatibility, the usual build of that release, and the newest of everything else.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import Struct

from gpusetup.matrix.security import floor, vulnerable
from gpusetup.model.release import DriverBranch
from gpusetup.model.request import COMPONENTS, PACKAGES, Requirement
from gpusetup.resolve import rules
from gpusetup.resolve.domains import DriverValue, JaxValue, TorchValue, Value, number, parsed
from gpusetup.resolve.hardware import nccl_runs, uncovered_libraries
from gpusetup.resolve.packages import needs_torch
from gpusetup.resolve.search import Domains, Pair, Problem
from gpusetup.resolve.space import FRAMEWORKS, Space, grouped, python_rank
from gpusetup.versions import nv

_KIND_RANK = {"LTSB": 0, "PB": 1, "NFB": 2, "unknown": 2, "evaluation": 3}
_STATUS_RANK = {"stable": 0, "legacy": 1, "experimental": 2, "unlisted": 3, "lts": 4}
OPEN_MODULES_BY_DEFAULT_FROM = 560


class Ranked(Struct, frozen=True):
    """A criterion on one component: values with a lower rank are better.

    With `alike`, values with the same key as a best one are kept too: it chooses a release and leaves its builds open.
    """

    name: str
    component: str
    rank: Callable[[Any], Any]
    alike: Callable[[Any], Any] | None = None


class Related(Struct, frozen=True):
    """A criterion on two components, compared through a key of each: level 0 is best."""

    name: str
    first: tuple[str, Callable[[Any], Any]]
    second: tuple[str, Callable[[Any], Any]]
    level: Callable[[Any, Any], int]


Criterion = Ranked | Related


def _vendor_first(value: Value) -> int:
    if isinstance(value, DriverValue) and value.version == value.branch.latest:
        return 0
    return 0 if value.confidence == "vendor" else 1


def _newest_first(value: Value) -> Any:
    return _Reversed(number(value))


class _Reversed:
    """Reverses an ordering, for ranks in which the newest comes first."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: "_Reversed") -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)


def _torch_build(space: Space) -> Callable[[TorchValue], Any]:
    def rank(value: TorchValue) -> Any:
        build = value.build
        return (not space.on_pypi(value), _STATUS_RANK[build.status], _vendor_first(value), _Reversed(nv(build.cuda)))

    return rank


def build_rank(space: Space, value: Value) -> Any:
    """Return the sort key of a release's builds when nothing else decides; the usual build has the highest."""
    if isinstance(value, TorchValue):
        return _Reversed(_torch_build(space)(value))
    return value.release.cuda_major if isinstance(value, JaxValue) else 0


def _release(space: Space, component: str, *, latest: bool = False) -> Iterable[Criterion]:
    """Yield the criteria that choose a release; the driver decides later which build of torch or JAX is taken."""
    final_first = latest or component in PACKAGES
    before = (lambda value: parsed(value.version).is_prerelease) if final_first else _vendor_first
    yield Ranked(
        "newest", component, lambda value: (before(value), _newest_first(value)), alike=lambda value: value.version
    )
    if component == "torch":
        yield Ranked("libraries-cover-gpu", component, lambda value: bool(uncovered_libraries(space, value)))


def _build(space: Space, component: str) -> Iterable[Criterion]:
    if component == "torch":
        yield Ranked("build-on-pypi", component, _torch_build(space))
    elif component == "jax":
        yield Ranked("newest-build", component, lambda value: -value.release.cuda_major)
    elif component == "cupy":
        yield Ranked("newest-build", component, lambda value: _Reversed(nv(max(value.release.cuda, key=nv))))
    elif component == "cudnn":
        yield Ranked("own-support-row", component, lambda value: value.leaning)
    elif component == "nccl":
        yield Ranked("newest-build", component, lambda value: (value.build.kind, _Reversed(nv(value.build.cuda))))


def criteria(space: Space) -> list[Criterion]:
    """Return every criterion that applies, in order."""
    request, found = space.request, list[Criterion]()
    named = [name for name in COMPONENTS if name in space.named and name != "python"]
    if "torch" in named:  # a package that needs none, and is never built, follows it
        files = {name: space.matrix.package(name) for name in named if name in PACKAGES}
        named.sort(key=lambda name: name in files and not (files[name].build or needs_torch(files[name])))
    if "torch" in space.values and "torch" not in named:
        named.append("torch")  # a package needs it
    for component in named:
        if component in space.named and space.named[component].latest:
            found += _release(space, component, latest=True)
    if request.installed_driver is not None and request.driver is None:
        kept = (request.installed_driver, request.installed_module)
        found.append(
            Ranked(
                "keep-installed-driver",
                "driver",
                lambda value: 0 if (value.version == kept[0] and kept[1] in (None, value.module)) else 1,
            )
        )
    found += [_as_recorded(item) for item in request.recorded if item.component in space.values]
    found.append(Ranked("supported-branch", "driver", lambda value: value.ended))
    if not request.allow_vulnerable:
        least = floor(space.matrix)
        found.append(
            Ranked(
                "security-floor",
                "driver",
                lambda value: vulnerable(space.matrix, "driver", value.version, least) is not None,
            )
        )
    for component in named:
        # Drivers and toolkits are chosen for long support, not as the newest; libraries follow their CUDA.
        if component in (*PACKAGES, *FRAMEWORKS, "cupy"):
            found += _release(space, component)
    found += [_native_first(space, consumer) for consumer in _asked_runtimes(space)]
    found.append(Ranked("year-to-live", "driver", lambda value: short_lived(value.branch, space.matrix.date)))
    found += [_native_first(space, consumer) for consumer in (*FRAMEWORKS, "cuda")]
    for component in named:
        if component in ("cudnn", "nccl"):
            found += _release(space, component)
        found += _build(space, component)
    found += [
        Ranked("long-lived-branch", "driver", lambda value: (value.ended, *_branch_rank(value))),
        Ranked("vendor-confirmed", "driver", _vendor_first),
        Ranked("newest", "driver", _newest_first),
        Ranked(
            "default-module",
            "driver",
            lambda value: (value.module == "open") != (value.branch.branch >= OPEN_MODULES_BY_DEFAULT_FROM),
        ),
        Related(
            "tested-together",
            ("cupy", lambda value: value.release.cuda),
            ("cuda", lambda value: value.release.minor),
            lambda tested, minor: int(minor not in tested),
        ),
    ]
    for component in ("cuda", "cudnn", "nccl", "cupy"):
        if component == "nccl":
            found.append(
                Ranked("code-for-gpu", "nccl", lambda value: not all(nccl_runs(value, gpu.cc) for gpu in space.gpus))
            )
            found += [
                Related(
                    "built-for-this-cuda",
                    ("nccl", space.minor),
                    (runtime, space.minor),
                    lambda built, minor: int(nv(built) > nv(minor)),
                )
                for runtime in ("cuda", *FRAMEWORKS)
            ]
        if component not in space.named or component == "cuda":
            found += (*_release(space, component), *_build(space, component))
    found.append(Ranked("distribution-python", "python", python_rank(space)))
    return [item for item in found if _applies(item, space)]


def _as_recorded(item: Requirement) -> Criterion:
    def differs(value: Value) -> bool:
        other = isinstance(value, TorchValue) and item.variant not in ("", value.build.variant)
        return other or item.specifier != f"=={value.version}"

    return Ranked("stays-on-record", item.component, differs)


def _asked_runtimes(space: Space) -> Iterable[str]:
    """Yield the components whose CUDA version the request names: that CUDA should run natively."""
    for name in ("cuda", "torch"):
        wish = space.named.get(name)
        if wish is not None and (wish.variant or wish.latest or (name == "cuda" and wish.specifier)):
            yield name


def short_lived(branch: DriverBranch, day: str) -> bool:
    """Return whether a branch's support ends within a year or at an unknown date."""
    if branch.eol == "unknown":
        return True
    year, rest = int(day[:4]) + 1, day[4:]
    return branch.eol < f"{year}{rest}"[: len(branch.eol)]


def _native_first(space: Space, consumer: str) -> Related:
    levels = {"native": 0, "backward": 0, "minor-version": 1, "forward": 2}
    drivers = {value.version: cast("DriverValue", value) for value in space.values["driver"]}

    def level(version: str, need: rules.CudaNeed) -> int:
        return levels[rules.relation(space.matrix, drivers[version], need, forward=space.forward) or "forward"]

    return Related("native-before-minor", ("driver", lambda value: value.version), (consumer, space.need), level)


def _branch_rank(value: DriverValue) -> tuple[int, ...]:
    kind = _KIND_RANK[value.branch.kind]
    return (max(kind, _KIND_RANK["unknown"]) if value.branch.eol == "unknown" else kind,)


def _applies(criterion: Criterion, space: Space) -> bool:
    names = (criterion.component,) if isinstance(criterion, Ranked) else (criterion.first[0], criterion.second[0])
    return all(name in space.values for name in names)


def best(space: Space) -> dict[str, Value] | None:
    """Return the preferred solution of a search space, or None."""
    problem = space.problem()
    return optimise(space, problem, problem.initial(), criteria(space))


def optimise(
    space: Space, problem: Problem, domains: Domains | None, order: list[Criterion]
) -> dict[str, Value] | None:
    """Return the preferred solution, or None when there is none, by applying one criterion after the other."""
    witness = problem.solve(domains)
    if domains is None or witness is None:
        return None
    for criterion in order:
        if isinstance(criterion, Ranked):
            domains, witness = _apply_ranked(space, problem, domains, witness, criterion)
        else:
            problem, domains, witness = _apply_related(space, problem, domains, witness, criterion)
    solution = problem.solve(domains)
    assert solution is not None  # noqa: S101 - the witness is one
    return {name: space.values[name][mask.bit_length() - 1] for name, mask in solution.items()}


def _apply_ranked(
    space: Space, problem: Problem, domains: Domains, witness: Domains, criterion: Ranked
) -> tuple[Domains, Domains]:
    component, values = criterion.component, space.values[criterion.component]
    if not domains[component] & (domains[component] - 1):
        return domains, witness
    masks = grouped(values, criterion.rank, domains[component])
    alike = grouped(values, criterion.alike, domains[component]) if criterion.alike is not None else {}
    for rank in sorted(masks):
        masks[rank] |= sum(same for same in alike.values() if same & masks[rank])
        limited = problem.restrict(domains, component, masks[rank])
        solution = witness if witness[component] & masks[rank] else problem.solve(limited)
        if limited is not None and solution is not None:
            return limited, solution
    return domains, witness


def _at_most(levels: dict[tuple[Any, Any], int], limit: int) -> Callable[[Any, Any], bool]:
    return lambda one, other: levels[one, other] <= limit


def _apply_related(
    space: Space, problem: Problem, domains: Domains, witness: Domains, criterion: Related
) -> tuple[Problem, Domains, Domains]:
    sides: list[tuple[str, dict[Any, int]]] = []
    reached = []
    for name, key in (criterion.first, criterion.second):
        sides.append((name, grouped(space.values[name], key, domains[name])))
        reached.append(key(space.values[name][witness[name].bit_length() - 1]))
    levels = {(one, other): criterion.level(one, other) for one in sides[0][1] for other in sides[1][1]}
    distinct = sorted(set(levels.values()))
    for limit in distinct[:-1]:
        narrowed = problem.with_constraint(Pair(criterion.name, sides[0], sides[1], _at_most(levels, limit)))
        limited = narrowed.propagate(dict(domains), [criterion.first[0], criterion.second[0]])
        solution = witness if levels[reached[0], reached[1]] <= limit else narrowed.solve(limited)
        if limited is not None and solution is not None:
            return narrowed, limited, solution
    return problem, domains, witness
