"""Machine types of clouds: each GPU is one that the matrix knows, and `--on` asks for it."""

import pytest

from gpusetup.matrix.gpus import find_gpu
from gpusetup.matrix.load import matrix
from tests.property.test_command_line import run


def test_every_gpu_is_known():
    assert all(find_gpu(matrix(), item.gpu).names and item.count > 0 for item in matrix().instances.instances)


SAID = {"P5.48xlarge": "H100", "nd96isr_h100_v5": "H100", "NV36ads_A10_v5": "gpusetup_source", "p5.48xl": "p5.48xlarge"}


@pytest.mark.parametrize(("asked", "said"), SAID.items())
def test_a_type_asks_for_its_gpus(asked, said):
    code, *texts = run(["resolve", "torch", "--on", asked, "--os", "ubuntu24.04"])
    assert (code, said in "".join(texts)) == ({"gpusetup_source": 4, "p5.48xlarge": 3}.get(said, 0), True), texts


def test_the_table_is_narrowed_by_cloud_and_gpu():
    text = run(["matrix", "instances", "aws", "--gpu", "h100"])[1]
    assert ("p5.48xlarge" in text, "p4d" in text) == (True, False)
