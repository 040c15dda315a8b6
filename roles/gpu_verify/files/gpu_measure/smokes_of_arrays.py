"""Trials of packages without torch: compiled kernels, data frames, machine learning, pipelines."""

import json
from typing import Any, Iterator

from package_smoke import Trial


def numba_cuda(cuda: Any, index: int) -> Iterator[Trial]:
    """Compile and run a kernel with shared memory and a barrier."""
    import numpy

    cuda.select_device(index)

    @cuda.jit
    def turned(out, data):  # type: ignore[no-untyped-def]  # compiled for the GPU, not run by Python
        block = cuda.shared.array(256, "float32")
        at = cuda.grid(1)
        here = cuda.threadIdx.x
        block[here] = data[at] if at < data.size else 0.0
        cuda.syncthreads()
        if at < data.size:
            out[at] = block[255 - here] * 2.0 + block[here]

    data = numpy.random.default_rng().standard_normal(256 * 400).astype("float32")
    blocks = data.reshape(-1, 256)
    there, out = cuda.to_device(data), cuda.device_array(data.size, "float32")

    def run() -> Any:
        turned[400, 256](out, there)
        return out

    yield Trial("kernel", run, (blocks[:, ::-1] * 2 + blocks).ravel(), 1e-6)


def cudf(library: Any, _index: int) -> Iterator[Trial]:
    """Group and sum."""
    import numpy

    numbers = numpy.random.default_rng()
    keys, values = numbers.integers(0, 100, 50000), numbers.integers(0, 1000, 50000)
    frame = library.DataFrame({"key": keys, "value": values})
    yield Trial(
        "group-by", lambda: frame.groupby("key")["value"].sum().sort_index().values, numpy.bincount(keys, values), 0.0
    )


def cuml(_library: Any, _index: int) -> Iterator[Trial]:
    """Ordinary least squares."""
    import numpy
    from cuml.linear_model import LinearRegression

    numbers = numpy.random.default_rng()
    data, weights = numbers.standard_normal((2000, 16)), numbers.standard_normal(16)
    target = data @ weights + 0.1 * numbers.standard_normal(2000)
    wanted = numpy.linalg.lstsq(numpy.c_[data, numpy.ones(2000)], target, rcond=None)[0][:16]
    yield Trial("regression", lambda: LinearRegression(output_type="cupy").fit(data, target).coef_, wanted, 1e-6)


def xgboost(library: Any, index: int) -> Iterator[Trial]:
    """Train on the GPU; a build that fell back to the CPU has `cpu` in its settings."""
    import numpy

    numbers = numpy.random.default_rng()
    data = numbers.standard_normal((4000, 8)).astype("float32")
    target = numpy.where(data[:, 0] > 0, 3.0, -1.0) + numpy.where(data[:, 1] > 0.5, 2.0, 0.0)
    table = library.DMatrix(data, target)

    def train(device: str) -> Any:
        return library.train(
            {"device": device, "tree_method": "hist", "max_depth": 3, "eta": 0.5, "verbosity": 0}, table, 8
        )

    yield Trial(
        "training",
        lambda: train(f"cuda:{index}"),
        train("cpu").predict(table),
        2e-2,
        where=lambda booster: str(json.loads(booster.save_config())["learner"]["generic_param"]["device"]),
        distance=lambda booster, wanted: float(
            numpy.linalg.norm(booster.predict(table) - wanted) / numpy.linalg.norm(wanted)
        ),
    )


def nvidia_dali(library: Any, index: int) -> Iterator[Trial]:
    """Run a pipeline that takes our arrays, computes on the GPU and returns them."""
    import numpy
    from nvidia.dali import fn

    data = numpy.random.default_rng().standard_normal((4, 32, 32)).astype("float32")
    pipe = library.Pipeline(batch_size=4, num_threads=1, device_id=index)
    with pipe:
        pipe.set_outputs(fn.external_source(lambda: list(data), num_outputs=None).gpu() * 2.0 + 1.0)
    pipe.build()

    def placed(got: Any) -> str:
        return "cuda" if "GPU" in type(got).__name__ else type(got).__name__

    yield Trial(
        "arithmetic",
        lambda: pipe.run()[0],
        data * 2 + 1,
        1e-6,
        where=placed,
        distance=lambda got, wanted: float(numpy.abs(got.as_cpu().as_array() - wanted).max()),
    )
