"""The laws that every answer keeps, whoever gives it: `python -m tests.property.laws 20000` asks that many random questions.

`matrix`, `resolve`, `why-not` and the doctor are ways to ask one rule. Each law is a function from a question to the
sentences that say how it was broken; a question is a request, so what is printed can be asked again.
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import sys
import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import msgspec

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import COMPONENTS, DEFAULT_COMPONENTS, Request, Requirement
from gpusetup.resolve.answer import stack_of
from gpusetup.resolve.api import resolve
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import Value, matches
from gpusetup.resolve.lookup import LEADS, lookup
from gpusetup.resolve.preferences import best
from gpusetup.resolve.warn import warnings_about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpusetup.resolve.space import Space

change = msgspec.structs.replace
MATRIX = Matrix()
GPUS = (
    "k80", "gtx 980", "p100", "gtx 1080 ti", "v100", "titan v", "t4", "rtx 2080 ti", "a100", "a10", "rtx 3090", "a40",
    "rtx 4090", "l4", "l40s", "h100", "h200", "gh200", "b200", "b300", "gb200", "rtx 5090", "rtx pro 6000 blackwell server edition",
    "t4g", "sm_61", "sm_70", "sm_86", "sm_90", "sm_100", "sm_120", "sm_121",
)  # fmt: skip
SERIES = {
    "torch": ("", "", "==2.6.*", "==2.7.*", "==2.11.*", "==2.14.*", "==2.15.*", ">=2.9", "<2.5", "==2.2.1", "==1.13.1"),
    "tensorflow": ("", "", "==2.15.*", "==2.17.*", ">=2.19", "==2.21.*", "==2.10.*"),
    "jax": ("", "", "==0.4.*", ">=0.7", "<0.5"),
    "cupy": ("", "", ">=13", "==13.*", "==12.*", "==14.*"),
    "cuda": ("", "", "==11.8.*", "==12.4.*", "==12.8.*", "==13.0.*", "==13.2.*", "==13.4.*", ">=12.6", "<13"),
    "cudnn": ("", "", "==8.9.*", "==9.1.*", "==9.10.*", ">=9.5"),
    "nccl": ("", "", "==2.21.*", "==2.26.*", ">=2.25"),
    "driver": ("", "==535.*", "==550.*", "==570.*", "==580.*", "==595.*", ">=580", "<590"),
    "python": ("==3.9", "==3.10", "==3.11", "==3.12", "==3.13", ">=3.11"),
}
"""What people ask of each component; twice nothing in particular."""


@cache
def _drivers() -> tuple[str, ...]:
    """Return two published Linux drivers of every branch: its first and its newest."""
    found = collections.defaultdict(list)
    for item in MATRIX.driver.versions:
        if item.platform == "linux" and not item.beta:
            found[item.branch].append(item.version)
    return tuple(version for versions in found.values() for version in dict.fromkeys((versions[0], versions[-1])))


def question(chance: random.Random) -> Request:
    """Return a question that somebody could ask: GPUs x drivers x systems x Pythons x wishes."""
    names = chance.sample(list(SERIES), k=chance.choice((0, 1, 1, 1, 2, 2, 3)))
    wishes = sorted(names, key=COMPONENTS.index)
    requirements = tuple(Requirement(component=name, specifier=chance.choice(SERIES[name])) for name in wishes)
    gpus = tuple(chance.sample(GPUS, k=chance.choice((0, 1, 1, 1, 1, 2))))
    driver = {
        "driver": {"driver": chance.choice(_drivers())},
        "installed": {"installed_driver": chance.choice(_drivers())},
    }.get(chance.choice(("", "", "driver", "installed")), {})
    systems = [system.id for system in MATRIX.os.systems]
    return Request(
        requirements=requirements,
        gpus=gpus,
        gpu_count=chance.choice((len(gpus), len(gpus), 8)) if gpus else 0,
        os=chance.choice((None, chance.choice(systems))),
        arch=chance.choice((None, None, None, "x86_64", "aarch64")),
        native=chance.random() < 0.1,
        forward=chance.random() < 0.1,
        **driver,
    )


class Answer:
    """What `resolve` gives, without the sentences about it: those are the subject of one law only."""

    def __init__(self, space: Space, solution: dict[str, Value]) -> None:
        self.space, self.solution = space, solution
        self.stack = stack_of(space, solution)

    @property
    def warnings(self) -> tuple[str, ...]:
        return warnings_about(self.space, self.solution)


@lru_cache(maxsize=512)
def answer(request: Request) -> Answer | None:
    """Return the stack of a question, None when nothing fits."""
    space = build(MATRIX, request)
    solution = best(space)
    return None if solution is None else Answer(space, solution)


def asking(request: Request, wish: Requirement) -> Request:
    """Return the question with one wish put in place of what it had for that component."""
    others = tuple(item for item in request.requirements if item.component != wish.component)
    return change(request, requirements=(*others, wish))


def lead_of(request: Request) -> str:
    """Return what the lookup's rows are about."""
    named = {item.component for item in request.requirements}
    return next((name for name in LEADS if name in named), "cuda")


