"""PyTorch, TensorFlow and JAX on every GPU."""

import re
from typing import Any

from gpusetup.errors import GpuSetupError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request, Requirement
from gpusetup.model.verdict import Finding, Item
from gpusetup.resolve.api import resolve
from gpusetup.resolve.rules import Way, way_of
from gpusetup.verify.answers import explain, failed_item
from gpusetup.verify.checks.smoke.cuda import cudnn_version, too_few
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items, in_stack


def _absent(machine: Machine, name: str, title: str) -> Finding | None:
    answer = machine.sections.get(name)
    wanted = machine.wanted.has(name)
    if not isinstance(answer, dict):
        interpreter = machine.sections.get("interpreter")
        if isinstance(interpreter, dict) and interpreter.get("error"):
            return Finding("skip", "not run (see python.environment)")
        if wanted:
            return Finding("fail", f"the lock has {title}, and it is not installed in this Python")
        return Finding("skip", f"{title} is not installed here")
    if answer.get("error") == "import":
        return Finding("fail", f"{title} cannot be imported: {str(answer.get('message'))[:200]}")
    if answer.get("error"):
        return Finding("fail", explain(answer))
    return None


def _operations(answer: dict[str, Any], machine: Machine) -> list[Item]:
    items = []
    for gpu in answer.get("gpus", []):
        subject = f"GPU {gpu.get('index')}"
        if gpu.get("error"):
            full = "out of memory" in str(gpu["error"]).lower() or "MemoryAllocation" in str(gpu["error"])
            told = {"error": "out-of-memory" if full else "failed", "message": str(gpu["error"]).splitlines()[0][:200]}
            items.append(failed_item(subject, told, busy=machine.beside_job(gpu.get("index"))))
            continue
        for kind in ("product", "convolution"):
            error, limit = gpu.get(f"{kind}_error"), gpu.get(f"{kind}_limit")
            if error is None or limit is None or not error <= limit:
                text = f"the {kind} is off by {error}, {limit} would be rounding error"
                items.append(Item(subject, "fail", text, error, limit=limit, blame="gpu"))
                break
        else:
            items.append(Item(subject, "pass"))
    return items


@check("torch.cuda", "PyTorch computes on every GPU", needs=("gpu",), took="torch", asked=in_stack("torch"))
def torch_cuda(machine: Machine) -> Finding:
    """PyTorch sees every GPU; a product and a convolution (cuDNN) come out right on each.

    In its own process, in the environment that apply made. `is_available()` alone is not enough: it is true for builds
    that hold no code for this GPU.

    To do: the text names what PyTorch said; see torch.build for the wheel that fits.
    """
    missing = _absent(machine, "torch", "PyTorch")
    if missing is not None:
        return missing
    answer = machine.sections["torch"]
    version, wanted = str(answer.get("version")), machine.wanted.version("torch")
    if not answer.get("available"):
        if not answer.get("cuda"):
            return Finding("fail", f"PyTorch {version} was built without CUDA", version, wanted)
        return Finding(
            "fail", f"PyTorch {version} finds no GPU: {answer.get('why_not') or 'it does not say why'}", version, wanted
        )
    if wanted and version.split("+", maxsplit=1)[0] != wanted.split("+")[0]:
        return Finding("fail", f"PyTorch is {version}, the lock says {wanted}", version, wanted)
    items = _operations(answer, machine)
    cudnn = answer.get("cudnn")
    named = f", cuDNN {cudnn_version(cudnn)}" if cudnn else ""
    text = f"{version}{named}: product and convolution correct on every GPU"
    return too_few("PyTorch", items, machine) or from_items(items, text)


def _nearest_build(capability: str, machine: Machine) -> str:
    """Return `; use …` with the newest stable PyTorch build that has code for this GPU and runs on this driver."""
    request = Request(
        requirements=(Requirement(component="torch"),),
        gpus=(f"sm_{capability.replace('.', '')}",),
        driver=machine.module_version,
    )
    try:
        found = resolve(request, matrix()).stack.torch
    except GpuSetupError:
        return "; no PyTorch build in the matrix does so with this driver"
    return f"; use torch=={found.version}+{found.variant} ({found.index_url})" if found is not None else ""


def served(capability: str, architectures: list[str], *, jit: bool = True) -> Way | None:
    """Return how PyTorch's architectures (`sm_90`, `sm_90a`, `compute_120`) serve a GPU; None if not at all."""
    named = [match.groups() for name in architectures if (match := _ARCHITECTURE.fullmatch(name))]
    targets = tuple(f"{major}.{minor}" for kind, major, minor in named if kind == "sm")
    return way_of(
        targets, tuple(f"{major}.{minor}" for kind, major, minor in named if kind != "sm"), capability, jit=jit
    )


_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d[af]?)")


