"""The laws that every answer must keep; new data is checked against them.

`matrix`, `resolve`, `why-not` and the doctor apply the same rules. Each law is a function from a question to sentences
that describe how it was broken.
"""

from __future__ import annotations

import random
import re
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gpusetup.errors import NoStackError
from gpusetup.model.request import DEFAULT_COMPONENTS, PACKAGES, Policy, Request, Requirement
from gpusetup.model.stack import exact_requirements
from gpusetup.resolve.answer import stack_of, warnings_about
from gpusetup.resolve.api import resolve
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import Value, matches
from gpusetup.resolve.lookup import lead_of, lookup
from gpusetup.resolve.packages import COMPANIONS
from gpusetup.resolve.policy import breaches
from gpusetup.resolve.preferences import best
from gpusetup.resolve.requests import parse_requirements
from gpusetup.resolve.suggest import suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.stack import DriverChoice
    from gpusetup.resolve.space import Space

change = msgspec.structs.replace
_SWEEP = re.compile(
    r"(?:torch|TensorFlow|JAX|CuPy|CUDA|cuDNN|NCCL) [0-9][0-9.]* to [0-9][0-9.]* (?:has|is|needs|brings|targets)"
)
_FLAGS = re.compile(r"--(?:native|forward|allow-\w+)")


class Answer:
    """An answer of `resolve`, without its explanations, which only one law concerns."""

    def __init__(self, space: Space, solution: dict[str, Value]) -> None:
        self.space, self.solution = space, solution
        self.stack = stack_of(space, solution)
        self.driver = cast("DriverChoice", self.stack.driver)

    @property
    def warnings(self) -> tuple[str, ...]:
        return warnings_about(self.space, self.solution)


def asking(request: Request, wish: Requirement) -> Request:
    """Return the question with another wish for one component."""
    others = tuple(item for item in request.requirements if item.component != wish.component)
    return change(request, requirements=(*others, wish))


def _allows(request: Request, item: Requirement) -> bool:
    """Return whether the wish for a component allows the version of another requirement."""
    wish = next((wish for wish in request.requirements if wish.component == item.component), None)
    version = item.specifier.removeprefix("==")
    return wish is None or not wish.specifier or version in matches(wish, [version])


