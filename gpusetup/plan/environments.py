"""Named Python environments: each resolved on its own, all with one driver; what of them a host lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.errors import NoStackError
from gpusetup.model.environment import Environment, RoleEnvironment
from gpusetup.model.plan import Action
from gpusetup.model.request import DEFAULT_COMPONENTS, Requirement
from gpusetup.plan.compilers import without_caps
from gpusetup.plan.exact import exact_requirements
from gpusetup.plan.python import interpreter_of, python_requirements, system_of
from gpusetup.plan.recorded import record_of
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.applied import RecordedPython
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.package import Package
    from gpusetup.model.request import Request
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import Reason, Resolution, Stack
    from gpusetup.plan.packages.base import Context

__all__ = [
    "environment_actions",
    "environment_packages",
    "environment_reasons",
    "environment_warnings",
    "environments_of",
    "for_role",
    "forgotten_environments",
    "path_of",
    "with_one_driver",
]


def path_of(settings: Settings, name: str) -> str:
    """Return where an environment is: beside the default one."""
    return f"{settings.python_path}-{name}"


def with_one_driver(
    facts: HostFacts, settings: Settings, base: Request, answer: Resolution, resolve: Callable[[Request], Resolution]
) -> tuple[Resolution, dict[str, Resolution]]:
    """Return the host's own stack and that of each environment, all on one driver; raises where none serves all.

    A newer driver runs what an older one runs, so the newest that any of them chose is tried first.
    """
    questions = {wish.name: _question(facts, settings, base, wish.name) for wish in settings.environments}
    alone = {name: _resolved(name, question, resolve) for name, question in questions.items()}
    versions = {_driver(found.stack) for found in (answer, *alone.values())} - {""}
    if len(versions) < 2:
        return answer, alone
    clashes = []
    for version in sorted(versions, key=nv, reverse=True):
        found = _together(version, base, questions, resolve)
        if not isinstance(found, NoStackError):
            return found
        clashes.append(found)
    chosen = ", ".join(f"{name} takes {_driver(found.stack)}" for name, found in sorted(alone.items()))
    why = f"{clashes[0].message}\n  {clashes[0].note}"
    raise NoStackError(
        "GS-378",
        "no driver serves all environments of this host",
        note=f"by themselves {chosen}, and the host {_driver(answer.stack)}\n  {why}",
        hint="loosen one of them in gpusetup_environments, or give them hosts of their own",
    )


def _together(
    version: str, base: Request, questions: Mapping[str, Request], resolve: Callable[[Request], Resolution]
) -> tuple[Resolution, dict[str, Resolution]] | NoStackError:
    try:
        named = {name: _resolved(name, _on(question, version), resolve) for name, question in questions.items()}
        return resolve(_on(base, version)), named
    except NoStackError as error:
        return error


def _question(facts: HostFacts, settings: Settings, base: Request, name: str) -> Request:
    """Ask for what lives in the environment; the wish for a driver is the host's."""
    wish = next(item for item in settings.environments if item.name == name)
    driver = tuple(item for item in base.requirements if item.component == "driver")
    return replace(
        base,
        requirements=(*wish.requirements, *(driver or (Requirement(component="driver"),))),
        recorded=() if settings.upgrade else _recorded(facts, name),
        library_candidates=(),
        wheels_only=True,
    )


def _recorded(facts: HostFacts, name: str) -> tuple[Requirement, ...]:
    found = _applied(facts).get(name)
    exact = exact_requirements(found.stack) if found is not None else ()
    return tuple(item for item in exact if item.component != "driver")


def _applied(facts: HostFacts) -> dict[str, Environment]:
    lock = record_of(facts).lock
    known = lock.wanted.environments if lock.wanted is not None and not lock.unread else UNSET
    return {item.name: item for item in known or ()}


def _resolved(name: str, question: Request, resolve: Callable[[Request], Resolution]) -> Resolution:
    try:
        return resolve(question)
    except NoStackError as error:
        message = f"environment {name}: {error.message}"
        raise NoStackError(
            error.reference, message, note=error.note, hint=error.hint, link=error.link, document=error.document
        ) from None


