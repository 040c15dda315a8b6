"""The default and the named Python environments: the setting's parser, requirements, actions and role variables."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Group, Wanted, action
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import from_json, path, place
from gpusetup.components.python.requirements import (
    adoption,
    interpreter_of,
    limit_of,
    packaged_patterns,
    python_requirements,
    system_of,
    without_caps,
)
from gpusetup.components.record import record_of
from gpusetup.errors import BadInputError, NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.applied import RecordedPython
from gpusetup.model.facts import HostFacts, Python
from gpusetup.model.package import UNPROVEN, Manager, Package
from gpusetup.model.plan import Action
from gpusetup.model.request import DEFAULT_COMPONENTS, PACKAGES, Request, Requirement
from gpusetup.model.settings import Environment, EnvironmentWish, RoleEnvironment, Settings
from gpusetup.model.stack import Reason, Resolution, Stack, exact_requirements
from gpusetup.resolve.requests import parse_requirements
from gpusetup.versions import nv

_FORM = "{serve: [vllm==0.19.*], train: [torch==2.11.*, deepspeed]}"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")
_HOLDS = (*PACKAGES, "torch", "tensorflow", "jax", "cupy")
_SHARED = ("driver", "cuda", "cudnn", "nccl")
"""What a host has only once, or a framework's wheels contain."""


def _wishes(value: Any, label: str) -> tuple[EnvironmentWish, ...]:
    """Read the environments, sorted by name; raise for an invalid one."""
    if isinstance(value, str):
        try:
            value = from_json(value) if value.strip() else {}
        except ValueError:
            raise _wrong(label, f"{str(value)[:80]!r} is not a mapping of names to lists") from None
    if not isinstance(value, dict):
        raise _wrong(label, f"{str(value)[:80]!r} is not a mapping of names to lists")
    for name in value:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(
                f"{label}[{name}]",
                f"{str(name)!r} cannot name an environment: its folder is called after it",
                "use 1 to 32 lower-case letters, digits, - and _, such as serve or train-2",
            )
    return tuple(
        EnvironmentWish(name=name, requirements=_requirements(value[name], f"{label}[{name}]"))
        for name in sorted(value)
    )


