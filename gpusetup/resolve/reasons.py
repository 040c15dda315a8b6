"""Explain a stack: what decided each component, and what excluded the newer releases."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from gpusetup.model.record import Record
from gpusetup.model.request import COMPONENTS
from gpusetup.model.stack import Reason
from gpusetup.resolve import rules
from gpusetup.resolve.answer import relations, stays
from gpusetup.resolve.domains import CudnnValue, DriverValue, JaxValue, TorchValue, Value, matches, parsed
from gpusetup.resolve.hardware import code_of, cudnn_limit
from gpusetup.resolve.naming import cite, label, only_module, records, rule_source, title
from gpusetup.resolve.package_sentences import python_reasons
from gpusetup.resolve.policy import breaches, rule_of
from gpusetup.resolve.preferences import build_rank, short_lived
from gpusetup.resolve.search import Constraint, Pair, Unary, bits
from gpusetup.resolve.sentences import sentence
from gpusetup.resolve.space import FRAMEWORKS, Space
from gpusetup.versions import nv


class _Context:
    """The values that a sentence is about: those of each component that the rest of the conflict leaves."""

    def __init__(self, space: Space, masks: Mapping[str, int], *, candidate: str = "") -> None:
        self.space = space
        self.candidate = candidate
        self._masks = masks

    def values(self, component: str) -> list[Value]:
        """Return the remaining values of a component, or all of them when none remains."""
        values = self.space.values[component]
        return [values[index] for index in bits(self._masks[component])] or list(values)

    def narrow(self, component: str) -> bool:
        """Return whether other rules exclude some of the component's values."""
        return 0 < self._masks[component].bit_count() < len(self.space.values[component])


def conflict(space: Space, members: Sequence[Unary | Pair]) -> list[dict[str, str]]:
    """Return a conflict as records of rule, text and source."""
    told = []
    for member in members:
        others = [item for item in members if item is not member and isinstance(item, Unary)]
        text = sentence(_Context(space, _left(space, others)), member)
        source = "" if member.origin == "request" else rule_source(space.matrix, member.rule, member.scope)
        item = {"rule": member.rule, "text": text, "source": source}
        if item not in told:
            told.append(item)
    return told


def _left(space: Space, members: Sequence[Unary]) -> dict[str, int]:
    """Return the mask of values that these rules leave of each component; one that would empty keeps all."""
    masks = {name: (1 << len(values)) - 1 for name, values in space.values.items()}
    for member in members:
        masks[member.scope[0]] = masks[member.scope[0]] & member.allowed or masks[member.scope[0]]
    return masks


PROVENANCE = "provenance"
"""The rule name of reasons about where a fact comes from: `why` and JSON print them, short answers do not."""

_KINDS = {
    "LTSB": "a long-term support branch",
    "PB": "a production branch",
    "NFB": "a new-feature branch",
    "evaluation": "an evaluation branch",
    "unknown": "a branch of unknown kind",
}
_HOUSEKEEPING = ("cuda-system-package", "release-excluded", "torch-code-known")
RELATION = {
    "native": "is the driver's own CUDA (native)",
    "backward": "is older than the driver's own CUDA (backward compatible, as good as native)",
    "minor-version": "runs on it by minor-version compatibility",
    "forward": "runs on it by forward compatibility",
}
"""How a CUDA runs on a driver, in words."""


def reasons(space: Space, solution: Mapping[str, Value]) -> tuple[Reason, ...]:
    """Return the reasons of a stack, driver first."""
    told = [*_driver(space, cast("DriverValue", solution["driver"])), *_relations(space, solution)]
    for component in COMPONENTS:
        if component in solution and component not in ("driver", "python"):
            told += _chosen(space, solution, component)
    return (*told, *_candidates(space, solution), *python_reasons(space, solution))


def _candidates(space: Space, solution: Mapping[str, Value]) -> Iterator[Reason]:
    """Yield the releases that no person has reviewed yet."""
    if space.matrix.overlay is None:
        return  # the shipped data has been reviewed
    for component, value in solution.items():
        matching = (item for item in records(space.matrix, component) if item.version == value.version)
        record = next((item for item in matching if item.candidate), None)
        if record is not None:
            text = f"{label(component, value)}: {record.note}"
            yield Reason(component=component, rule="candidate", text=text, source=cite(space.matrix, component, record))


