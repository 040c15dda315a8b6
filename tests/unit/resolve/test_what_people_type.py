"""Requirements and distributions as people write them mean what they say."""

import re

import pytest

from gpusetup.cli.main import command_parser
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import find_system
from gpusetup.model.request import ELSEWHERE, Request
from gpusetup.resolve.naming import typed
from gpusetup.resolve.requests import parse_requirement, parse_requirements, question
from gpusetup.resolve.tables import table_rows
from tests.property.test_command_line import run
from tests.stored import stored_rows


@pytest.mark.parametrize(("words", "meant"), stored_rows("typed-requirements.json"), ids=" ".join)
def test_a_requirement_means_what_it_says(words, meant):
    assert [str(item) for item in parse_requirements(words)] == meant


def test_a_build_without_cuda_is_named_as_such(refused):
    told = refused("torch==2.6.0+cpu")
    assert "a build without code for NVIDIA GPUs" in told["conflict"][0]["text"]
    assert told["suggestions"] == ["torch==2.6.0 exists and would fit"]
    assert refused("torch===2.6")["suggestions"] == ["torch==2.6.0 exists and would fit"]


@pytest.mark.parametrize(("text", "meant"), stored_rows("typed-distributions.json"))
def test_a_distribution_by_its_usual_names(text, meant):
    assert find_system(matrix(), text).id == meant


@pytest.mark.parametrize(("typed", "meant"), stored_rows("typed-packages.json"))
def test_packages_of_vendors_and_distributions_are_known_as_what_they_are(typed, meant):
    assert str(parse_requirement(typed)) == meant


@pytest.mark.parametrize(("typed", "hint"), [*stored_rows("typed-elsewhere.json"), *((name, "") for name in ELSEWHERE)])
def test_what_is_not_a_component_is_pointed_to_one(typed, hint):
    with pytest.raises(BadInputError) as caught:
        parse_requirements([typed])
    assert re.match(hint, caught.value.hint)
    for words in re.findall(r"gpusetup resolve '?([a-z0-9 >=-]*?[a-z0-9])(?= --|[^a-z0-9 >=-])", caught.value.hint):
        assert parse_requirements(words.split())


@pytest.mark.parametrize(("asked", "limit"), stored_rows("typed-beyond.json"))
def test_what_lies_outside_the_matrix_is_not_called_missing(refused, asked, limit):
    texts = " ".join(item["text"] for item in refused(asked)["conflict"])
    assert limit in texts
    assert "there is no" not in texts


@pytest.mark.parametrize(
    "form", ["{n}x{g}", "{n}x {g}", "{n} x {g}", "{n}*{g}", "{n} {g}", "{g}:{n}", "{g} x{n}", "{g} * {n}"]
)
def test_a_number_of_gpus_by_its_usual_spellings(shipped, form):
    for name in ("h100", "RTX 4090", "a100x", "titan x", "rtx pro 6000"):
        if not (name[-1] == "x" and form.endswith(" x{n}")):
            words = form.format(n=8, g=name)
            for unquoted in ([words], words.split())[: 1 if name == "titan x" else 2]:
                told = command_parser("matrix").parse_args(["--gpu", *unquoted, "torch"])
                asked = question(told.requirements, shipped, gpus=told.gpu)
                assert (asked.gpus, asked.gpu_count, typed(asked)) == ((name,), 8, f"torch --gpu '8x {name}'")
            rows = [table_rows("gpu", said, Request(requirements=()), shipped) for said in (words, name)]
            assert rows[0] == rows[1]


@pytest.mark.parametrize("number", ["566.03", "566.36"])
def test_a_driver_of_windows_is_judged_by_its_branch_as_that_of_wsl(number):
    code, _out, err = run(["resolve", "torch", "--driver", number])
    assert (code, f"{number} is a number of Windows" in err, "judged as R565" in err) == (0, True, True)
    assert "Windows" not in run(["resolve", "cuda", "--driver", "435.21"])[2]


def test_the_table_of_drivers_has_those_of_a_gpu(shipped):
    rows = table_rows("driver", "", Request(requirements=(), gpus=("h100",)), shipped)
    assert {"R580", "R535"} <= {row["branch"] for row in rows}
