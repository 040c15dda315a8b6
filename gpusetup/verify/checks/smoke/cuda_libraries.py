"""One copy of each CUDA library is loaded, of one CUDA major, and the driver is new enough for the runtime.

Two copies of NCCL or NVRTC (the system's and a wheel's, or wheels for CUDA 12 beside those for 13) give undefined
symbols and hangs that look like anything but this. The versions of runtime, driver, NVRTC and NCCL and the files
that were really loaded are reported; two copies are named. Packages for two CUDA majors in one environment are a
warning even while one copy is loaded.

To do: uninstall the packages of the other CUDA major; clear LD_LIBRARY_PATH.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpusetup.model.verdict import Finding
from gpusetup.verify.registry import check

if TYPE_CHECKING:
    from gpusetup.verify.machine import Machine

_FOR_CUDA = re.compile(r"(?:nvidia-.*-cu|cupy-cuda|jax-cuda)(\d\d)(?:x|-plugin)?")


def _version(number: int | None) -> str:
    return f"{number // 1000}.{number % 1000 // 10}" if number else "unknown"


@check("cuda.libraries", "One copy of every CUDA library", needs=("gpu", "python", "context"))
def judge(machine: Machine) -> Finding:
    """Judge the libraries that were loaded, in CuPy's process and in the frameworks'."""
    answers: list[tuple[str, dict[str, Any]]] = []
    for key, worker in machine.workers.items():
        libraries = worker.get("smoke", {}).get("libraries")
        if isinstance(libraries, dict) and "error" not in libraries:
            answers.append((f"CuPy on GPU {key}", libraries))
    if not answers:
        return Finding("skip", "not checked: the smoke test ended earlier")
    processes = answers + [
        (name, machine.sections[name])
        for name in ("torch", "tensorflow", "jax")
        if isinstance(machine.sections.get(name), dict)
    ]
    for name, answer in processes:
        for library, paths in (answer.get("loaded") or {}).items():
            if len(paths) > 1:
                return Finding(
                    "fail",
                    f"{name} has {len(paths)} copies of {library}: {' and '.join(paths[:2])}",
                    len(paths),
                    1,
                    1,
                    "copies",
                )
    first = answers[0][1]
    driver, runtime = first.get("driver_cuda"), first.get("runtime_cuda")
    versions = f"runtime {_version(runtime)}, driver up to {_version(driver)}"
    if driver and runtime and driver // 1000 < runtime // 1000:
        return Finding(
            "fail",
            f"{versions}: the driver is too old for this major version of CUDA",
            _version(driver),
            _version(runtime),
        )
    packages = (next(iter(machine.workers.values())).get("hello") or {}).get("packages") or {}
    majors = sorted({match.group(1) for name in packages if (match := _FOR_CUDA.fullmatch(name))})
    if len(majors) > 1:
        return Finding(
            "warn", f"{versions}; packages for CUDA {' and '.join(majors)} are installed side by side", len(majors), 1
        )
    minor = driver and runtime and driver < runtime
    nccl = first.get("nccl")
    text = (
        versions
        + (" (minor-version compatibility)" if minor else "")
        + (f", NCCL {nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}" if nccl else "")
    )
    return Finding("pass", f"{text}; one copy of each", _version(runtime), _version(driver))