def _requirements(value: Any, label: str) -> tuple[Requirement, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise _wrong(label, f"{value!r} is not a list of requirements")
    try:
        found = parse_requirements(list(words))
    except BadInputError as error:
        raise BadInputError(
            error.reference, f"{label}: {error.message}", path=label, note=error.note, hint=error.hint
        ) from None
    for item in found:
        if item.component in _SHARED:
            way = f"set gpusetup_{item.component} for the host"
            raise _wrong(label, f"{item.component} does not belong in an environment", way)
    if not any(item.component in _HOLDS for item in found):
        raise _wrong(label, "it names no package for an environment")
    return found


def _wrong(label: str, message: str, hint: str = "") -> BadInputError:
    return BadInputError("GS-377", f"{label}: {message}", path=label, hint=hint or f"for example {_FORM}")


def environment_of(facts: HostFacts, settings: Settings) -> Python | None:
    """Return the interpreter of the default environment; None if there is no environment."""
    path = f"{settings.python_path}/bin/python"
    return next((python for python in facts.pythons if python.path in {path, f"{path}3"}), None)


def settled(lines: tuple[str, ...], facts: HostFacts, settings: Settings) -> tuple[str, ...]:
    """Return the requirements of the default environment: the recorded lines if only limits differ from them.

    A new limit alone must not download gigabytes again. It counts on an upgrade, or if the recorded lines have limits
    too, and only where an installed wheel is beyond it.
    """
    applied = record_of(facts).lock.wanted
    recorded = applied.requirements if applied is not None else ()
    if without_caps(lines) != without_caps(recorded):
        return lines
    asked = settings.upgrade or any(limit_of(line) for line in recorded)
    there = _packages(environment_of(facts, settings))
    return lines if asked and any(_beyond(line, there) for line in lines) else recorded


def lacking(lines: tuple[str, ...], facts: HostFacts, settings: Settings) -> list[str]:
    """Return the lines that the default environment does not fulfil."""
    wanted = [line for line in lines if not line.startswith("-")]
    have = environment_of(facts, settings)
    pins = judge.versions.pins(wanted)
    left = record_of(facts).expect.python
    if have is not None and left is not None and left.path == settings.python_path and left.now is None:
        # The record has every package, the probe only frameworks.
        there = {**_packages(have), **left.packages}
    else:
        there = _packages(have)
    pinned = {name for name, version in pins.items() if there.get(name) == version}
    return [line for line in wanted if _beyond(line, there) or not (limit_of(line) or _name(line) in pinned)]


def _name(line: str) -> str:
    return next(iter(judge.versions.pins((line,))), "")


def _packages(python: Python | None) -> dict[str, str]:
    found = python.packages if python is not None else {}
    return {judge.versions.python_name(name): version for name, version in found.items()}


def _beyond(line: str, there: dict[str, str]) -> bool:
    """Return whether an installed package is beyond the limit of this line."""
    name, limit = limit_of(line) or ("", "")
    if name not in there:
        return False
    try:
        return not SpecifierSet(f"<{limit}").contains(there[name], prereleases=True)
    except InvalidVersion:
        return False


def path_of(settings: Settings, name: str) -> str:
    """Return the path of a named environment: the default one's path, then `-NAME`."""
    return f"{settings.python_path}-{name}"


def with_one_driver(
    facts: HostFacts, settings: Settings, base: Request, answer: Resolution, resolve: Callable[[Request], Resolution]
) -> tuple[Resolution, dict[str, Resolution]]:
    """Return the host's stack and that of each named environment, all with one driver; raise if no driver serves all.

    A newer driver runs what an older one runs, so the newest of the separately chosen ones is tried first.
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
    """Return the request for one environment: its own requirements, and the host's for the driver."""
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
        raise type(error)(
            error.reference, message, note=error.note, hint=error.hint, link=error.link, document=error.document
        ) from None


def _on(question: Request, version: str) -> Request:
    asked = question.requirements or tuple(Requirement(component=name) for name in DEFAULT_COMPONENTS)
    others = tuple(item for item in asked if item.component != "driver")
    return replace(question, requirements=(*others, Requirement(component="driver", specifier=f"=={version}")))


def _driver(stack: Stack) -> str:
    return stack.driver.version if stack.driver is not None else ""


def _environments(context: Context, matrix: Matrix) -> tuple[Environment, ...]:
    facts, settings = context.facts, context.settings
    applied = _applied(facts)
    system = system_of(matrix, facts)
    found = []
    for name, answer in context.named.items():
        stack = answer.stack
        there = applied.get(name)
        lines = python_requirements(stack, matrix)
        if there is not None and not settings.upgrade and _made_for(there.stack, stack):
            # A new limit alone downloads nothing again, unless the driver is older than at the last apply.
            lines = there.requirements if without_caps(there.requirements) == without_caps(lines) else lines
        made_with = interpreter_of(facts, settings, stack, system)
        found.append(
            Environment(
                name=name, path=path_of(settings, name), stack=stack, requirements=lines, interpreter=made_with.path
            )
        )
    return tuple(found)


def _made_for(before: Stack, now: Stack) -> bool:
    return not _driver(before) or not _driver(now) or nv(_driver(now)) >= nv(_driver(before))


def environment_packages(
    facts: HostFacts, settings: Settings, answers: Mapping[str, Resolution], matrix: Matrix
) -> tuple[Package, ...]:
    """Return the system packages that making the environments needs; raise if no suitable Python exists."""
    system = system_of(matrix, facts)
    found = [
        item for answer in answers.values() for item in interpreter_of(facts, settings, answer.stack, system).packages
    ]
    return tuple({item.name: item for item in found}.values())


def _reasons(answers: Mapping[str, Resolution]) -> tuple[Reason, ...]:
    """Return the reasons of each environment's answer, prefixed with its name."""
    return tuple(
        replace(reason, text=f"environment {name}: {reason.text}")
        for name, answer in answers.items()
        for reason in answer.reasons
        if reason.component != "driver"
    )


def _warnings(answers: Mapping[str, Resolution]) -> tuple[str, ...]:
    """Return the warnings of each environment's answer, prefixed with its name."""
    return tuple(f"environment {name}: {text}" for name, answer in answers.items() for text in answer.warnings)


def _for_role(environments: tuple[Environment, ...]) -> tuple[RoleEnvironment, ...]:
    return tuple(
        RoleEnvironment(name=item.name, path=item.path, requirements=item.requirements, interpreter=item.interpreter)
        for item in environments
    )


def _forgotten(facts: HostFacts, environments: tuple[Environment, ...]) -> tuple[str, ...]:
    """Return the paths of recorded environments that are no longer asked for."""
    wanted = {item.path for item in environments}
    return tuple(item.path for item in record_of(facts).expect.environments if item.path and item.path not in wanted)


def _named_actions(facts: HostFacts, environments: tuple[Environment, ...]) -> Iterator[Action]:
    """Yield an action for each named environment that is new, changed, damaged or no longer asked for."""
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
    for gone in _forgotten(facts, environments):
        identity = gone.strip("/").replace("/", "-")
        yield Action(
            id=f"python-gone-{identity}",
            kind="python",
            what=f"{gone} goes",
            why="gpusetup_environments no longer lists it",
        )


def _why(item: Environment, applied: Environment | None, there: RecordedPython | None) -> str:
    if there is None:
        return "it does not exist yet"
    if there.now:
        return f"{there.path} is not as it was installed: {there.now}"
    if applied is None or (item.requirements, item.interpreter) != (applied.requirements, applied.interpreter):
        return "it holds another set of packages"
    return ""


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    yield from _default_actions(host.facts, wanted)
    yield from _named_actions(host.facts, wanted.parts.get("python", ()))


def _default_actions(facts: HostFacts, wanted: Wanted) -> Iterator[Action]:
    if not wanted.requirements or wanted.adopted:
        return
    have = environment_of(facts, wanted.settings)
    wish = wanted.stack.python.version if wanted.stack.python is not None else None
    other = have is not None and wish is not None and have.version != ".".join(wish.split(".")[:2])
    lines = wanted.requirements
    todo = [line for line in lines if not line.startswith("-")] if other else lacking(lines, facts, wanted.settings)
    if todo:
        what = " ".join(line.partition(" --hash")[0] for line in todo)
        where = wanted.settings.python_path
        yield action("python", "packages", f"{what} in {where}", "the GPU frameworks of the stack")


def _wants(context: Context, _manager: Manager, _stack: Stack, matrix: Matrix) -> Brought:
    named = context.named
    return Brought(_environments(context, matrix), reasons=_reasons(named), notes=_warnings(named))


def _variables(_facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    settings, named = wanted.settings, wanted.parts.get("python", ())
    found: dict[str, Any] = {"gpu_python_environments": _for_role(named)} if named else {}
    if wanted.requirements:
        found |= {
            "gpu_python_requirements": wanted.requirements,
            "gpu_python_path": settings.python_path,
            "gpu_python_interpreter": wanted.interpreter,
            "gpu_python_adopt": settings.python_adopt,
        }
    if not found or not settings.python_links:
        return found
    return {**found, "gpu_python_find_links": settings.python_links, "gpu_python_signers": _signers(settings) or UNSET}


def _signers(settings: Settings) -> tuple[str, ...]:
    """Return the key fingerprints of the bundle that contains these wheels; () if they are not in a bundle."""
    bundle = settings.python_links.rpartition("/python")[0]
    places: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((settings.source,), settings.source_fingerprints)]
    places += [(source.uris or (), (source.key or UNPROVEN).fingerprints or ()) for source in settings.extra_sources]
    of_it = (
        prints
        for uris, prints in places
        if any(f"{uri}/".removeprefix("file://").startswith(f"{bundle}/") for uri in uris)
    )
    return tuple(dict.fromkeys(text for prints in of_it for text in prints)) if bundle else ()


def _why_packages(_host: Judged, wanted: Wanted) -> str:
    stack, interpreter = wanted.stack, wanted.interpreter
    if not interpreter or stack.python is None:
        return "an environment is made with it"
    return f"the distribution's own Python {stack.python.version}: its base Python is too old for this stack"


PYTHON = Component(
    name="python",
    settings={
        "python_adopt": path,
        "python_interpreter": path,
        "python_path": path,
        "python_links": place,
        "environments": _wishes,
    },
    packages={"python": Group(_why_packages)},
    patterns=lambda context, matrix: packaged_patterns(system_of(matrix, context.facts)),
    refusals=adoption,
    wants=_wants,
    actions=_actions,
    variables=_variables,
    kept="environments",
    none=(),
)
