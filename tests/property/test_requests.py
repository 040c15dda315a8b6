"""Laws of requests: they survive being printed, their order says nothing, and a GPU more never helps."""

from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from gpusetup.errors import BadInputError, NoStackError
from gpusetup.model.request import BUILT_FOR, COMPONENTS, Request
from gpusetup.resolve.api import fits, resolve
from gpusetup.resolve.requests import parse_requirement, parse_requirements
from tests.property.worlds import GPUS, SHIPPED, questions

versions = st.from_regex(r"\A[1-9][0-9]{0,2}(\.[0-9]{1,3}){0,2}\Z")
parts = st.one_of(
    st.builds(lambda op, version: op + version, st.sampled_from((">=", "<=", "!=", "<", ">", "==")), versions),
    st.builds(lambda version: f"=={version}.*", versions),
)
specifiers = st.lists(parts, max_size=3).map(",".join)


@given(st.sampled_from(COMPONENTS), specifiers, st.sampled_from(("", "", "+cu118", "+cu12")))
def test_a_requirement_survives_being_printed(component, specifier, variant):
    if component != "torch" and not (component in BUILT_FOR and variant == "+cu12"):
        variant = ""
    once = parse_requirement(component + specifier + variant)
    assert parse_requirement(str(once)) == once
    assert once.component == component
    assert once.variant == variant.lstrip("+")


@given(st.text(max_size=20))
def test_any_text_is_a_requirement_or_bad_input(text):
    try:
        parse_requirement(text)
    except BadInputError as error:
        refused = error
    else:
        return
    assert refused.path
    assert refused.hint


WISHES = ("torch>=2.4", "cuda>=12", "cudnn", "nccl", "cupy", "jax", "driver<600", "python>=3.10", "torch<2.12")


@given(st.lists(st.sampled_from(WISHES), unique=True), st.randoms(use_true_random=False))
def test_the_order_of_requirements_says_nothing(texts, dice):
    shuffled = list(texts)
    dice.shuffle(shuffled)
    one, other = parse_requirements(texts), parse_requirements(shuffled)
    assert one == other
    assert _answer(Request(requirements=one)) == _answer(Request(requirements=tuple(reversed(other))))


def _answer(request: Request) -> Any:
    try:
        return resolve(request, SHIPPED).stack
    except NoStackError as error:
        return sorted(item["rule"] for item in error.to_document()["conflict"])


@given(questions(), st.sampled_from(GPUS))
def test_a_gpu_more_never_widens_what_fits(question, gpu):
    matrix, request = question
    # A GPU that exists beside one CPU alone may say which CPU is meant: that is another question.
    assume(request.arch is not None or gpu not in ("gh200", "t4g"))
    count = max(request.gpu_count, len(request.gpus) + 1)
    more = msgspec.structs.replace(request, gpus=(*request.gpus, gpu), gpu_count=count)
    if fits(more, matrix):
        assert fits(request, matrix)


@given(questions())
def test_what_resolves_fits_and_stays_when_installed(question):
    matrix, request = question
    try:
        chosen = resolve(request, matrix).stack.driver
    except NoStackError:
        assert not fits(request, matrix)
        return
    assert fits(request, matrix)
    again = msgspec.structs.replace(request, installed_driver=chosen.version, installed_module=chosen.module)
    kept = resolve(again, matrix).stack.driver
    assert (kept.version, kept.module) == (chosen.version, chosen.module), "a second run changes the driver"