def _on(question: Request, version: str) -> Request:
    asked = question.requirements or tuple(Requirement(component=name) for name in DEFAULT_COMPONENTS)
    others = tuple(item for item in asked if item.component != "driver")
    return replace(question, requirements=(*others, Requirement(component="driver", specifier=f"=={version}")))


def _driver(stack: Stack) -> str:
    return stack.driver.version if stack.driver is not None else ""


def environments_of(context: Context, matrix: Matrix) -> tuple[Environment, ...]:
    """Return the environments as the host is to have them."""
    facts, settings = context.facts, context.settings
    applied = _applied(facts)
    system = system_of(matrix, facts)
    found = []
    for name, answer in context.named.items():
        stack = answer.stack
        there = applied.get(name)
        lines = python_requirements(stack, matrix)
        if there is not None and not settings.upgrade and _made_for(there.stack, stack):
            # Gigabytes are not fetched again for a limit alone, unless the driver is older than the one it was for.
            lines = there.requirements if without_caps(there.requirements) == without_caps(lines) else lines
        made_with = interpreter_of(facts, settings, stack, system)
        found.append(
            Environment(
                name=name,
                path=path_of(settings, name),
                stack=stack,
                requirements=lines,
                interpreter=made_with.path,
            )
        )
    return tuple(found)


def _made_for(before: Stack, now: Stack) -> bool:
    return not _driver(before) or not _driver(now) or nv(_driver(now)) >= nv(_driver(before))


def environment_packages(
    facts: HostFacts, settings: Settings, answers: Mapping[str, Resolution], matrix: Matrix
) -> tuple[Package, ...]:
    """Return the system packages without which the environments cannot be made; raises where there is no Python."""
    system = system_of(matrix, facts)
    found = [
        item for answer in answers.values() for item in interpreter_of(facts, settings, answer.stack, system).packages
    ]
    return tuple({item.name: item for item in found}.values())


def environment_reasons(answers: Mapping[str, Resolution]) -> tuple[Reason, ...]:
    """Return why each environment is what it is, in the words of its own answer."""
    return tuple(
        replace(reason, text=f"environment {name}: {reason.text}")
        for name, answer in answers.items()
        for reason in answer.reasons
        if reason.component != "driver"
    )


def environment_warnings(answers: Mapping[str, Resolution]) -> tuple[str, ...]:
    """Return what each answer warns of, with the environment that it is about."""
    return tuple(f"environment {name}: {text}" for name, answer in answers.items() for text in answer.warnings)


def for_role(environments: tuple[Environment, ...]) -> tuple[RoleEnvironment, ...]:
    """Return the environments in the words of the role."""
    return tuple(
        RoleEnvironment(name=item.name, path=item.path, requirements=item.requirements, interpreter=item.interpreter)
        for item in environments
    )


def forgotten_environments(facts: HostFacts, environments: tuple[Environment, ...]) -> tuple[str, ...]:
    """Return the paths of environments on record that nobody asks for any more."""
    wanted = {item.path for item in environments}
    return tuple(item.path for item in record_of(facts).expect.environments if item.path and item.path not in wanted)


def environment_actions(facts: HostFacts, environments: tuple[Environment, ...]) -> Iterator[Action]:
    """Yield what is to be made, in what differs from what is there, and what goes."""
    there = {item.path: item for item in record_of(facts).expect.environments}
    applied = _applied(facts)
    for item in environments:
        why = _why(item, applied.get(item.name), there.get(item.path))
        if why:
            what = " ".join(line.partition(" --hash")[0] for line in item.requirements if not line.startswith("-"))
            yield Action(
                id=f"python-environment-{item.name}",
                kind="python",
                what=f"{what} in {item.path}",
                why=f"environment {item.name}: {why}",
            )
    for path in forgotten_environments(facts, environments):
        identity = path.strip("/").replace("/", "-")
        yield Action(
            id=f"python-gone-{identity}",
            kind="python",
            what=f"{path} goes",
            why="gpusetup_environments does not name it any more",
        )


def _why(item: Environment, applied: Environment | None, there: RecordedPython | None) -> str:
    if there is None:
        return "it does not exist yet"
    if there.now:
        return f"{there.path} is not as it was installed: {there.now}"
    if applied is None or (item.requirements, item.interpreter) != (applied.requirements, applied.interpreter):
        return "it holds another set of packages"
    return ""
