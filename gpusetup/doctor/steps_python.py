"""Do the frameworks in Python environments fit the driver and the GPU? Read from their metadata, never imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.doctor import builds
from gpusetup.doctor.look import Look, Outcome, cause, fine
from gpusetup.resolve.rules import way_of
from gpusetup.versions import nv

if TYPE_CHECKING:
    from gpusetup.model.symptoms import Environment

__all__ = ["frameworks"]


def frameworks(look: Look) -> Outcome:
    """Judge every environment; the first that cannot work is the cause."""
    told = []
    for environment in look.symptoms.environments:
        for judge in (_torch, _cupy, _jax, _tensorflow):
            outcome = judge(look, environment)
            if outcome is not None and outcome.answer == "cause":
                return outcome
            if outcome is not None:
                told.append(outcome.text)
    return fine("; ".join(told) or "none in the usual places (activate one, then ask again)")


def _capabilities(look: Look) -> list[str]:
    return sorted(
        {text for gpu in look.facts.gpus if (text := gpu.reported_capability or gpu.compute_capability)}, key=nv
    )


def _needs(look: Look, what: str, cuda: str, path: str) -> Outcome | None:
    """Compare a build's CUDA with the driver."""
    if look.driver is None or builds.runs(cuda, look.driver):
        return None
    shown = [
        f"{path}: {what} needs CUDA {cuda}, driver {builds.needs_driver(cuda) or 'unknown'} or newer",
        f"driver: {look.driver}",
    ]
    return cause(
        "driver-too-old", f"{what} is built for a newer driver", *shown, cuda=builds.cuda_of_driver(look.driver) or ""
    )


def _torch(look: Look, environment: Environment) -> Outcome | None:
    version = environment.packages.get("torch")
    if version is None:
        return None
    if "+cpu" in version:
        return cause(
            "torch-cpu-build", f"torch {version} has no CUDA", f"{environment.path}: torch {version}", torch=version
        )
    build = builds.torch_build(version)
    if build is None:
        return fine(f"torch {version} is not in the matrix")
    shown = f"torch {build.version}+{build.variant}"
    if outcome := _needs(look, shown, build.cuda, environment.path):
        return outcome
    code = build.code_on(look.facts.arch)
    for capability in _capabilities(look):
        jit = look.driver is None or builds.compiles(build.cuda, look.driver)
        if code is not None and way_of(code.targets, code.ptx, capability, jit=jit) is None:
            has = " ".join(f"sm_{target.replace('.', '')}" for target in code.targets)
            lines = [f"{environment.path}: {shown} has code for {has}", f"GPU: sm_{capability.replace('.', '')}"]
            return cause("no-kernel-image", f"{shown} has no code for this GPU", *lines, capability=capability)
    return fine(f"{shown} fits")


def _cupy(look: Look, environment: Environment) -> Outcome | None:
    found = {name: version for name, version in environment.packages.items() if re.fullmatch(r"cupy(-cuda\w+)?", name)}
    if not found:
        return None
    shown = [f"{name} {version}" for name, version in sorted(found.items())]
    if len(found) > 1:
        return cause(
            "cupy-multiple-packages",
            "several CuPy packages overwrote each other",
            environment.path,
            *shown,
            packages=", ".join(shown),
        )
    name = next(iter(found))
    match = re.fullmatch(r"cupy-cuda(\d+)x", name)
    if match and (outcome := _needs(look, shown[0], f"{match[1]}.0", environment.path)):
        return outcome
    return fine(f"{shown[0]} fits" if match else shown[0])


def _jax(look: Look, environment: Environment) -> Outcome | None:
    packages = environment.packages
    version = packages.get("jax")
    if version is None:
        return None
    plugins = {name: text for name, text in packages.items() if re.fullmatch(r"jax-cuda\d+-(?:plugin|pjrt)", name)}
    lib = packages.get("jaxlib", "")
    if not plugins and "cuda" not in lib:
        return cause(
            "jax-cuda-plugin-missing",
            f"jax {version} has no CUDA plug-in",
            f"{environment.path}: jax {version}, jaxlib {lib or 'missing'}",
        )
    odd = [
        f"{name} {text}"
        for name, text in plugins.items()
        if lib and nv(_release(text)).minor != nv(_release(lib)).minor
    ]
    if odd:
        return cause(
            "jax-plugin-mismatch",
            "jaxlib and its CUDA plug-in differ",
            f"{environment.path}: jaxlib {lib}",
            *odd,
            jaxlib=lib,
        )
    for name, text in plugins.items():
        major = re.sub(r"\D", "", name.split("-")[1])
        if outcome := _needs(look, f"{name} {text}", f"{major}.0", environment.path):
            return outcome
    return fine(f"jax {version} fits")


def _release(text: str) -> str:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return match[0] if match else "0"


def _tensorflow(look: Look, environment: Environment) -> Outcome | None:
    version = environment.packages.get("tensorflow")
    if version is None:
        return None
    cuda = builds.tensorflow_cuda(_release(version))
    if cuda is None:
        return fine(f"tensorflow {version} is not in the matrix")
    return _needs(look, f"tensorflow {version}", cuda, environment.path) or fine(f"tensorflow {version} fits")
