"""Several toolkits side by side on one driver: the first is the stack's own, each other one is resolved on its driver.

A newer driver runs what an older one ran, so there is a stack where the driver that the most demanding toolkit needs
alone fits the rest too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from gpusetup.errors import NoStackError
from gpusetup.model.request import Requirement
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.request import Request
    from gpusetup.model.stack import Relation, Resolution

__all__ = ["with_others"]

_WEAKEST_LAST: tuple[Relation, ...] = ("native", "backward", "minor-version", "forward")


def with_others(request: Request, matrix: Matrix, resolve: Callable[[Request, Matrix], Resolution]) -> Resolution:
    """Return a stack with every toolkit that was asked for; the reasons say of each why it is this release."""
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
        weakest = max((driver.relation, *(cuda.relation for cuda in cudas)), key=_WEAKEST_LAST.index)
        driver = replace(driver, relation=weakest)
    reasons = (reason for other in (main, *found) for reason in other.reasons if other is main or _of_cuda(reason))
    warnings = (text for other in (main, *found) for text in other.warnings)
    return replace(
        main,
        request=request,
        stack=replace(main.stack, driver=driver, cudas=cudas),
        reasons=tuple(dict.fromkeys(reasons)),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _of_cuda(reason: object) -> bool:
    return getattr(reason, "component", "") == "cuda"


def _driver(resolution: Resolution) -> str:
    return resolution.stack.driver.version if resolution.stack.driver is not None else ""


def _with(requirements: Iterable[Requirement], one: Requirement) -> tuple[Requirement, ...]:
    """Return requirements with this one instead of what they say of its component."""
    return (*(item for item in requirements if item.component != one.component), one)


def _on(request: Request, driver: str) -> Request:
    """Return a question that only this driver answers."""
    return replace(
        request, requirements=_with(request.requirements, Requirement(component="driver", specifier=f"=={driver}"))
    )


def _alone(request: Request, specifier: str) -> Request:
    """Return the question for one toolkit by itself: what is asked of the driver holds for it too."""
    asked = [item for item in request.requirements if item.component == "driver"]
    wish = Requirement(component="cuda", specifier=specifier)
    return replace(request, requirements=(wish, *asked), recorded=_applied(request, specifier), forward=False)


def _own(request: Request) -> tuple[Requirement, ...]:
    """Return what is on record of the stack's own components: of its toolkits the one that the wish means."""
    wish = next(item for item in request.requirements if item.beside)
    rest = (item for item in request.recorded if item.component != "cuda")
    return (*rest, *_applied(request, wish.specifier))


def _applied(request: Request, specifier: str) -> tuple[Requirement, ...]:
    """Return the recorded toolkit that a specifier means."""
    recorded = [item for item in request.recorded if item.component == "cuda"]
    texts = [text for item in recorded for text in (item.specifier, *item.beside)]
    found = next((text for text in texts if SpecifierSet(specifier).contains(text.removeprefix("=="))), None)
    return (Requirement(component="cuda", specifier=found),) if found else ()