# --- the laws ---------------------------------------------------------------------------------------------------


def first_row(request: Request) -> Iterator[str]:
    """What `matrix` lists first is what `resolve` gives; it lists nothing where `resolve` finds nothing."""
    lead = lead_of(request)
    if lead not in {item.component for item in request.requirements}:
        request = asking(request, Requirement(component=lead))
    found = answer(request)
    try:
        rows = lookup(request, MATRIX)
    except NoStackError:
        rows = []
    if (found is None) != (not rows):
        yield f"resolve {'refuses' if found is None else 'gives a stack'}, matrix has {len(rows)} rows"
    elif found is not None:
        chosen = getattr(found.stack, lead)
        marks = {"torch": "variant", "jax": "extra", "cupy": "package"}
        told = [(item[lead], item.get(marks.get(lead, ""))) for item in rows]
        mine = (chosen.version, getattr(chosen, marks.get(lead, ""), None))
        if told[0] != mine:
            yield f"matrix lists {told[0]} first, resolve gives {mine}"


def allowed_is_accepted(request: Request) -> Iterator[str]:
    """A version stands in the lookup if and only if asking for it by name gives a stack with it."""
    lead = lead_of(request)
    wish = next((item for item in request.requirements if item.component == lead), Requirement(component=lead))
    if wish.specifier:
        return
    request = asking(request, wish)
    try:
        listed = {row[lead] for row in lookup(request, MATRIX)}
    except NoStackError:
        listed = set()
    records = getattr(MATRIX, lead).builds if lead == "torch" else getattr(MATRIX, lead).releases
    published = sorted({item.version for item in records})
    for version in random.Random(str(request)).sample(published, k=3):
        exact = answer(asking(request, Requirement(component=lead, specifier=f"=={version}")))
        if (exact is not None) != (version in listed):
            yield f"{lead}=={version} is {'accepted' if exact else 'refused'} by resolve, not so in matrix"
        elif exact is not None and not matches(
            Requirement(component=lead, specifier=f"=={version}"), [getattr(exact.stack, lead).version]
        ):
            yield f"{lead}=={version} was asked for, {getattr(exact.stack, lead).version} was given"


def own_answer_is_accepted(request: Request) -> Iterator[str]:
    """Whoever asks for exactly what was given gets it again."""
    found = answer(request)
    if found is None:
        return
    for component in ("driver", "torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl"):
        chosen = getattr(found.stack, component)
        if chosen is None:
            continue
        exact = Requirement(
            component=component, specifier=f"=={chosen.version}", variant=getattr(chosen, "variant", "")
        )
        again = answer(asking(request, exact))
        if again is None:
            yield f"{exact} was given, and is refused when asked for"
        elif getattr(again.stack, component).version != chosen.version:
            yield f"{exact} was asked for, {getattr(again.stack, component).version} was given"


