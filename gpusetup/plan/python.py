"""The Python environment of a stack: exact pins with their index lines, as pip reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.plan.requests import adopted_python

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpusetup.model.facts import HostFacts
    from gpusetup.model.release import CudaFile, NcclFile
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import Stack

__all__ = ["LIBRARIES", "adopted_requirements", "python_requirements"]

LIBRARIES = ("cuda", "cudnn", "nccl")
"""What comes as system packages, or as wheels."""

_CUPY_NEEDS = ("cuda-runtime", "cuda-nvrtc", "cublas", "cufft", "curand", "cusolver", "cusparse", "nvjitlink")
_WATCHED = ("cupy", "torch", "tensorflow", "jax")


def python_requirements(
    stack: Stack, cuda: CudaFile, nccl: NcclFile, *, wheels: Collection[str] = LIBRARIES
) -> tuple[str, ...]:
    """Return a requirements file: option lines first. `wheels`: the CUDA libraries that come as wheels too."""
    options: list[str] = []
    pins: list[str] = []
    frameworks = [name for name in ("torch", "tensorflow", "jax") if getattr(stack, name) is not None]
    if stack.torch is not None:
        if stack.torch.on_pypi:
            pins.append(f"torch=={stack.torch.version}")
        else:
            options.append(f"--extra-index-url {stack.torch.index_url}")
            pins.append(f"torch=={stack.torch.version}+{stack.torch.variant}")
    if stack.tensorflow is not None:
        extra = f"[{stack.tensorflow.extra}]" if stack.tensorflow.extra else ""
        pins.append(f"tensorflow{extra}=={stack.tensorflow.version}")
    if stack.jax is not None:
        pins.append(f"jax[{stack.jax.extra}]=={stack.jax.version}")
    if stack.cupy is not None:
        extra = "[ctk]" if "cuda" in wheels and stack.cupy.ctk else ""
        pins.append(f"{stack.cupy.package}{extra}=={stack.cupy.version}")
    if not frameworks:
        pins += _toolkit_wheels(stack, cuda) if "cuda" in wheels else []
        pins += _other_wheels(stack, nccl, wheels)
    return (*options, *pins)


def _toolkit_wheels(stack: Stack, cuda: CudaFile) -> list[str]:
    """Pin the toolkit's wheels to the chosen CUDA; where a framework is, its own pins decide."""
    if stack.cuda is None or stack.cupy is None:
        return []
    if stack.cupy.ctk:
        return [f"cuda-toolkit=={stack.cuda.wheel}"] if stack.cuda.wheel else []
    known = next((item.pins for item in cuda.wheel_pins if item.wheel == stack.cuda.wheel), {})
    stems = {name.removesuffix(f"-cu{stack.cuda.version.partition('.')[0]}"): name for name in known}
    wanted = [stems[f"nvidia-{name}"] for name in _CUPY_NEEDS if f"nvidia-{name}" in stems]
    return [f"{name}=={known[name]}" for name in wanted]


def _other_wheels(stack: Stack, nccl: NcclFile, wheels: Collection[str]) -> list[str]:
    pins: list[str] = []
    if stack.cudnn is not None and "cudnn" in wheels:
        pins.append(f"nvidia-cudnn-cu{stack.cudnn.cuda.partition('.')[0]}=={stack.cudnn.version}")
    if stack.nccl is not None and stack.cuda is not None and "nccl" in wheels:
        major = stack.cuda.version.partition(".")[0]
        builds = next((item.builds for item in nccl.releases if item.version == stack.nccl.version), ())
        wheel = next((b.version for b in builds if b.kind == "wheel" and b.cuda.partition(".")[0] == major), None)
        if wheel is not None:
            pins.append(f"nvidia-nccl-cu{major}=={wheel}")
    return pins


def adopted_requirements(facts: HostFacts, settings: Settings, stack: Stack) -> tuple[str, ...]:
    """Return the pins that an adopted interpreter must have: what of the stack it was found with."""
    python = adopted_python(facts, settings)
    if python is None:
        return ()
    wanted = {name for name in _WATCHED if getattr(stack, name) is not None}
    return tuple(
        f"{name}=={version}"
        for name, version in sorted(python.packages.items())
        if any(name == item or name.startswith(f"{item}-cuda") for item in wanted)
    )
