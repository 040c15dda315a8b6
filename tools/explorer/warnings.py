"""The resolver's warnings about a stack, by the values that they concern.

The warning about a Python that holds releases back needs another search: only the command line gives it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpusetup.resolve.answer import warnings_about
from gpusetup.resolve.package_sentences import python_warnings
from gpusetup.resolve.space import FRAMEWORKS
from tools.explorer.compiled import drivers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpusetup.resolve.space import Space
    from tools.explorer.compiled import Compiled, Gpus

_SPOKEN_OF = (*FRAMEWORKS, "cudnn", "nccl")


def about_warnings(compiled: Compiled, gpus: Gpus) -> dict[str, Any]:
    """Return the warnings for one CPU; `{}` stands for the GPU's name."""
    texts: dict[str, int] = {}
    rows: dict[str, int] = {}
    kept: list[Any] = []

    def row(space: Space, name: str) -> int:
        found = {}
        for index, value in enumerate(space.values[name]):
            if said := list(_said(compiled, space, {name: value})):
                found[index] = [texts.setdefault(text, len(texts)) for text in said]
        if repr(found) not in rows:
            rows[repr(found)] = len(kept)
            kept.append(found)
        return rows[repr(found)]

    spaces = [compiled.base, *(compiled.space(gpu=name) for name, _cpu in gpus.kinds)]
    told = [{name: row(space, name) for name in _SPOKEN_OF} for space in spaces]
    return {
        "none": told[0],
        "gpus": told[1:],
        "rows": kept,
        "texts": list(texts),
        "ended": _ended(compiled),
        "vulnerable": dict(_vulnerable(compiled)),
        "floors": [f"NVIDIA lists {{}} from driver {gpu.min_driver}" for space in spaces[1:] for gpu in space.gpus],
        "minor": [_minor(space) or _minor(compiled.base) for space in spaces],
        "untested": _untested(compiled),
        "systems": dict(_systems(compiled)),
    }


def _said(compiled: Compiled, space: Space, chosen: dict[str, Any]) -> Iterator[str]:
    """Yield the warnings about single values, with the newest driver, which has none."""
    driver = {"driver": compiled.newest_driver}
    about_gpu = warnings_about(space, driver)
    for text in warnings_about(space, driver | chosen):
        if text not in about_gpu:
            yield text.replace(space.gpus[0].label, "{}") if space.gpus else text


def _ended(compiled: Compiled) -> dict[str, list[str]]:
    """Return for each ended branch the warnings for a given driver and for a chosen one."""
    found = {}
    free = compiled.space(wishes={"cuda": ""}, every_driver=False)
    for value in {item.branch.branch: item for item in drivers_of(compiled.base)}.values():
        if value.ended:
            given = compiled.space(wishes={"cuda": ""}, driver=value.version, every_driver=False)
            found[str(value.branch.branch)] = [
                next(iter(warnings_about(space, {"driver": value}))) for space in (given, free)
            ]
    return found


def _vulnerable(compiled: Compiled) -> Iterator[tuple[int, str]]:
    """Yield the indices of drivers with a known vulnerability, with their warnings."""
    for place, value in enumerate(drivers_of(compiled.base)):
        for text in warnings_about(compiled.base, {"driver": value}):
            if " ends what is known of R" in text:
                yield place, text


def _minor(space: Space) -> str:
    """Return the warning about a CUDA under minor-version compatibility; `{}` and `{branch}` are placeholders."""
    cudas: Any = space.values["cuda"]
    for driver in drivers_of(space):
        for cuda in cudas:
            if space.relation(driver, cuda) == "minor-version" and not driver.ended:
                told = warnings_about(space, {"driver": driver, "cuda": cuda})
                said = next(text for text in told if "by minor-version compatibility" in text)
                branch = f"R{driver.branch.branch}"
                return said.replace(f"CUDA {space.minor(cuda)}", "{}").replace(branch, "{branch}")
    return ""


def _untested(compiled: Compiled) -> str:
    """Return the warning about a CuPy with a CUDA that it was not tested with."""
    values: Any = compiled.base.values
    cupy = values["cupy"][-1]
    cuda = next(item for item in values["cuda"] if item.release.minor not in cupy.release.cuda)
    chosen = {"driver": compiled.newest_driver, "cupy": cupy, "cuda": cuda}
    (said,) = warnings_about(compiled.base, chosen)
    return said.replace(cupy.version, "{}").replace(cuda.release.minor, "{cuda}")


def _systems(compiled: Compiled) -> Iterator[tuple[str, str]]:
    """Yield the systems whose Python is not published, with their warnings."""
    for item in compiled.matrix.os.systems:
        if item.python == "unknown" and compiled.arch in item.arches:
            space = compiled.space(wishes={"torch": ""}, system=item.id)
            for text in python_warnings(space, {"python": space.values["python"][-1]}):
                yield item.id, text