def _record(value: Value) -> Record:
    if isinstance(value, TorchValue):
        return value.build
    record: Record = value.row if isinstance(value, CudnnValue) else cast("Any", value).release
    return record


def _driver(space: Space, value: DriverValue) -> Iterator[Reason]:
    matrix, branch = space.matrix, value.branch
    source = cite(matrix, "driver", branch)
    if value.version == space.request.driver:
        yield Reason(component="driver", rule="installed-driver-stays", text=f"driver {value.version} stays", source="")
    elif stays(space.request, value):
        text = f"driver {value.version} is installed, works and fits the request"
        yield Reason(component="driver", rule="keep-installed-driver", text=text, source="")
    if (policy := space.request.policy) is not None and (before := space.request.installed_driver) is not None:
        for key, why in breaches(policy, matrix, "driver", before):
            text = f"driver {before}, which is installed, breaks the policy: {why} ({policy.quoted(key)})"
            yield Reason(component="driver", rule=rule_of(key), text=text, source="")
    text = f"R{branch.branch} is {_KINDS[branch.kind]}, {_support(value)}"
    if (own := nv(value.version).major) != branch.branch:
        text = f"R{own} is not in the matrix; R{branch.branch} is the nearest older branch that is"
    yield Reason(component="driver", rule="long-lived-branch", text=text, source=source)
    yield from _not_newer_branch(space, value)
    for gpu in space.gpus:
        if gpu.last_branch is not None:
            text = f"R{gpu.last_branch} is the last branch for {gpu.label} ({gpu.arch})"
            yield Reason(
                component="driver",
                rule="gpu-driver-window",
                text=text,
                source=rule_source(matrix, "gpu-driver-window") or cite(matrix, "driver", branch),
            )
    yield Reason(
        component="driver",
        rule="module-flavour",
        text=_module(space, value),
        source=rule_source(matrix, "module-flavour"),
    )


def _not_newer_branch(space: Space, value: DriverValue) -> Iterator[Reason]:
    """Yield why a newer supported branch was not chosen, if gpusetup was free to choose it."""
    request = space.request
    if value.version in (request.driver, request.installed_driver) or request.driver_candidates is not None:
        return
    newer = [
        other
        for other in cast("list[DriverValue]", space.values["driver"])
        if other.branch.kind == "PB" and not other.ended and other.branch.branch > value.branch.branch
    ]
    other = max(newer, key=lambda item: item.number, default=None)
    wish = space.named.get("driver")
    if other is None or (wish is not None and wish.specifier) or refusals(space, {"driver": value}, "driver", other):
        return
    if short_lived(other.branch, space.matrix.date) and not short_lived(value.branch, space.matrix.date):
        text = f"not R{other.branch.branch}: its support ends {other.branch.eol}; request it with "
        text += f"driver=={other.branch.branch}.*"
        source = cite(space.matrix, "driver", other.branch)
        yield Reason(component="driver", rule="year-to-live", text=text, source=source)


def _support(value: DriverValue) -> str:
    until = value.branch.eol
    if until == "unknown":
        return "no longer supported" if value.ended else "end of support not published"
    return f"supported until {until}" if not value.ended else f"unsupported since {until}"


def _module(space: Space, value: DriverValue) -> str:
    for gpu in space.gpus:
        if only := only_module(gpu):
            return only
    if space.request.driver_candidates is not None:
        offered = [item.modules for item in space.request.driver_candidates if item.version == value.version]
        if offered and offered[0] == (value.module,):
            return f"{value.module} kernel modules: the repositories offer {value.version} in this flavour only"
    return f"{value.module} kernel modules: NVIDIA's default for R{value.branch.branch}"


def _relations(space: Space, solution: Mapping[str, Value]) -> Iterator[Reason]:
    driver = cast("DriverValue", solution["driver"])
    for name, relation in relations(space, solution).items():
        minor = space.minor(solution[name])
        inside = "" if name == "cuda" else f" inside {title(name)}"
        if isinstance(solution[name], JaxValue):
            inside = f", the lowest that {title(name)} takes,"
        yield Reason(
            component="driver",
            rule="driver-runs-cuda",
            text=f"CUDA {minor}{inside} {RELATION[relation]}",
            source=rule_source(space.matrix, "driver-runs-cuda") or cite(space.matrix, "driver", driver.branch),
        )


