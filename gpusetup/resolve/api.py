"""The resolver's entry points: return one stack for a request, or raise the minimal conflict with suggestions."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from gpusetup.errors import NoStackError, PolicyError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import PACKAGES, Request, Requirement
from gpusetup.model.stack import Resolution
from gpusetup.resolve.answer import WEAKEST_LAST, stack_of, warnings_about
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import parsed
from gpusetup.resolve.naming import last_before, published_versions
from gpusetup.resolve.policy import KEYS
from gpusetup.resolve.preferences import best
from gpusetup.resolve.reasons import conflict, reasons
from gpusetup.resolve.search import minimal_conflict
from gpusetup.resolve.space import DEFAULT_ARCH, Space
from gpusetup.resolve.suggest import left_open, suggestions
from gpusetup.versions import nv


def with_others(request: Request, matrix: Matrix, resolve: Callable[[Request, Matrix], Resolution]) -> Resolution:
    """Resolve a request for several CUDA toolkits side by side, each with its own reasons."""
    wish = next(item for item in request.requirements if item.beside)
    first = replace(request, requirements=_with(request.requirements, replace(wish, beside=())), recorded=_own(request))
    others = [_alone(request, specifier) for specifier in wish.beside]
    main = resolve(first, matrix)
    try:
        found = [resolve(_on(other, _driver(main)), matrix) for other in others]
    except NoStackError:
        needed = max((_driver(resolve(other, matrix)) for other in others), key=nv)
        main = resolve(_on(first, needed), matrix)
        found = [resolve(_on(other, needed), matrix) for other in others]
    cudas = tuple(other.stack.cuda for other in found if other.stack.cuda is not None)
    driver = main.stack.driver
    if driver is not None:
        weakest = max((driver.relation, *(cuda.relation for cuda in cudas)), key=WEAKEST_LAST.index)
        driver = replace(driver, relation=weakest)
    reasons = [*main.reasons, *(one for other in found for one in other.reasons if one.component == "cuda")]
    warnings = (text for other in (main, *found) for text in other.warnings)
    return replace(
        main,
        request=replace(request, arch=main.request.arch),
        stack=replace(main.stack, driver=driver, cudas=cudas),
        reasons=tuple(dict.fromkeys(reasons)),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _driver(resolution: Resolution) -> str:
    return resolution.stack.driver.version if resolution.stack.driver is not None else ""


def _with(requirements: Iterable[Requirement], one: Requirement) -> tuple[Requirement, ...]:
    """Return the requirements with this one replacing any for the same component."""
    return (*(item for item in requirements if item.component != one.component), one)


def _on(request: Request, driver: str) -> Request:
    return replace(
        request, requirements=_with(request.requirements, Requirement(component="driver", specifier=f"=={driver}"))
    )


def _alone(request: Request, specifier: str) -> Request:
    """Return a request for one toolkit alone, with the original requirement on the driver."""
    asked = [item for item in request.requirements if item.component == "driver"]
    wish = Requirement(component="cuda", specifier=specifier)
    return replace(request, requirements=(wish, *asked), recorded=_applied(request, specifier), forward=False)


def _own(request: Request) -> tuple[Requirement, ...]:
    """Return the recorded versions for the main stack, with only the toolkit that its own specifier matches."""
    wish = next(item for item in request.requirements if item.beside)
    rest = (item for item in request.recorded if item.component != "cuda")
    return (*rest, *_applied(request, wish.specifier))


def _applied(request: Request, specifier: str) -> tuple[Requirement, ...]:
    recorded = [item for item in request.recorded if item.component == "cuda"]
    texts = [text for item in recorded for text in (item.specifier, *item.beside)]
    found = next((text for text in texts if SpecifierSet(specifier).contains(text.removeprefix("=="))), None)
    return (Requirement(component="cuda", specifier=found),) if found else ()


_READABLE = 4
"""A longer conflict is replaced by a shorter one about the newest release, if there is one."""


def resolve(request: Request, matrix: Matrix) -> Resolution:
    """Return the preferred stack with its reasons; raise NoStackError with the minimal conflict when none fits."""
    if any(item.beside for item in request.requirements):
        return with_others(request, matrix, _resolved)
    return _resolved(request, matrix)


def _resolved(request: Request, matrix: Matrix) -> Resolution:
    space = build(matrix, request)
    solution = best(space)
    if solution is None:
        raise _no_stack(space)
    return Resolution(
        matrix=matrix.stamp,
        request=request if space.arch == DEFAULT_ARCH else replace(request, arch=space.arch),
        stack=stack_of(space, solution),
        reasons=reasons(space, solution),
        warnings=warnings_about(space, solution),
    )


def _no_stack(space: Space) -> NoStackError:
    shortest = conflict(space, minimal_conflict(space.problem()))
    if len(shortest) > _READABLE:
        shortest = min((shortest, *_about_newest(space)), key=len)
    kind, reference, text = NoStackError, "GS-210", "no stack fits: these requirements conflict"
    ways_out, policy = suggestions(space), space.request.policy
    broken = [KEYS[item["rule"]] for item in shortest if item["rule"] in KEYS]
    if policy is not None and broken and fits(replace(space.request, policy=None), space.matrix):
        said = " and ".join(dict.fromkeys(policy.quoted(key) for key in broken))
        ways_out = (*ways_out, *left_open(space), f"change {said}")
        kind, reference, text = PolicyError, "GS-212", f"the policy forbids every stack that fits: {said}"
    document = {
        "schema": "gpusetup/stack/1",
        "ok": False,
        "matrix": {"date": space.matrix.date, "digest": space.matrix.digest},
        "conflict": shortest,
        "suggestions": list(ways_out),
    }
    note = "\n  ".join(f"- {item['text']}" for item in shortest)
    return kind(reference, text, document=document, note=note, hint="; or ".join(ways_out))


def _about_newest(space: Space) -> Iterator[list[dict[str, str]]]:
    """Yield, for each package requested in any version, the conflict of its newest release: it is often shorter."""
    wishes = space.request.requirements
    for wish in wishes:
        if wish.component not in PACKAGES or wish.specifier:
            continue
        newest = max(space.values[wish.component], key=lambda value: parsed(value.version)).version
        named = msgspec.structs.replace(wish, specifier=f"=={newest}")
        asked = tuple(named if item is wish else item for item in wishes)
        alone = build(space.matrix, msgspec.structs.replace(space.request, requirements=asked))
        told = conflict(alone, minimal_conflict(alone.problem()))
        text = f"the newest {wish.component} is {newest}, and no older one fits either"
        yield [item | {"text": text} if item["text"].startswith(f"{named} was asked for") else item for item in told]


def beyond(request: Request, matrix: Matrix) -> list[tuple[Requirement, str]]:
    """Return the requirements that only a release newer than the matrix could meet, with the newest known release."""
    space = build(matrix, request)
    found = []
    for wish in request.requirements:
        bounds = [parsed(part.version.removesuffix(".*")) for part in SpecifierSet(wish.specifier)]
        if bounds and wish.component != "python":
            known = published_versions(space, wish.component)
            met = any(parsed(version) in SpecifierSet(wish.specifier) for version in known)
            last = "" if met else last_before(known, wish.component, bounds)
            found += [(wish, last)] if last else []
    return found


def fits(request: Request, matrix: Matrix) -> bool:
    """Return whether any stack fits."""
    return build(matrix, request).problem().satisfiable()
