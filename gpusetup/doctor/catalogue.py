"""The catalogue of causes: data files, loaded once, one entry per cause."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from gpusetup.errors import GpuSetupError
from gpusetup.model.diagnosis import Cause, CauseFile, CompanionFile, CudaError, CudaErrorFile, Pattern

__all__ = ["DATA", "PAGES", "Catalogue", "catalogue", "cuda_errors", "read_table"]

DATA = Path(__file__).parent / "data"
PAGES = "reference/messages"
"""Where the pages are in the built documentation."""


class Catalogue:
    """Every cause by its id."""

    def __init__(self, causes: tuple[Cause, ...]) -> None:
        self.causes = {cause.id: cause for cause in causes}
        if len(self.causes) != len(causes):
            raise GpuSetupError("GS-601", "two causes of the catalogue share an id")

    def __getitem__(self, cause: str) -> Cause:
        return self.causes[cause]

    def __contains__(self, cause: str) -> bool:
        return cause in self.causes

    def patterns(self) -> list[tuple[str, Pattern]]:
        """Return every pattern with its cause, those of the CUDA errors and of the companions included."""
        found = [(cause.id, pattern) for cause in self.causes.values() for pattern in cause.patterns]
        return [*found, *_companions()] + [
            (error.cause or "cuda-error", _by_text(error)) for error in cuda_errors() if error.text
        ]


def _companions() -> list[tuple[str, Pattern]]:
    """Recognise what is said of packages compiled against PyTorch: a module is missing, a build fails."""
    known = msgspec.json.decode(read_table("companions.json"), type=CompanionFile).companions
    modules = "|".join(re.escape(module) for one in known for module in one.modules)
    packages = "|".join(re.escape(one.package).replace(r"\-", "[-_]") for one in known)
    missing = rf"No module named ['\"]?(?:{modules})(?![\w.])"
    build = (
        rf"(?:[Ff]ailed building wheel for|[Ff]ailed to build|[Cc]ould not build wheels for)"
        rf" ['`\"]?(?P<package>{packages})(?![\w-])"
    )
    named = ("building wheel for ", "Failed to build ", "not build wheels for ", "ailed to build `")
    return [
        ("torch-abi-mismatch", Pattern(find=("No module named ",), regex=missing, own_line=True)),
        ("nvcc-failed", Pattern(find=named, regex=build, own_line=True)),
    ]


def _by_text(error: CudaError) -> Pattern:
    """Recognise a CUDA error by its text: alone when it is telling and a cause stands behind it, else beside a call."""
    if error.cause and len(error.text) > 20:
        return Pattern(find=(error.text,))
    if error.cause:
        return Pattern(find=(error.text,), regex=rf"(?i:cuda)[^\n]{{0,80}}{re.escape(error.text)}(?!\w)")
    return Pattern(
        find=(error.text,),
        regex=rf"(?:(?i:cuda(?: driver| runtime)?(?: api)? ?(?:error|fail|call))|\bcu(?:da)?[A-Z]\w+)[^\n]{{0,100}}"
        rf"(?P<cuda_text>{re.escape(error.text)})(?!\w)",
        own_line=True,
    )


def read_table(name: str) -> bytes:
    """Return a data file of the doctor."""
    return _read(DATA / name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GpuSetupError(
            "GS-601",
            f"the doctor's data cannot be read: {error.strerror}",
            path=str(path),
            hint="install gpusetup again",
        ) from error


@cache
def catalogue() -> Catalogue:
    """Return the shipped catalogue."""
    files = [msgspec.json.decode(_read(path), type=CauseFile) for path in sorted((DATA / "causes").glob("*.json"))]
    return Catalogue(tuple(cause for file in files for cause in file.causes))


@cache
def cuda_errors() -> tuple[CudaError, ...]:
    """Return the table of CUDA error numbers."""
    return msgspec.json.decode(_read(DATA / "cuda_errors.json"), type=CudaErrorFile).errors