def _chosen(space: Space, solution: Mapping[str, Value], component: str) -> Iterator[Reason]:
    value = solution[component]
    name = label(component, value)
    source = cite(space.matrix, component, _record(value))
    wish = space.named.get(component)
    asked = f" {wish}" if wish is not None and wish.specifier else ""
    if any(item.component == component and item.specifier == f"=={value.version}" for item in space.request.recorded):
        text = f"{name} is on record and fits the request; --upgrade chooses again"
        yield Reason(component=component, rule="stays-on-record", text=text, source="")
        return
    sure = "vendor-confirmed release" if value.confidence == "vendor" else "release"
    yield Reason(
        component=component, rule="newest", text=f"{name} is the newest {sure} that fits{asked}", source=source
    )
    if isinstance(value, TorchValue):
        driver = cast("DriverValue", solution["driver"])
        yield _build(space, driver, value, source)
        yield from _last_native(space, driver, value)
    yield from _limited(space, component, value)
    yield from _not_newer(space, solution, component)
    yield from _provenance(space, value, component, source)


def _provenance(space: Space, value: Value, component: str, source: str) -> Iterator[Reason]:
    """Yield the facts about a component that no vendor document states."""
    name = label(component, value)
    texts = []
    if value.confidence == "inferred":
        what = "build" if component == "torch" else "release"
        texts.append(f"{name}: this {what} is known from secondary sources only")
    if isinstance(value, CudnnValue) and value.leaning:
        texts.append(f"{name} is not in NVIDIA's support matrix; judged by the row of {value.row.version}")
    code = code_of(space, value) if component in FRAMEWORKS and space.gpus else None
    if code is not None and code.confidence == "inferred":
        texts.append(f"{name}: the GPU code inside is known from secondary sources only")
    yield from (Reason(component=component, rule=PROVENANCE, text=text, source=source) for text in texts)


def _not_newer(space: Space, solution: Mapping[str, Value], component: str) -> Iterator[Reason]:
    value, wish = solution[component], space.named.get(component)
    wanted = matches(wish, [item.version for item in space.values[component]]) if wish is not None else None
    unusable = 0
    for constraint in space.constraints:
        if constraint.rule in _HOUSEKEEPING and isinstance(constraint, Unary) and constraint.scope == (component,):
            unusable |= ~constraint.allowed
    candidates = [
        item
        for index, item in enumerate(space.values[component])
        if (wanted is None or item.version in wanted) and not unusable >> index & 1
    ]
    newest = max(candidates, key=lambda item: (parsed(item.version), build_rank(space, item)), default=value)
    if parsed(newest.version) <= parsed(value.version):
        return
    reason = _against(space, solution, component, newest)
    if reason is not None:
        yield reason


def rather(space: Space, solution: Mapping[str, Value], component: str, other: Value) -> str:
    """Return why a value was chosen instead of another one that fits; empty if no reason is known."""
    value = solution[component]
    if isinstance(value, TorchValue) and value.version == other.version:
        return _build(space, cast("DriverValue", solution["driver"]), value, "").text
    reason = _against(space, solution, component, other)
    return reason.text if reason is not None else ""


def _against(space: Space, solution: Mapping[str, Value], component: str, newest: Value) -> Reason | None:
    refused = refusals(space, solution, component, newest)
    if refused:
        (rule, text), source = refused[0], rule_source(space.matrix, refused[0][0], (component, *solution))
    else:
        (rule, text), source = _less_preferred(space, solution, component, newest), ""
    text = f"not {label(component, newest)}: {text}" if text else ""
    return Reason(component=component, rule=rule, text=text, source=source) if text else None


def _less_preferred(space: Space, solution: Mapping[str, Value], component: str, newest: Value) -> tuple[str, str]:
    """Return the preference that decided against a newer release that no rule forbids."""
    driver = cast("DriverValue", solution["driver"])
    runs = component in ("cuda", *FRAMEWORKS)
    ways = [space.relation(driver, value) for value in (solution[component], newest)] if runs else ["", ""]
    if ways[1] == "minor-version" != ways[0]:
        ask = f"; request it with {component}=={newest.version}" if component == "cuda" else ""
        return "native-before-minor", f"it is not native to R{driver.branch.branch}{ask}"
    if newest.confidence != "vendor" and solution[component].confidence == "vendor":
        return "vendor-confirmed", "it is known from secondary sources only"
    return "", ""


