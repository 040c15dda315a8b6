"""Trials of runtimes for whole networks: each network is small, random, and built here without further packages."""

import ctypes
import glob
import os
import tempfile
from typing import Any, Iterator, List, Sequence, Tuple, Union

from package_smoke import Trial

TF32 = 5e-3


def onnxruntime(library: Any, index: int) -> Iterator[Trial]:
    """Run a graph on the CUDA provider alone: with the CPU provider, it would silently run there."""
    import numpy

    numbers = numpy.random.default_rng()
    data, weight = (numbers.standard_normal(shape).astype("float32") for shape in ((32, 128), (128, 64)))
    options = library.SessionOptions()
    options.log_severity_level = 4
    graph = onnx_graph(weight)

    def opened() -> Any:
        return library.InferenceSession(graph, options, providers=[("CUDAExecutionProvider", {"device_id": index})])

    session, note = opened(), ""
    if session.get_providers()[0] != "CUDAExecutionProvider" and hasattr(library, "preload_dlls"):
        library.preload_dlls()  # loads the CUDA libraries of installed wheels
        session, note = opened(), "its CUDA libraries are found only after onnxruntime.preload_dlls()"
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise OSError(f"it runs on the CPU, without an error: {_why_no_cuda(library)}")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = opened()
    yield Trial(
        "graph",
        lambda: session.run(None, {"x": data})[0],
        numpy.maximum(data.astype("float64") @ weight, 0),
        TF32,
        where=lambda _got: str(session.get_providers()[0]),
        note=note,
    )


def _why_no_cuda(library: Any) -> str:
    """Load the provider's library as onnxruntime does, and return the loader's error."""
    if "CUDAExecutionProvider" not in library.get_available_providers():
        return "this build has no CUDA provider (are onnxruntime and onnxruntime-gpu both installed?)"
    folder = os.path.join(os.path.dirname(library.__file__), "capi")
    try:
        for name in ("shared", "cuda"):
            ctypes.CDLL(os.path.join(folder, f"libonnxruntime_providers_{name}.so"), ctypes.RTLD_GLOBAL)
    except OSError as failure:
        return str(failure)[:300]
    return "its CUDA provider opens and is not taken"


def onnx_graph(weight: Any) -> bytes:
    """Return y = relu(x @ weight) as an ONNX file, by the field numbers of its definition."""

    def shape(*sizes: int) -> bytes:
        return b"".join(_field(1, _field(1, size)) for size in sizes)

    def value(name: str, *sizes: int) -> bytes:
        return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, shape(*sizes))))

    def node(kind: str, inputs: Sequence[str], output: str) -> bytes:
        return b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(4, kind)

    rows, columns = weight.shape
    constant = _field(1, rows) + _field(1, columns) + _field(2, 1) + _field(8, "w") + _field(9, weight.tobytes())
    graph = (
        _field(1, node("MatMul", ("x", "w"), "m"))
        + _field(1, node("Relu", ("m",), "y"))
        + _field(2, "product")
        + _field(5, constant)
        + _field(11, value("x", 32, rows))
        + _field(12, value("y", 32, columns))
    )
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 17))


def _field(number: int, value: Union[int, str, bytes]) -> bytes:
    """Return a Protocol Buffers field: a number, or text or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


class Driver:
    """Allocates memory of one GPU through the driver's library, because TensorRT takes addresses."""

    def __init__(self, index: int) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise OSError(f"{name} answered {status}")

    def upload(self, array: Any) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return address

    def download(self, address: ctypes.c_uint64, array: Any) -> Any:
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), address, ctypes.c_size_t(array.nbytes))
        return array


