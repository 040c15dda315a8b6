"""Suggest the nearest changes to a request that would make it solvable."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from gpusetup.model.request import DEFAULT_COMPONENTS, PACKAGES, Request, Requirement
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import TorchValue, Value, matches, parsed, specifiers
from gpusetup.resolve.lookup import fitting
from gpusetup.resolve.naming import nearest, published_versions, typed
from gpusetup.resolve.packages import COMPANIONS
from gpusetup.resolve.preferences import best
from gpusetup.resolve.space import FRAMEWORKS, OTHERS, Space

_MOST = 4


def _would(space: Space, request: Request) -> dict[str, Value] | None:
    return best(build(space.matrix, request))


def _fits(space: Space, request: Request | None = None, **changes: Any) -> bool:
    asked = msgspec.structs.replace(request or space.request, **changes)
    return build(space.matrix, asked).problem().satisfiable()


def suggestions(space: Space) -> tuple[str, ...]:
    """Return up to four changes, each of which makes the request solvable on its own."""
    found: list[str] = []
    for text in _tried(space):
        if text not in found:
            found.append(text)
        if len(found) == _MOST:
            break
    for builds in (False, True):
        found = found or list(dict.fromkeys(_remainders(space, builds)))
    return tuple(found)


def _tried(space: Space) -> Iterator[str]:
    request = space.request
    yield from _driver_of_another_system(space)
    yield from _packages(space)
    for wish in request.requirements:
        if wish.specifier or wish.variant:
            yield from _loosened(space, wish)
    if request.driver is not None:
        solution = _would(space, msgspec.structs.replace(request, driver=None))
        if solution is not None:
            yield f"without --driver: driver=={solution['driver'].version} would fit"
    if request.driver_candidates is not None:
        solution = _would(space, msgspec.structs.replace(request, driver_candidates=None))
        if solution is not None:
            yield f"use another repository for the driver: driver=={solution['driver'].version} would fit"
    if request.os is not None and not request.library_candidates and not request.wheels_only:
        if _fits(space, wheels_only=True):
            yield "install the CUDA libraries as wheels: gpusetup_cuda_from=wheels"
        yield from _other_releases(space)
    if request.library_candidates and _fits(space, library_candidates=()):
        yield "install the CUDA libraries as wheels (gpusetup_cuda_from=wheels), or from another repository"
    if request.native and _fits(space, native=False):
        yield "without --native it fits by minor-version compatibility"
    if not request.forward and _fits(space, forward=True):
        yield "add --forward: with a cuda-compat package it runs on this driver (data-centre GPUs only)"
    yield from _machine(space)


def _packages(space: Space) -> Iterator[str]:
    """Suggest building from source, or two environments for packages that cannot share one."""
    request = space.request
    packages = [item for item in request.requirements if item.component in PACKAGES]
    if packages and not request.allow_builds and _fits(space, allow_builds=True):
        yield f"build what has no wheel: gpusetup resolve {typed(request)} --allow-builds"
    if len(packages) < 2:
        return
    for apart in packages:
        rest = tuple(item for item in request.requirements if item is not apart)
        alone = tuple(item for item in request.requirements if item is apart or item.component not in PACKAGES)
        both = [msgspec.structs.replace(request, requirements=some) for some in (rest, alone)]
        if all(_fits(space, part) for part in both):
            yield (
                f"use two environments: gpusetup resolve {typed(both[0])}; and gpusetup resolve {typed(both[1])} "
                "(on hosts: gpusetup_environments)"
            )
            return


_BARE: dict[str, Any] = {"gpus": (), "gpu_count": 0, "os": None, "arch": None, "driver": None, "native": False}


def _remainders(space: Space, builds: bool) -> Iterator[str]:
    """When no single change is enough, suggest the parts of the request that fit, with and without the machine."""
    request = msgspec.structs.replace(space.request, allow_builds=space.request.allow_builds or builds)
    asked = request.requirements or tuple(Requirement(component=name) for name in DEFAULT_COMPONENTS)
    components = [item.component for item in asked]
    needed = [name for item in components if item in PACKAGES for name in space.matrix.package(item).needs]
    needed += ["torch" for item in components if item in COMPANIONS]
    wishes = [("requirements", item) for item in asked]
    instead: list[tuple[str, Any]] = [
        ("requirements", Requirement(component=name)) for name in needed if name not in components
    ]
    nowhere = [
        item for item in asked if str(item) != item.component and not _fits(space, requirements=(item,), **_BARE)
    ]
    looser = [("requirements", msgspec.structs.replace(item, variant="")) for item in nowhere if item.variant]
    looser += [("requirements", Requirement(component=item.component)) for item in nowhere]
    instead += looser
    machine: list[tuple[str, Any]] = [("gpus", name) for name in request.gpus]
    machine += [(name, value) for name in _BARE if name != "gpus" and (value := getattr(request, name))]
    for parts in ((*machine, *wishes, *instead), (*wishes, *looser, *machine)):
        kept = msgspec.structs.replace(request, requirements=(Requirement(component="driver"),), **_BARE)
        left_out = Request(machine_type=request.machine_type)
        for name, value in parts:
            if (name, value) in instead and any(item.component == value.component for item in kept.requirements):
                continue
            more = _with(kept, name, value)
            if _fits(space, more):
                kept = more
            elif (name, value) not in looser:
                left_out = _with(left_out, name, value)
        others = list(_another_framework(space)) if left_out.gpus and not left_out.requirements else []
        yield from others
        if not others and any(item in kept.requirements for _, item in (*wishes, *instead)):
            yield f"without {typed(left_out)}: gpusetup resolve {typed(kept)}"


def _another_framework(space: Space) -> Iterator[str]:
    """Yield the frameworks that run on the machine as it is, where the one asked for runs on none of its GPUs."""
    asked = space.request.requirements
    for wish in asked:
        if wish.component not in FRAMEWORKS:
            continue
        rest = tuple(item for item in asked if item is not wish)
        for name in FRAMEWORKS:
            other = msgspec.structs.replace(space.request, requirements=(*rest, Requirement(component=name)))
            if name not in (item.component for item in asked) and _fits(space, other):
                yield f"{name} runs on it: gpusetup resolve {typed(other)}"


def _with(request: Request, name: str, value: Any) -> Request:
    """Return a request with one more GPU or requirement, or with one property of its machine set."""
    if name == "gpus":
        value = (*request.gpus, value)
    elif name == "requirements":
        value = (*(item for item in request.requirements if item.component != value.component), value)
    return msgspec.structs.replace(request, **{name: value})


def left_open(space: Space) -> Iterator[str]:
    """Yield the command that leaves driver and toolkit open, if that fits."""
    bare = {name: Requirement(component=name) for name in ("driver", "cuda")}
    wishes = tuple(bare.get(item.component, item) for item in space.request.requirements)
    asked = msgspec.structs.replace(space.request, requirements=wishes, driver=None)
    if _fits(space, asked):
        yield f"see what the policy allows: gpusetup resolve {typed(asked)}"


def _other_releases(space: Space) -> Iterator[str]:
    family = str(space.request.os).rstrip("0123456789.")
    same = [item.id for item in space.matrix.os.systems if item.id.rstrip("0123456789.") == family]
    for other in reversed(same):
        if other != space.request.os and _fits(space, os=other):
            yield f"use {other} instead of {space.request.os}"
            return


def _driver_of_another_system(space: Space) -> Iterator[str]:
    request = space.request
    if request.driver is not None or request.installed_driver is not None:
        return
    if request.driver_elsewhere == "wsl":
        yield "install NVIDIA's driver on Windows; then ask with the version that nvidia-smi shows: --driver VERSION"
    elif request.driver_elsewhere == "container":
        yield "start the container with the GPU (docker run --gpus all), or name its host's driver: --driver VERSION"
    if request.vgpu_guest:
        yield "name the file of a vGPU guest driver (gpusetup_source), from your cloud or vGPU administrator"


def _loosened(space: Space, wish: Requirement) -> Iterator[str]:
    others = tuple(item for item in space.request.requirements if item.component != wish.component)
    if wish.variant:
        without_build = Requirement(component=wish.component, specifier=wish.specifier)
        solution = _would(space, msgspec.structs.replace(space.request, requirements=(*others, without_build)))
        if solution is not None:
            value = solution[wish.component]
            other = msgspec.structs.replace(wish, specifier=f"=={value.version}", variant=space.builds(value)[0])
            yield f"{other} would fit"
            return
    for version in _near(space, wish):
        near = Requirement(component=wish.component, specifier=f"=={version}")
        if _would(space, msgspec.structs.replace(space.request, requirements=(*others, near))) is not None:
            yield f"{wish.component}=={version} exists and would fit"
            return
    free = msgspec.structs.replace(space.request, requirements=(*others, Requirement(component=wish.component)))
    for series in (*_next_series(build(space.matrix, free), wish), ""):
        near = Requirement(component=wish.component, specifier=series)
        solution = _would(space, msgspec.structs.replace(space.request, requirements=(*others, near)))
        if solution is not None:
            yield f"{_name(wish.component, solution[wish.component])} would fit"


def _next_series(free: Space, wish: Requirement) -> list[str]:
    """Return the nearest series that fits without the requirement: the next newer one, else the newest."""
    bounds = [parsed(part.version.removesuffix(".*")) for part in specifiers(wish.specifier)]
    versions = sorted({parsed(value.version) for value in fitting(free, wish.component)})
    if not bounds or not versions:
        return []
    above = [version for version in versions if version > max(bounds)]
    near = above[0] if above else versions[-1]
    return [f"=={near.major}.*" if wish.component == "driver" else f"=={near.major}.{near.minor}.*"]


def _near(space: Space, wish: Requirement) -> list[str]:
    """Return the published versions around one that does not exist; empty if it exists."""
    published = published_versions(space, wish.component)
    if matches(wish, published):
        return []
    bound = next((part.version.rstrip(".*") for part in specifiers(wish.specifier)), None)
    if bound is None:
        return []
    width = 1 if wish.component == "driver" else 2
    series = parsed(bound).release[:width]
    around = nearest(published, bound)[::-1]
    return sorted(around, key=lambda text: parsed(text).release[:width] != series)


def _name(component: str, value: Value) -> str:
    build_ = f"+{cast('TorchValue', value).build.variant}" if component == "torch" else ""
    return f"{component}=={value.version}{build_}"


def _machine(space: Space) -> Iterator[str]:
    request = space.request
    if any(gpu.module == "unknown" for gpu in space.gpus) and request.driver is None:
        yield (
            "install JetPack on the board (sudo apt-get install nvidia-jetpack), then give its driver: --driver VERSION"
        )
    if request.os is not None and "python" not in space.named:
        for version in OTHERS:
            asked = (*request.requirements, Requirement(component="python", specifier=f"=={version}"))
            if _fits(space, requirements=asked):
                yield f"use Python {version} instead of the distribution's: add python=={version}"
                break
    arch = "x86_64" if space.arch == "aarch64" else "aarch64"
    if request.arch is None and _fits(space, arch=arch):
        yield f"on a host of {arch} it fits: --arch {arch}"
    for index, name in enumerate(request.gpus):
        if len(request.gpus) > 1:
            rest = request.gpus[:index] + request.gpus[index + 1 :]
            if _fits(space, gpus=rest):
                yield f"leave the {name} out of this host"
