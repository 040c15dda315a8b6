"""Several toolkits side by side: each as asked, on one driver that runs them all, the first one the default."""

import pytest

from gpusetup.errors import BadInputError, NoStackError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import fits, resolve
from gpusetup.resolve.requests import parse_requirements
from gpusetup.versions import nv
from tests.refusals import refused


def asked(*words, **more):
    more = {"gpus": ("h100",), "os": "ubuntu24.04", **more}
    return resolve(Request(requirements=parse_requirements(list(words)), **more), matrix())


def versions(resolution):
    return [resolution.stack.cuda.version, *(other.version for other in resolution.stack.cudas)]


def test_two_series_are_two_toolkits_and_the_first_is_the_default():
    for words in (["cuda==12.8.*", "cuda==13.0.*"], ["cuda==13.0.*", "cuda==12.8.*"]):
        found = asked(*words)
        assert [f"cuda=={'.'.join(text.split('.')[:2])}.*" for text in versions(found)] == words
        assert nv(found.stack.driver.version).major >= 580


@pytest.mark.parametrize(
    "words", ["cuda>=12 cuda<13", "cuda==12.8.* cuda>=12.8", "cuda==12.8.* cuda!=12.8.0", "cuda==12.8.* cuda==12.8.1"]
)
def test_limits_of_one_toolkit_stay_one(words):
    (wish,) = parse_requirements(words.split())
    assert wish.beside == ()
    assert len(wish.specifier.split(",")) == 2


def test_each_toolkit_is_what_it_is_alone_on_that_driver():
    found = asked("cuda==12.6.*", "cuda==12.8.*", "cuda==13.0.*")
    driver = f"driver=={found.stack.driver.version}"
    alone = [asked(f"cuda=={minor}.*", driver).stack.cuda.version for minor in ("12.6", "12.8", "13.0")]
    assert versions(found) == alone


def test_the_driver_is_one_that_the_most_demanding_toolkit_runs_on():
    alone = asked("cuda==12.4.*", gpus=("h100",), os="ubuntu22.04", installed_driver="550.163.01")
    both = asked("cuda==12.4.*", "cuda==13.0.*", gpus=("h100",), os="ubuntu22.04", installed_driver="550.163.01")
    assert alone.stack.driver.version == "550.163.01"
    assert nv(both.stack.driver.version).major >= 580
    assert versions(both)[0] == alone.stack.cuda.version


def test_a_framework_goes_by_the_default():
    found, alone = asked("torch==2.7.*", "cuda==12.8.*", "cuda==13.0.*"), asked("torch==2.7.*", "cuda==12.8.*")
    assert found.stack.torch.cuda.startswith("12.")
    told = [[item.component for item in one.reasons].count("torch") for one in (found, alone)]
    assert told[0] == told[1]


def test_a_toolkit_that_the_gpu_cannot_have_is_the_conflict():
    with pytest.raises(NoStackError) as caught:
        asked("cuda==13.0.*", "cuda==11.2.*", gpus=("b200",), os="ubuntu22.04")
    assert any("11.2" in item["text"] for item in caught.value.document["conflict"])


def test_what_is_on_record_of_each_stays():
    recorded = (Requirement(component="cuda", specifier="==12.8.0", beside=("==13.0.0",)),)
    assert versions(asked("cuda==12.8.*", "cuda==13.0.*", recorded=recorded)) == ["12.8.0", "13.0.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.8.*", recorded=recorded)) == ["13.0.0", "12.8.0"]
    assert versions(asked("cuda==13.0.*", "cuda==12.9.*", recorded=recorded))[0] == "13.0.0"


def test_the_reasons_speak_of_every_toolkit():
    texts = " ".join(item.text for item in asked("cuda==12.8.*", "cuda==13.0.*").reasons if item.component == "cuda")
    assert "CUDA 12.8" in texts
    assert "CUDA 13.0" in texts


def test_the_requirement_prints_as_it_is_typed():
    (wish,) = parse_requirements(["cuda==12.8.*", "cuda==13.0.*"])
    assert parse_requirements([str(wish)]) == (wish,)


def test_what_looks_at_one_cuda_says_so():
    (wish,) = parse_requirements(["cuda==12.8.*", "cuda==13.0.*"])
    with refused(BadInputError, "GS-114"):
        fits(Request(requirements=(wish,)), matrix())