def reasons_say_something(request: Request) -> Iterator[str]:
    """A reason judges the candidate that it names; no reason speaks of nothing, or of a range over all releases."""
    try:
        found = resolve(request, MATRIX)
        texts = [item.text for item in found.reasons] + list(found.warnings)
    except NoStackError as error:
        texts = [item["text"] for item in error.document["conflict"]] + list(error.document["suggestions"])
    for text in texts:
        if re.search(r"\bNone\b|nothing known|unknown day", text):
            yield f"it says nothing: {text}"
        if text.startswith("not "):
            subject, _, why = text.removeprefix("not ").partition(": ")
            if not why or _SWEEP.search(why.replace(subject, "")):
                yield f"the reason is not about {subject}: {text}"


_SWEEP = re.compile(
    r"(?:torch|TensorFlow|JAX|CuPy|CUDA|cuDNN|NCCL) [0-9][0-9.]* to [0-9][0-9.]* (?:has|is|needs|brings|targets)"
)


def long_lived_branch(request: Request) -> Iterator[str]:
    """A branch with less than a year to live, or of unknown life, is taken only where no long-term one fits as well."""
    found = answer(request)
    named = {item.component: item for item in request.requirements}
    asked = "driver" in named and named["driver"].specifier
    if found is None or asked or request.driver or request.installed_driver or request.native:
        return
    if any(name in named and named[name].specifier for name in ("cuda", "cudnn", "nccl")):
        return  # a CUDA that was asked for brings the branch that it is native to
    branch = next(item for item in MATRIX.driver.branches if str(item.branch) == found.stack.driver.branch)
    if branch.kind == "LTSB":
        return
    for other in MATRIX.driver.branches:
        if other.kind == "LTSB" and other.eol > MATRIX.date and not other.ended:
            wanted = Requirement(component="driver", specifier=f"=={other.branch}.*")
            stable = answer(asking(request, wanted))
            leads = [name for name in ("torch", "tensorflow", "jax") if name in named]
            if stable is not None and all(
                getattr(stable.stack, name).version == getattr(found.stack, name).version for name in leads
            ):
                yield f"R{branch.branch} ({branch.kind}, until {branch.eol}) is taken, R{other.branch} would do"


def native_where_one_exists(request: Request) -> Iterator[str]:
    """A driver that stays, or that was asked for, gets a native build of the same release where one exists."""
    found = answer(request)
    if found is None or found.stack.torch is None or found.stack.torch.relation in ("native", "backward"):
        return
    chosen = found.stack.torch
    named = any(item.component == "driver" and item.specifier for item in request.requirements)
    if not (named or found.stack.driver.installed) or any(item.variant for item in request.requirements):
        return
    for wheel in MATRIX.torch.builds:
        if wheel.version == chosen.version and wheel.variant != chosen.variant:
            exact = Requirement(component="torch", specifier=f"=={wheel.version}", variant=wheel.variant)
            other = answer(asking(request, exact))
            if (
                other is not None
                and other.stack.torch.relation in ("native", "backward")
                and other.stack.driver.version == found.stack.driver.version
                and not any("does not support the GPU" in text for text in other.warnings)
                and all(
                    getattr(other.stack, name).version == getattr(found.stack, name).version
                    for name in {item.component for item in request.requirements} & {"tensorflow", "jax", "cupy"}
                )
            ):
                yield f"torch {chosen.version}+{chosen.variant} is {chosen.relation}, {wheel.variant} would be native"


