"""From words to a question: what the command line and the Python API are given, checked and made complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError
from gpusetup.matrix.systems import find_system
from gpusetup.model.request import Request
from gpusetup.resolve.requests import parse_requirements
from gpusetup.versions import nv

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from gpusetup.matrix.load import Matrix

__all__ = ["question"]


def question(
    requirements: Iterable[str],
    matrix: Matrix,
    *,
    gpus: Iterable[str] = (),
    os: str | None = None,
    arch: Literal["x86_64", "aarch64"] | None = None,
    driver: str | None = None,
    allow_builds: bool = False,
    native: bool = False,
    forward: bool = False,
) -> Request:
    """Return the request; a driver's beginning (550.54) becomes the first release that it can mean."""
    if driver is not None:
        _check_driver(driver, matrix)
        driver = _whole_driver(driver, matrix)
    named = tuple(gpus)
    return Request(
        requirements=parse_requirements(list(requirements)),
        gpus=named,
        gpu_count=len(named),
        os=find_system(matrix, os).id if os is not None else None,
        arch=arch,
        driver=driver,
        allow_builds=allow_builds,
        native=native,
        forward=forward,
    )


def _check_driver(version: str, matrix: Matrix) -> None:
    """Refuse what is no Linux driver version."""
    try:
        nv(version)
    except ValueError:
        raise BadInputError(
            "GS-125",
            f"{version!r} is not a driver version",
            path=f"--driver {version!r}",
            hint="write it as nvidia-smi prints it: 550.144.03",
        ) from None
    numbers = {windows: linux for linux, windows in matrix.driver.windows_numbers.items()}
    windows = {item.version for item in matrix.driver.versions if item.platform == "windows"}
    if version in numbers or version in windows:
        other = f"; on Linux that release is {numbers[version]}" if version in numbers else ""
        raise BadInputError(
            "GS-126",
            f"{version} is a Windows driver number{other}",
            path=f"--driver {version}",
            hint=f"--driver {numbers[version]}"
            if version in numbers
            else "run on the Linux host: cat /sys/module/nvidia/version",
        )


def _whole_driver(version: str, matrix: Matrix) -> str:
    known = [item.version for item in matrix.driver.versions if item.platform == "linux" and not item.beta]
    meant = [item for item in known if item.startswith(f"{version}.")]
    return version if version in known or not meant else min(meant, key=nv)
