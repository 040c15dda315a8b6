"""Machine types of clouds: each GPU is one that the matrix knows, and `--on` asks for it."""

import json

import pytest

from gpusetup.matrix.gpus import find_gpu, instance_named
from gpusetup.matrix.load import matrix
from tests.property.test_command_line import run


def test_every_gpu_is_known():
    for item in matrix().instances.instances:
        assert find_gpu(matrix(), item.gpu).names, item.name
        assert item.count > 0


@pytest.mark.parametrize(("asked", "count"), [("P5.48xlarge", 8), ("nd96isr_h100_v5", 8), ("a3-highgpu-2g", 2)])
def test_a_type_asks_for_its_gpus(asked, count):
    """Any case will do, and Azure's prefix may be left out."""
    assert (instance_named(matrix(), asked).gpu, instance_named(matrix(), asked).count) == ("H100", count)
    code, out, _ = run(["resolve", "torch==2.9.*", "--on", asked, "--os", "ubuntu24.04", "--format", "json"])
    assert code == 0
    assert json.loads(out)["request"]["gpus"] == ["H100"]


def test_a_type_with_vgpu_needs_its_guest_driver():
    code, out, err = run(["resolve", "--on", "Standard_NV36ads_A10_v5", "--os", "ubuntu24.04"])
    assert code == 4
    assert "gpusetup_source" in out + err


def test_an_unknown_type_is_told_with_its_nearest():
    code, _, err = run(["resolve", "--on", "p5.48xlarg"])
    assert code == 3
    assert "p5.48xlarge" in err


def test_the_table_is_narrowed_by_cloud_beginning_and_gpu():
    code, out, _ = run(["matrix", "instances", "azure", "--gpu", "h100", "--format", "json"])
    assert code == 0
    names = {row["instance"] for row in json.loads(out)["rows"]}
    assert names == {"Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", "Standard_ND96isr_H100_v5"}
    assert "p5e.48xlarge" in run(["matrix", "instances", "p5"])[1]
