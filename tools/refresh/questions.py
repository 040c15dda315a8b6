"""Random plausible questions, to test the laws of answers and to compare two matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.model.request import BUILT_FOR, COMPONENTS, Request, Requirement

if TYPE_CHECKING:
    import random

    from gpusetup.matrix.load import Matrix

_GPUS = (
    "k80", "gtx 980", "p100", "gtx 1080 ti", "v100", "titan v", "t4", "rtx 2080 ti", "a100", "a10", "rtx 3090", "a40",
    "rtx 4090", "l4", "l40s", "h100", "h200", "gh200", "b200", "b300", "gb200", "rtx 5090",
    "rtx pro 6000 blackwell server edition",
    "t4g", "sm_61", "sm_70", "sm_86", "sm_90", "sm_100", "sm_120", "sm_121",
)  # fmt: skip
SERIES = {
    "torch": ("", "", "==2.6.*", "==2.7.*", "==2.11.*", "==2.14.*", "==2.15.*", ">=2.9", "<2.5", "==2.2.1", "==1.13.1"),
    "tensorflow": ("", "", "==2.15.*", "==2.17.*", ">=2.19", "==2.21.*", "==2.10.*"),
    "jax": ("", "", "==0.4.*", ">=0.7", "<0.5"),
    "cupy": ("", "", ">=13", "==13.*", "==12.*", "==14.*"),
    "cuda": ("", "", "==11.8.*", "==12.4.*", "==12.8.*", "==13.0.*", "==13.2.*", "==13.4.*", ">=12.6", "<13"),
    "cudnn": ("", "", "==8.9.*", "==9.1.*", "==9.10.*", ">=9.5"),
    "nccl": ("", "", "==2.21.*", "==2.26.*", ">=2.25"),
    "driver": ("", "==535.*", "==550.*", "==570.*", "==580.*", "==595.*", ">=580", "<590"),
    "python": ("==3.9", "==3.10", "==3.11", "==3.12", "==3.13", ">=3.11"),
}
"""Typical wishes for each component; twice none."""


def _drivers(matrix: Matrix) -> tuple[str, ...]:
    """Return the first and the newest published Linux driver of every branch."""
    found: dict[int, list[str]] = {}
    for item in matrix.driver.versions:
        if item.platform == "linux" and not item.beta:
            found.setdefault(item.branch, []).append(item.version)
    return tuple(version for versions in found.values() for version in dict.fromkeys((versions[0], versions[-1])))


def question(chance: random.Random, matrix: Matrix) -> Request:
    """Return a random plausible question: GPUs x drivers x systems x Pythons x wishes."""
    names = chance.sample(list(SERIES), k=chance.choice((0, 1, 1, 1, 2, 2, 3)))
    wishes = sorted(names, key=COMPONENTS.index)
    requirements = tuple(
        Requirement(
            component=name,
            specifier=chance.choice(SERIES[name]),
            variant=chance.choice(("", "", "", "cu12", "cu13")) if name in BUILT_FOR else "",
        )
        for name in wishes
    )
    gpus = tuple(chance.sample(_GPUS, k=chance.choice((0, 1, 1, 1, 1, 2))))
    driver: dict[str, Any] = {
        "driver": {"driver": chance.choice(_drivers(matrix))},
        "installed": {"installed_driver": chance.choice(_drivers(matrix))},
    }.get(chance.choice(("", "", "driver", "installed")), {})
    systems = [system.id for system in matrix.os.systems]
    return Request(
        requirements=requirements,
        gpus=gpus,
        gpu_count=chance.choice((len(gpus), len(gpus), 8)) if gpus else 0,
        os=chance.choice((None, chance.choice(systems))),
        arch=chance.choice((None, None, None, "x86_64", "aarch64")),
        native=chance.random() < 0.1,
        forward=chance.random() < 0.1,
        **driver,
    )


def spelled(request: Request) -> str:
    """Return a question as one types it."""
    words = ["gpusetup resolve", *(f"'{item}'" if item.specifier else str(item) for item in request.requirements)]
    words += [f"--gpu '{name}'" for name in request.gpus]
    for name in ("os", "arch", "driver"):
        if getattr(request, name):
            words.append(f"--{name} {getattr(request, name)}")
    words += [f"--{name}" for name in ("native", "forward") if getattr(request, name)]
    if request.installed_driver:
        words.append(f"  (driver {request.installed_driver} is installed and works)")
    return " ".join(words)
