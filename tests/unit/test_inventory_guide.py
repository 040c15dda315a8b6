"""The guide's table of machine types names GPUs that the matrix has, and its files are the ones that are tried."""

import re
from pathlib import Path

import pytest

from gpusetup.matrix.gpus import find_gpu
from gpusetup.matrix.load import matrix

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides/inventories.md").read_text(encoding="utf-8")
ROWS = re.findall(r'^\| (AWS|Azure|Google Cloud) \| (`[^|]+) \| `"?([^|"`]+)"?` \|', GUIDE, re.MULTILINE)


@pytest.mark.parametrize(("cloud", "types", "gpu"), ROWS)
def test_the_gpu_of_a_machine_type_is_one_the_matrix_knows(cloud, types, gpu):
    names = find_gpu(matrix(), gpu).names
    model = re.search(r"[A-Z]\d+[A-Z]*", gpu.upper())
    assert names
    assert model is not None
    assert all(model.group() in name for name in names), (cloud, types, gpu)
    said = re.search(r"_([AHT]\d+)_", types)
    assert said is None or said.group(1) in gpu.upper(), (types, gpu)


def test_every_example_is_in_the_guide():
    assert len(ROWS) >= 11
    files = sorted(path.name for path in (DOCS / "examples/inventories").iterdir())
    assert files == sorted(set(re.findall(r"examples/inventories/(gpus\.\w+\.yml)\)", GUIDE)))