@check("torch.build", "PyTorch's build fits the GPU", needs=("gpu",), asked=in_stack("torch"))
def torch_build(machine: Machine) -> Finding:
    """This build of PyTorch holds code for every GPU here: machine code of its architecture, or PTX to compile.

    Machine code for X.y runs on X.z with z ≥ y and never across majors; PTX goes upwards only, and only on a driver
    that is as new as the build's CUDA. Code for 9.0a runs on 9.0 alone, code for 10.0f from there on within its major.
    A build without either says `no kernel image is available` at the first operation. The nearest build that works is
    looked up in the matrix.

    To do: install the build that is named.
    """
    missing = _absent(machine, "torch", "PyTorch")
    if missing is not None:
        return Finding("skip", "not checked (see torch.cuda)") if missing.verdict == "fail" else missing
    answer = machine.sections["torch"]
    architectures = answer.get("arch_list")
    if not architectures:
        return Finding("skip", "not checked: PyTorch lists architectures only when it finds a GPU (see torch.cuda)")
    version, items = answer.get("version"), []
    jit = machine.compiles_ptx_of(answer.get("cuda"))
    for index, capability in sorted(machine.capabilities.items()):
        how = served(capability, architectures, jit=jit)
        if how == "sass":
            items.append(Item(f"GPU {index}", "pass", capability))
        elif how == "ptx":
            text = f"has only PTX for this GPU (compute capability {capability}): the first start is slow"
            items.append(Item(f"GPU {index}", "warn", text))
        else:
            text = (
                f"{version} contains no code for compute capability {capability}{_nearest_build(capability, machine)}"
            )
            items.append(Item(f"GPU {index}", "fail", text))
    listed = " ".join(architectures)
    return from_items(
        items, f"{answer.get('version')}: {listed}", nothing="not checked: the compute capability is not known"
    )


@check(
    "tensorflow.gpu",
    "TensorFlow computes on every GPU",
    needs=("gpu",),
    took="tensorflow",
    asked=in_stack("tensorflow"),
)
def tensorflow_gpu(machine: Machine) -> Finding:
    """TensorFlow lists every GPU; a product and a convolution come out right on each.

    TensorFlow without its CUDA packages (`tensorflow[and-cuda]`) imports well and quietly computes on the CPU: then no
    GPU is listed, which is a fail here.

    To do: install `tensorflow[and-cuda]` into the environment that apply made.
    """
    missing = _absent(machine, "tensorflow", "TensorFlow")
    if missing is not None:
        return missing
    answer = machine.sections["tensorflow"]
    version, wanted = str(answer.get("version")), machine.wanted.version("tensorflow")
    if not answer.get("built_with_cuda"):
        return Finding("fail", f"TensorFlow {version} was built without CUDA", version, wanted)
    if wanted and version != wanted:
        return Finding("fail", f"TensorFlow is {version}, the lock says {wanted}", version, wanted)
    items = _operations(answer, machine)
    cudnn = (answer.get("build") or {}).get("cudnn_version")
    few = too_few(f"TensorFlow {version}", items, machine, ": its CUDA libraries are missing")
    text = f"{version}, built for cuDNN {cudnn}: product and convolution correct on every GPU"
    return few or from_items(items, text)


@check("jax.gpu", "JAX computes on every GPU", needs=("gpu",), took="jax", asked=in_stack("jax"))
def jax_gpu(machine: Machine) -> Finding:
    """JAX finds its CUDA plugin and every GPU; a product and a convolution come out right on each.

    JAX without a working plugin (`jax[cuda12]`, `jax[cuda13]`) imports well and quietly computes on the CPU: here the
    GPUs are asked for by name, so that the plugin's own reason is seen.

    To do: the text names what JAX said; install `jax[cuda13]` (or `[cuda12]`, by the driver) into the environment that
    apply made, and remove plugins of another version than jaxlib's.
    """
    missing = _absent(machine, "jax", "JAX")
    if missing is not None:
        return missing
    answer = machine.sections["jax"]
    version, wanted = str(answer.get("version")), machine.wanted.version("jax")
    plugins = [name for name in answer.get("plugins") or {} if name.endswith("-plugin")]
    if not plugins:
        return Finding("fail", f"JAX {version} has no CUDA plugin (jax[cuda13] or jax[cuda12])", version, wanted)
    if wanted and version != wanted:
        return Finding("fail", f"JAX is {version}, the lock says {wanted}", version, wanted)
    if answer.get("why_not"):
        return Finding("fail", f"JAX {version} finds no GPU: {answer['why_not'].splitlines()[0][:300]}", version)
    items = _operations(answer, machine)
    text = f"{version}, {', '.join(plugins)}: product and convolution correct on every GPU"
    return too_few(f"JAX {version}", items, machine) or from_items(items, text)
