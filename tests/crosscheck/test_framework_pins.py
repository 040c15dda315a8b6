"""What TensorFlow tested, and what the wheels of torch, TensorFlow and JAX require, is accepted as it stands."""

import pytest

from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import fits
from tests.crosscheck.facts import check_set, rows


def _requirement(component, specifier):
    return Requirement(component=component, specifier=specifier)


@pytest.mark.parametrize("row", rows("tensorflow_tested_builds"), ids=lambda row: row["tensorflow"])
def test_tensorflow_tested_build(matrix, row):
    wanted = (
        _requirement("tensorflow", f"=={row['tensorflow']}"),
        _requirement("cuda", f"=={row['cuda']}.*"),
        _requirement("cudnn", f"=={row['cudnn']}.*"),
    )
    assert fits(Request(requirements=wanted), matrix)
    lowest, highest = row["python"].split("-")
    record = next(item for item in matrix.tensorflow.releases if item.version == row["tensorflow"])
    assert record.cuda == row["cuda"]
    assert record.cudnn == row["cudnn"]
    for python in (lowest, highest):
        published = record.pythons["x86_64"]
        if python in published:
            assert fits(Request(requirements=(*wanted, _requirement("python", f"=={python}"))), matrix)


def _exact(pins, library):
    text = next((text for name, text in pins.items() if name.startswith(f"nvidia-{library}-cu")), None)
    return text if text is not None and text[:1].isdigit() else None


def _with_libraries(framework, version, pins):
    libraries = {library: _exact(pins, library) for library in ("cudnn", "nccl")}
    return {framework: version, **{name: text for name, text in libraries.items() if text}}


@pytest.mark.parametrize("row", rows("tensorflow_pins"), ids=lambda row: row["tensorflow"])
def test_tensorflow_and_cuda(matrix, row):
    assert check_set(_with_libraries("tensorflow", row["tensorflow"], row["pins"]), matrix) == []
    record = next(item for item in matrix.tensorflow.releases if item.version == row["tensorflow"])
    assert record.pins == row["pins"]


@pytest.mark.parametrize("row", rows("torch_pins"), ids=lambda row: f"{row['torch']}+{row['variant']}")
def test_torch(matrix, row):
    assert check_set(_with_libraries("torch", f"{row['torch']}+{row['variant']}", row["pins"]), matrix) == []
    record = next(item for item in matrix.torch.releases if item.version == row["torch"])
    assert record.pins == row["pins"]
    build = next(item for item in matrix.torch.builds if (item.version, item.variant) == (row["torch"], row["variant"]))
    assert build.default
    assert _exact(row["pins"], "cudnn") == build.cudnn


def test_torch_with_a_cudnn_it_does_not_pin_is_refused(matrix):
    assert check_set({"torch": "2.6.0+cu124", "cudnn": "9.10.2.21"}, matrix)


JAX = [row for row in rows("jax_pins") if not row.get("yanked")]


@pytest.mark.parametrize("row", JAX, ids=lambda row: f"{row['package']}-{row['version']}-{row['extra']}")
def test_jax(matrix, row):
    """The release fits with the lowest cuDNN its requirement takes, when that is one that was published."""
    wanted = (row["version"], row["cuda_major"])
    (release,) = [item for item in matrix.jax.releases if (item.version, item.cuda_major) == wanted]
    pins = {name: "" if text == "any" else text for name, text in row["requires"].items()}
    assert release.pins == pins
    wanted = [_requirement("jax", f"=={row['version']}")]
    cudnn = next((text for name, text in pins.items() if name.startswith("nvidia-cudnn-cu")), "")
    if cudnn:
        wanted.append(_requirement("cudnn", cudnn if cudnn[:1] in "<>=~!" else f"=={cudnn}"))
    assert fits(Request(requirements=tuple(wanted)), matrix)


def test_the_withdrawn_jax_is_refused(matrix):
    assert [row["version"] for row in rows("jax_pins") if row.get("yanked")] == ["0.4.32"]
    assert check_set({"jax": "0.4.32"}, matrix)