def _build(space: Space, driver: DriverValue, value: TorchValue, source: str) -> Reason:
    own, branch = value.build.variant, driver.branch.branch
    same = [item for item in cast("list[TorchValue]", space.values["torch"]) if item.version == value.version]
    usual = next((item for item in same if space.on_pypi(item)), None)
    if usual is None:
        text = f"{own} is the newest stable build that fits; PyPI has none with CUDA for {space.arch}"
    elif usual is value:
        text = f"{own} is the build on PyPI"
    elif space.relation(driver, usual) == "minor-version" and space.relation(driver, value) != "minor-version":
        text = f"{own} is native to R{branch}; the build on PyPI, {usual.build.variant}, is not"
        return Reason(component="torch", rule="native-before-minor", text=text, source=source)
    else:
        text = f"{own} is the newest stable build that fits; the one on PyPI is {usual.build.variant}"
    return Reason(component="torch", rule="build-on-pypi", text=text, source=source)


def _last_native(space: Space, driver: DriverValue, value: TorchValue) -> Iterator[Reason]:
    """Yield the last release with a build native to the driver, when the chosen one has none."""
    wish = space.named.get("torch")
    if space.relation(driver, value) != "minor-version" or (wish is not None and wish.specifier):
        return
    native = [
        item
        for item in cast("list[TorchValue]", space.values["torch"])
        if (code := item.build.code_on(space.arch)) is not None
        and space.relation(driver, item) in ("native", "backward")
        and all(rules.code_for(code, gpu.cc) for gpu in space.gpus)
        and parsed(item.version).major == parsed(value.version).major
    ]
    same = any(item.version == value.version for item in native)
    last = max(native, key=lambda item: (parsed(item.version), build_rank(space, item)), default=None)
    if same or last is None:
        return
    text = f"no build of {value.version} for {space.arch} is native to R{driver.branch.branch}; the last torch that "
    text += f"has one: torch=={last.version}+{last.build.variant}"
    source = cite(space.matrix, "torch", last.build)
    yield Reason(component="torch", rule="native-before-minor", text=text, source=source)


def _limited(space: Space, component: str, value: Value) -> Iterator[Reason]:
    limit = cudnn_limit(space, value)
    if limit is not None and limit.last:
        text = f"cuDNN stays below {limit.below}: {limit.last} is the last release for {limit.gpu.label}"
        source = rule_source(space.matrix, "cudnn-support-row")
        yield Reason(component=component, rule="cudnn-support-row", text=text, source=source)


def _decisive(space: Space, component: str, constraint: Constraint) -> int:
    """Rank rules: about the candidate alone first, then against given components, then against chosen ones."""
    if isinstance(constraint, Unary) or component not in constraint.scope:
        return 0
    other = constraint.scope[1 - constraint.scope.index(component)]
    given = {"python": space.os is not None or "python" in space.named, "driver": space.request.driver is not None}
    if given.get(other):
        return 1
    if other in space.named and other not in ("driver", "cuda"):
        return 2
    return 3


def refusals(space: Space, solution: Mapping[str, Value], component: str, value: Value) -> list[tuple[str, str]]:
    """Return the rules that a candidate would break in an otherwise unchanged stack."""
    shown = label(component, value)
    masks = {name: 1 << space.values[name].index(item) for name, item in solution.items()}
    masks[component] = sum(1 << i for i, item in enumerate(space.values[component]) if label(component, item) == shown)
    found = []
    for constraint in sorted(space.constraints, key=partial(_decisive, space, component)):
        if component not in constraint.scope:
            continue
        if isinstance(constraint, Unary):
            broken = not constraint.allowed & masks[component]
        elif not masks.keys() >= set(constraint.scope):
            continue
        else:
            broken = not constraint.revise(masks, constraint.scope.index(component))
        if broken:
            found.append((constraint.rule, sentence(_Context(space, masks, candidate=component), constraint)))
    return found