def tensorrt(library: Any, index: int) -> Iterator[Trial]:
    """Build a network for this GPU and run it."""
    import numpy

    numbers = numpy.random.default_rng()
    data, weight = (numbers.standard_normal(shape).astype("float32") for shape in ((32, 128), (128, 64)))
    driver = Driver(index)
    logger = library.Logger(library.Logger.ERROR)
    builder = library.Builder(logger)
    batch = getattr(getattr(library, "NetworkDefinitionCreationFlag", None), "EXPLICIT_BATCH", None)
    network = builder.create_network(0 if batch is None else 1 << int(batch))
    entry = network.add_input("x", library.float32, data.shape)
    kept = network.add_constant(weight.shape, library.Weights(weight))
    plain = library.MatrixOperation.NONE
    product = network.add_matrix_multiply(entry, plain, kept.get_output(0), plain)
    gate = network.add_activation(product.get_output(0), library.ActivationType.RELU)
    gate.get_output(0).name = "y"
    network.mark_output(gate.get_output(0))
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    if plan is None:
        raise OSError("no engine could be built for this GPU")
    context = library.Runtime(logger).deserialize_cuda_engine(plan).create_execution_context()
    out = numpy.zeros((32, 64), "float32")
    there, back = driver.upload(data), driver.upload(out)
    context.set_tensor_address("x", there.value)
    context.set_tensor_address("y", back.value)

    def run() -> Any:
        if not context.execute_async_v3(0):
            raise OSError("the engine did not run")
        return driver.download(back, out)

    exact = numpy.maximum(data.astype("float64") @ weight, 0)
    yield Trial("network", run, exact, TF32, where=lambda _got: f"cuda:{index}")  # TensorRT runs only on GPUs


def ctranslate2(library: Any, index: int) -> Iterator[Trial]:
    """Run a decoder of random weights; its products need a cuBLAS, which its own wheel does not include."""
    import numpy

    folder = tempfile.mkdtemp(prefix="model-")  # in the folder of this verification
    _decoder(library).save(folder)
    words = library.StorageView.from_array(numpy.random.default_rng().integers(0, 96, (2, 24)).astype("int32"))
    lengths = library.StorageView.from_array(numpy.full(2, 24, "int32"))

    def forward(model: Any, device: str) -> Any:
        target = getattr(library.Device, device)
        return model.forward_batch(words.to_device(target), lengths.to_device(target))

    exact = numpy.asarray(forward(library.Generator(folder, device="cpu", compute_type="float32"), "cpu"))
    there = library.Generator(folder, device="cuda", device_index=index, compute_type="float32")
    yield Trial(
        "forward",
        lambda: forward(there, "cuda"),
        exact,
        2e-2,
        where=lambda _got: str(there.device),
        distance=lambda got, wanted: float(
            numpy.linalg.norm(numpy.asarray(got.to_device(library.Device.cpu)) - wanted) / numpy.linalg.norm(wanted)
        ),
    )


def _decoder(library: Any) -> Any:
    """Return the specification of a two-layer decoder with 96 words."""
    import numpy

    numbers = numpy.random.default_rng()
    spec = library.specs.TransformerDecoderModelSpec.from_config(2, 4)

    def weights(*shape: int) -> Any:
        return (numbers.standard_normal(shape) * 0.1).astype("float32")

    def linear(layer: Any, columns: int, rows: int) -> None:
        layer.weight, layer.bias = weights(columns, rows), weights(columns)

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = 1 + weights(64), weights(64)

    decoder = spec.decoder
    decoder.embeddings.weight = weights(96, 64)
    decoder.position_encodings.encodings = weights(64, 64)
    norm(decoder.layer_norm)
    linear(decoder.projection, 96, 64)
    for layer in decoder.layer:
        norm(layer.self_attention.layer_norm)
        linear(layer.self_attention.linear[0], 192, 64)
        linear(layer.self_attention.linear[1], 64, 64)
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, 128, 64)
        linear(layer.ffn.linear_1, 64, 128)
    spec.register_vocabulary([f"w{number}" for number in range(96)])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "w0", "w1", "w2"
    spec.validate()
    return spec


def llama_cpp(library: Any, _index: int) -> Iterator[Trial]:
    """Check whether the build supports GPUs; more would need a model's file."""
    able = bool(library.llama_supports_gpu_offload())
    found: List[Tuple[str, ...]] = [
        tuple(glob.glob(os.path.join(os.path.dirname(library.__file__), "lib", "*ggml-cuda*")))
    ]
    yield Trial(
        "offload",
        lambda: float(able),
        1.0,
        0.0,
        where=lambda _got: "cuda" if able and found[0] else "cpu",
        distance=lambda got, wanted: abs(got - wanted),
    )
