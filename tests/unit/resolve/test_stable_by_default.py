"""What people ask first: stable by default, native where a build is, and reasons that explain."""

import msgspec
import pytest

from gpusetup.matrix.load import Matrix
from gpusetup.model.request import DriverCandidate, Request
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.stored import stored_rows


def test_a_branch_that_ends_within_a_year_loses_against_a_long_term_one(ask):
    earlier = Matrix()
    released = tuple(item for item in earlier.driver.versions if item.branch < 620)
    earlier.driver = msgspec.structs.replace(earlier.driver, versions=released)
    found = resolve(Request(requirements=parse_requirements(["torch"]), gpus=("h100",)), earlier)
    assert (found.stack.driver.branch, found.stack.torch.relation) == ("580", "native")
    told = [item.text for item in found.reasons]
    assert "cu130 is native to R580; the build on PyPI, cu132, is not" in told
    assert "not R595: its support ends 2027-03; request it with driver==595.*" in told
    assert ask("torch", "driver==595.*", gpu=["h100"]).stack.driver.branch == "595"


@pytest.mark.parametrize("wish", ["cuda", "cuda>=13", "cuda==13.*", "driver>=580", "cudnn", "cupy"])
def test_no_new_feature_branch_unasked(ask, wish):
    assert ask(wish).stack.driver.branch == "620"


def test_a_cuda_asked_for_by_its_version_brings_its_driver(ask):
    stack = ask("cuda==13.5.*").stack
    assert (stack.driver.branch, stack.cuda.relation) == ("620", "native")
    assert ask("torch==2.15.0+cu132", "driver<620").stack.driver.branch == "595"


@pytest.mark.parametrize("kept", [{"driver": "580.126.09"}, {"installed_driver": "580.126.09"}])
def test_a_driver_that_stays_gets_the_native_build_of_the_same_release(ask, kept):
    torch = ask("torch", gpu=["h100"], **kept).stack.torch
    assert (torch.version, torch.variant, torch.relation) == ("2.15.0", "cu130", "native")
    pinned = ask("torch", "driver==580.*", gpu=["h100"]).stack.torch
    assert (pinned.variant, pinned.relation) == ("cu130", "native")


def test_latest_means_latest(ask):
    assert ask("driver==latest").stack.driver.branch == "620"
    assert ask("cuda==latest").stack.cuda.version == "13.5.0"
    kept = ask("driver==latest", "cuda==latest", installed_driver="580.126.09").stack
    assert (kept.driver.branch, kept.cuda.version) == ("620", "13.5.0")


@pytest.mark.parametrize("gpu", ["rtx 5090", "sm_121", "b200", "b300"])
def test_tensorflow_is_refused_where_it_is_known_to_fail(refused, gpu):
    (item,) = refused("tensorflow", gpu=[gpu])["conflict"]
    assert item["rule"] == "tensorflow-fails-on-gpu"
    assert "container works" in item["text"]


def test_jax_keeps_to_the_gpus_that_it_supports(ask, refused):
    _, item = refused("jax==0.12.*", gpu=["quadro k2200"])["conflict"]
    assert item["rule"] == "jax-gpu-floor"
    assert "compute capability 5.2 or newer" in item["text"]
    assert ask("jax", gpu=["quadro k2200"]).stack.jax.extra == "cuda11_pip"
    assert ask("jax", gpu=["gtx 970"]).stack.jax.extra == "cuda12"


@pytest.mark.parametrize(("wishes", "machine", "reason"), stored_rows("a-reason-judges-the-candidate-that-it-na.json"))
def test_a_reason_judges_the_candidate_that_it_names(ask, wishes, machine, reason):
    assert reason in [item.text for item in ask(*wishes, **machine).reasons]


def test_the_nearest_change_comes_first(refused):
    assert refused("torch==2.6.*", gpu=["rtx 5090"])["suggestions"][0] == "torch==2.7.1+cu128 would fit"
    ways = refused(gpu=["v100"], os="ubuntu26.04")["suggestions"]
    assert any("wheels" in text for text in ways)
    assert "use ubuntu24.04 instead of ubuntu26.04" in ways


def test_the_build_on_pypi_is_not_doubted(ask):
    assert not [text for text in ask("torch==1.13.1", gpu=["a100"]).warnings if "check the index" in text]


def test_a_repository_that_lacks_a_supported_branch_is_blamed_itself(ask):
    debian = (DriverCandidate(version="535.309.01", modules=("proprietary",)),)
    (text,) = [text for text in ask("cuda", gpu=["v100"], driver_candidates=debian).warnings if "end of life" in text]
    assert "this host's repositories have no supported branch that fits; NVIDIA's has R580" in text
    assert "gpusetup_source=nvidia" in text