class Laws:
    """The laws, over the answers of one matrix."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.answer = lru_cache(maxsize=512)(self._answer)

    def _answer(self, request: Request) -> Answer | None:
        """Return the stack for a question, or None if nothing fits."""
        space = build(self.matrix, request)
        solution = best(space)
        return None if solution is None else Answer(space, solution)

    def all(self) -> tuple[Callable[[Request], Iterator[str]], ...]:
        """Return every law."""
        return (
            self.first_row,
            self.allowed_is_accepted,
            self.own_answer_is_accepted,
            self.at_least_what_was_given_gives_it_again,
            self.reasons_say_something,
            self.long_lived_branch,
            self.native_where_one_exists,
            self.what_is_on_record_stays,
            self.newest_by_name_alone_is_stable,
            self.a_refusal_names_a_way_out,
            self.what_the_policy_forbids_is_in_no_answer,
        )

    def breaches(self, request: Request) -> list[tuple[str, str]]:
        """Return every law that the answers to a question break, and how."""
        return [(law.__name__, text) for law in self.all() for text in law(request)]

    @cached_property
    def _published(self) -> list[Requirement]:
        """Return every release that a record can name, except drivers."""
        found = [("torch", item.version) for item in self.matrix.torch.builds if item.code]
        for name in ("cuda", "cudnn", "nccl", "cupy", "jax", "tensorflow"):
            found += [
                (name, item.version)
                for item in getattr(self.matrix, name).releases
                if not getattr(item, "excluded", "")
            ]
        return [Requirement(component=name, specifier=f"=={version}") for name, version in dict.fromkeys(found)]

    def first_row(self, request: Request) -> Iterator[str]:
        """What `matrix` lists first is what `resolve` gives; it lists nothing where `resolve` finds nothing."""
        lead = lead_of(request)
        if lead not in {item.component for item in request.requirements}:
            request = asking(request, Requirement(component=lead))
        found = self.answer(request)
        try:
            rows = lookup(request, self.matrix)
        except NoStackError:
            rows = []
        if (found is None) != (not rows):
            yield f"resolve {'refuses' if found is None else 'gives a stack'}, matrix has {len(rows)} rows"
        elif found is not None:
            chosen = found.stack.part(lead)
            marks = {"torch": "variant", "jax": "extra", "cupy": "package"}
            told = [(item[lead], item.get(marks.get(lead, ""))) for item in rows]
            mine = (chosen.version, getattr(chosen, marks.get(lead, ""), None))
            if told[0] != mine:
                yield f"matrix lists {told[0]} first, resolve gives {mine}"

    def allowed_is_accepted(self, request: Request) -> Iterator[str]:
        """A version stands in the lookup if and only if asking for it by name gives a stack with it."""
        lead = lead_of(request)
        wish = next((item for item in request.requirements if item.component == lead), Requirement(component=lead))
        if wish.specifier:
            return
        request = asking(request, wish)
        try:
            listed = {row[lead] for row in lookup(request, self.matrix)}
        except NoStackError:
            listed = set()
        records = getattr(self.matrix, lead).builds if lead == "torch" else getattr(self.matrix, lead).releases
        published = sorted({item.version for item in records})
        for version in random.Random(str(request)).sample(published, k=3):
            exact = self.answer(asking(request, change(wish, specifier=f"=={version}")))
            if (exact is not None) != (version in listed):
                yield f"{lead}=={version} is {'accepted' if exact else 'refused'} by resolve, not so in matrix"
            elif exact is not None and not matches(
                Requirement(component=lead, specifier=f"=={version}"), [getattr(exact.stack, lead).version]
            ):
                yield f"{lead}=={version} was asked for, {getattr(exact.stack, lead).version} was given"

    def own_answer_is_accepted(self, request: Request) -> Iterator[str]:
        """Whoever asks for exactly what was given gets it again."""
        found = self.answer(request)
        if found is None:
            return
        for component in ("driver", "torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl"):
            chosen = getattr(found.stack, component)
            if chosen is None:
                continue
            exact = Requirement(
                component=component, specifier=f"=={chosen.version}", variant=getattr(chosen, "variant", "")
            )
            again = self.answer(asking(request, exact))
            if again is None:
                yield f"{exact} was given, and is refused when asked for"
            elif getattr(again.stack, component).version != chosen.version:
                yield f"{exact} was asked for, {getattr(again.stack, component).version} was given"
        printed = [str(item) for item in exact_requirements(found.stack)]
        whole = self.answer(change(request, requirements=parse_requirements(printed)))
        if whole is None or exact_requirements(whole.stack) != exact_requirements(found.stack):
            yield f"{' '.join(printed)} was given; asked for, it gives {whole and exact_requirements(whole.stack)}"

    def at_least_what_was_given_gives_it_again(self, request: Request) -> Iterator[str]:
        """Whoever asks for what was given or newer, also of a package, gets the same stack: it was the best one."""
        package = random.Random(str(request)).choice([name for name in PACKAGES if name not in COMPANIONS])
        request = asking(request, Requirement(component=package))
        found = self.answer(request)
        if found is None:
            return
        for wish in request.requirements:
            chosen = found.stack.part(wish.component)
            if wish.specifier or chosen is None or not chosen.version:
                continue
            least = change(wish, specifier=f">={chosen.version}")
            again = self.answer(asking(request, least))
            if again is None or exact_requirements(again.stack) != exact_requirements(found.stack):
                given = again and " ".join(map(str, exact_requirements(again.stack)))
                yield f"{least} beside {package} gives {given}, and {chosen.version} without the bound"

    def reasons_say_something(self, request: Request) -> Iterator[str]:
        """A reason judges the candidate that it names; no reason speaks of nothing, or of a range over all releases."""
        try:
            found = resolve(request, self.matrix)
            texts = [item.text for item in found.reasons] + list(found.warnings)
            cited = [(f"{item.component}: {item.text}", item.source) for item in found.reasons]
        except NoStackError as error:
            document = cast("dict[str, Any]", error.document)
            cited = [(item["text"], item["source"]) for item in document["conflict"]]
            texts = [text for text, _ in cited] + list(document["suggestions"])
        for text, source in cited:
            page = re.match(r"https://pypi.org/project/(.*)/", source)
            if page is not None and not any(word in text.lower() for word in page[1].split("-")):
                yield f"{source} is cited for: {text}"
        for text in texts:
            if re.search(r"\bNone\b|nothing known|unknown day", text):
                yield f"it says nothing: {text}"
            if text.startswith("not "):
                subject, _, why = text.removeprefix("not ").partition(": ")
                if not why or _SWEEP.search(why.replace(subject, "")):
                    yield f"the reason is not about {subject}: {text}"

    def long_lived_branch(self, request: Request) -> Iterator[str]:
        """A branch with less than a year to live, or of unknown life, is taken only where no long-term one fits."""
        found = self.answer(request)
        named = {item.component: item for item in request.requirements}
        asked = "driver" in named and named["driver"].specifier
        if found is None or asked or request.driver or request.installed_driver or request.native:
            return
        if any(name in named and named[name].specifier for name in ("cuda", "cudnn", "nccl")):
            return  # a CUDA that was asked for brings the branch that it is native to
        branch = next(item for item in self.matrix.driver.branches if str(item.branch) == found.driver.branch)
        if branch.kind == "LTSB":
            return
        for other in self.matrix.driver.branches:
            if other.kind == "LTSB" and other.eol > self.matrix.date and not other.ended:
                wanted = Requirement(component="driver", specifier=f"=={other.branch}.*")
                stable = self.answer(asking(request, wanted))
                leads = [name for name in ("torch", "tensorflow", "jax") if name in named]
                if stable is not None and all(
                    getattr(stable.stack, name).version == getattr(found.stack, name).version for name in leads
                ):
                    yield f"R{branch.branch} ({branch.kind}, until {branch.eol}) is taken, R{other.branch} would do"

    def native_where_one_exists(self, request: Request) -> Iterator[str]:
        """A driver that stays, or that was asked for, gets a native build of the same release where one exists."""
        found = self.answer(request)
        if found is None or found.stack.torch is None or found.stack.torch.relation in ("native", "backward"):
            return
        chosen = found.stack.torch
        named = any(item.component == "driver" and item.specifier for item in request.requirements)
        if not (named or found.driver.installed) or any(item.variant for item in request.requirements):
            return
        for wheel in self.matrix.torch.builds:
            if wheel.version == chosen.version and wheel.variant != chosen.variant:
                exact = Requirement(component="torch", specifier=f"=={wheel.version}", variant=wheel.variant)
                other = self.answer(asking(request, exact))
                if (
                    other is not None
                    and getattr(other.stack.torch, "relation", "") in ("native", "backward")
                    and other.driver.version == found.driver.version
                    and not any("does not support the GPU" in text for text in other.warnings)
                    and all(
                        getattr(other.stack, name).version == getattr(found.stack, name).version
                        for name in {item.component for item in request.requirements} & {"tensorflow", "jax", "cupy"}
                    )
                ):
                    given = f"torch {chosen.version}+{chosen.variant}"
                    yield f"{given} is {chosen.relation}, {wheel.variant} would be native"

    def what_is_on_record_stays(self, request: Request) -> Iterator[str]:
        """A release on record stays as long as a stack with it satisfies what is asked."""
        found = self.answer(request)
        if found is None:
            return
        asked = {item.component for item in request.requirements}
        default = DEFAULT_COMPONENTS if not asked - {"python"} else ()
        wishes = (*request.requirements, *(Requirement(component=name) for name in default))
        kept = Request(requirements=wishes, gpus=request.gpus, os=request.os, arch=request.arch)
        for item in random.Random(str(request)).sample(self._published, k=3):
            if getattr(found.stack, item.component) is None:
                continue
            build_ = next((wish.variant for wish in wishes if wish.component == item.component), "")
            named = change(item, variant=item.variant or build_)
            fits = self.answer(asking(kept, named)) if _allows(request, item) else None
            again = self.answer(change(kept, recorded=(item,)))
            if fits is not None and again is not None:
                version = getattr(again.stack, item.component).version
                if item.specifier != f"=={version}":
                    yield f"{item} is on record and fits, {version} is given"

    def newest_by_name_alone_is_stable(self, request: Request) -> Iterator[str]:
        """A new-feature branch is never taken unless it, or something that only it has, was asked for."""
        found = self.answer(change(request, requirements=(Requirement(component="cuda"),)))
        if found is None or found.driver.installed:
            return
        kinds = {str(item.branch): item for item in self.matrix.driver.branches}
        if kinds[found.driver.branch].kind not in ("NFB", "unknown"):
            return
        for kind in kinds.values():
            if (
                kind.kind in ("LTSB", "PB")
                and not kind.ended
                and (kind.eol == "unknown" or kind.eol > self.matrix.date)
            ):
                wanted = Requirement(component="driver", specifier=f"=={kind.branch}.*")
                if self.answer(change(request, requirements=(Requirement(component="cuda"), wanted))) is not None:
                    yield f"cuda alone takes R{found.driver.branch}; R{kind.branch} would do"

    def a_refusal_names_a_way_out(self, request: Request) -> Iterator[str]:
        """Where no stack fits, the answer ends in something that a person can do, and leaves out what it says."""
        if self.answer(request) is None:
            ways = suggestions(build(self.matrix, request))
            if not ways:
                yield "nothing fits, and no change is suggested"
            for left_out, command in re.findall(r"without (.*): gpusetup resolve (.*)", "\n".join(ways)):
                if flags := set(_FLAGS.findall(left_out)).intersection(_FLAGS.findall(command)):
                    yield f"{flags} is left out and is not: {command}"

    def what_the_policy_forbids_is_in_no_answer(self, request: Request) -> Iterator[str]:
        """A stack under a policy has no driver and no toolkit that breaks it, and is one that fits without it too."""
        chance = random.Random(str(request))
        values: dict[str, Any] = {
            "newest_driver_branch": chance.choice((535, 570, 580, 595, None)),
            "oldest_driver": chance.choice(("535.104.05", "570.86.15", "580.95.05", None)),
            "forbid_end_of_life": chance.choice((("driver",), ("driver", "cuda"), ())),
            "forbid_cvss_from": chance.choice((5.0, 7.0, 9.0, None)),
        }
        policy = Policy(**values, places=tuple((name, "gpusetup.toml:1") for name in values))
        found = self.answer(change(request, policy=policy))
        if found is None:
            return
        chosen = [("cuda", part.version) for part in (found.stack.cuda, *found.stack.cudas) if part is not None]
        for component, version in (("driver", found.driver.version), *chosen):
            for key, why in breaches(policy, self.matrix, component, version):
                yield f"{component} {version} breaks {policy.quoted(key)}: {why}"
        if self.answer(request) is None:
            yield f"there is a stack only under {policy}"
