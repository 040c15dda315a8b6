"""Measure which PTX this machine's driver compiles, and what follows for programs and for compilers from pip."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.content import content_path
from gpusetup.doctor import builds
from gpusetup.versions import cuda_minor, nv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusetup.doctor.look import Look, Outcome
    from gpusetup.model.diagnosis import Finding

CAUSE = "ptx-too-new"
_NEWER = "compilers-newer-than-driver"
_DEADLINE = 20.0
_HIDING = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING")
_NO_GPU = 100
_WRITE_PTX = ("nvidia-cuda-nvcc", "nvidia-cuda-nvrtc", "nvidia-nvvm")


def measured(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run the measurement that `verify` sends to hosts, in a separate process because a broken driver can hang it."""
    from gpusetup.drive.runner import run

    here = dict(os.environ if environment is None else environment)
    program = content_path() / "roles/gpu_verify/files/gpu_measure/ptx_sweep.py"
    kept = {name: value for name, value in here.items() if name not in _HIDING}
    finished = run([sys.executable, str(program)], env={**kept, "PYTHONDONTWRITEBYTECODE": "1"}, deadline=_DEADLINE)
    document = finished.document()
    if document is not None:
        return document
    why = f"no answer within {_DEADLINE:g} s" if finished.timed_out else f"the process ended with {finished.code}"
    return {"error": "silent", "message": why}


def sentence(answer: Mapping[str, Any]) -> str:
    """Return one sentence about the measurement."""
    highest = answer.get("highest")
    if highest:
        cuda = builds.cuda_of_ptx(highest)
        return f"the driver compiles PTX up to {highest}" + (f", which CUDA {cuda} writes" if cuda else "")
    if answer.get("error") == "load":
        return "this machine has no NVIDIA driver"
    if answer.get("error") == "cuda" and answer.get("status") == _NO_GPU:
        return "this machine has no NVIDIA GPU"
    if answer.get("error") == "cuda":
        return f"the driver did not answer: CUDA error {answer['status']} at {answer['message']}"
    return f"the driver did not answer: {answer.get('message') or 'it refuses every PTX version'}"


def with_measure(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Add the measured PTX support of this machine's driver to findings about PTX; measure nothing for others."""
    if all(finding.cause != CAUSE for finding in findings):
        return findings
    answer = measured()
    lines = [f"Measured on this machine: {sentence(answer)}."]
    if answer.get("highest"):
        lines += _limits(answer)
    else:
        lines.append("On the machine that has the error, gpusetup doctor --probe measures it.")
    return tuple(
        msgspec.structs.replace(finding, details=(*finding.details, *lines)) if finding.cause == CAUSE else finding
        for finding in findings
    )


def compiles(look: Look) -> Outcome:
    """Compare the measured PTX support with the compilers in Python environments."""
    from gpusetup.doctor.look import fine, notice, unknown

    answer = look.ptx
    if answer is None or not answer.get("highest"):
        return unknown(sentence(answer) if answer is not None else "not measured")
    own = builds.cuda_of_ptx(answer["highest"])
    newer = [
        f"{environment.path}: {name} {version}"
        for environment in look.symptoms.environments
        for name, version in sorted(environment.packages.items())
        if own is not None and name in _WRITE_PTX and _beyond(version, own)
    ]
    if newer:
        text = f"{sentence(answer)}; compilers from pip are newer"
        return notice(_NEWER, text, *newer, *_limits(answer))
    return fine(sentence(answer))


def _beyond(version: str, own: str) -> bool:
    try:
        return nv(cuda_minor(version)) > nv(own)
    except ValueError:
        return False


def _limits(answer: Mapping[str, Any]) -> list[str]:
    """Return a sentence with the limits for compilers from pip on this driver."""
    cuda = builds.cuda_of_ptx(answer["highest"])
    names = builds.compiler_limits(cuda) if cuda else ()
    return [f"Compilers from pip that fit it: {', '.join(names)}."] if names else []
