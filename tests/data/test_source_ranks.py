"""What people get when they ask for nothing special rests on the vendor's own documents."""

import pytest

from gpusetup.errors import NoStackError
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.data.source_ranks import is_first_class, rank

GPUS = ("p100", "v100", "t4", "a100", "a10", "rtx 4090", "l40s", "h100", "h200", "b200", "rtx 5090")
WISHES = ("", "torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("wish", WISHES)
def test_every_reason_of_a_default_answer_cites_the_vendor(shipped, wish, gpu):
    asked = parse_requirements([wish] if wish else [])
    if wish == "tensorflow" and gpu in ("b200", "rtx 5090"):
        with pytest.raises(NoStackError):
            resolve(Request(requirements=asked, gpus=(gpu,), gpu_count=1), shipped)
        return
    found = resolve(Request(requirements=asked, gpus=(gpu,), gpu_count=1), shipped)
    cited = {reason.source for reason in found.reasons if reason.source.startswith("https")}
    assert [source for source in cited if not is_first_class(source)] == []


@pytest.mark.parametrize(
    ("publisher", "url", "level"),
    [
        ("PyTorch", "https://github.com/pytorch/pytorch/pull/1", 1),
        ("PyTorch", "https://github.com/googlecolab/colabtools/issues/6093", 2),
        ("third party", "https://nvidia.com.example.org/", 3),
        ("NVIDIA", "", 2),
    ],
)
def test_ranks(publisher, url, level):
    assert rank(publisher, url) == level