def what_is_on_record_stays(request: Request) -> Iterator[str]:
    """A release on record stays as long as a stack with it satisfies what is asked."""
    found = answer(request)
    if found is None:
        return
    asked = {item.component for item in request.requirements}
    default = DEFAULT_COMPONENTS if not asked - {"python"} else ()
    wishes = (*request.requirements, *(Requirement(component=name) for name in default))
    kept = Request(requirements=wishes, gpus=request.gpus, os=request.os, arch=request.arch)
    for item in random.Random(str(request)).sample(_published(), k=3):
        if getattr(found.stack, item.component) is None:
            continue
        fits = answer(asking(kept, item)) if _allows(request, item) else None
        again = answer(change(kept, recorded=(item,)))
        if fits is not None and again is not None:
            version = getattr(again.stack, item.component).version
            if item.specifier != f"=={version}":
                yield f"{item} is on record and fits, {version} is given"


def _allows(request: Request, item: Requirement) -> bool:
    """Tell whether the wish for a component names the version of another requirement."""
    wish = next((wish for wish in request.requirements if wish.component == item.component), None)
    version = item.specifier.removeprefix("==")
    return wish is None or not wish.specifier or version in matches(wish, [version])


@cache
def _published() -> list[Requirement]:
    """Return every release that a record can name; of the driver counts what works."""
    found = [("torch", item.version) for item in MATRIX.torch.builds if item.code]
    for name in ("cuda", "cudnn", "nccl", "cupy", "jax", "tensorflow"):
        found += [(name, item.version) for item in getattr(MATRIX, name).releases if not getattr(item, "excluded", "")]
    return [Requirement(component=name, specifier=f"=={version}") for name, version in dict.fromkeys(found)]


def newest_by_name_alone_is_stable(request: Request) -> Iterator[str]:
    """A new-feature branch is never taken unless it, or something that only it has, was asked for."""
    found = answer(change(request, requirements=(Requirement(component="cuda"),)))
    if found is None or found.stack.driver.installed:
        return
    kinds = {str(item.branch): item for item in MATRIX.driver.branches}
    if kinds[found.stack.driver.branch].kind not in ("NFB", "unknown"):
        return
    for kind in kinds.values():
        if kind.kind in ("LTSB", "PB") and not kind.ended and (kind.eol == "unknown" or kind.eol > MATRIX.date):
            wanted = Requirement(component="driver", specifier=f"=={kind.branch}.*")
            if answer(change(request, requirements=(Requirement(component="cuda"), wanted))) is not None:
                yield f"cuda alone takes R{found.stack.driver.branch}; R{kind.branch} would do"


LAWS: tuple[Callable[[Request], Iterator[str]], ...] = (
    first_row,
    allowed_is_accepted,
    own_answer_is_accepted,
    reasons_say_something,
    long_lived_branch,
    native_where_one_exists,
    newest_by_name_alone_is_stable,
    what_is_on_record_stays,
)


def spelled(request: Request) -> str:
    """Return a question as one types it."""
    words = ["gpusetup resolve", *(f"'{item}'" if item.specifier else str(item) for item in request.requirements)]
    words += [f"--gpu '{name}'" for name in request.gpus]
    for name in ("os", "arch", "driver"):
        if getattr(request, name):
            words.append(f"--{name} {getattr(request, name)}")
    words += [f"--{name}" for name in ("native", "forward") if getattr(request, name)]
    if request.installed_driver:
        words.append(f"  (driver {request.installed_driver} is installed and works)")
    return " ".join(words)


def breaches(request: Request) -> list[tuple[str, str]]:
    """Return every law that a question breaks, and how."""
    return [(law.__name__, text) for law in LAWS for text in law(request)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20000, help="how many questions: default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="another number asks other questions")
    parser.add_argument("--show", type=int, default=5, help="breaches shown of each law")
    arguments = parser.parse_args()
    chance, broken = random.Random(arguments.seed), collections.Counter[str]()
    start, stacks = time.monotonic(), 0
    for _ in range(arguments.count):
        request = question(chance)
        stacks += answer(request) is not None
        for law, text in breaches(request):
            broken[law] += 1
            if broken[law] <= arguments.show:
                print(f"{law}: {text}\n    {spelled(request)}", flush=True)
    print(
        f"{arguments.count} questions, {stacks} with a stack, {time.monotonic() - start:.0f} s; breaches: {dict(broken)}"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
