"""The commands that install a stack: `gpusetup apply` as root; pip, uv or conda without root; a Dockerfile."""

import re
import shlex
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from gpusetup.components.python.requirements import LIBRARIES, python_requirements
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.model.platforms import OsRelease
from gpusetup.model.request import Request
from gpusetup.model.stack import Install, Resolution, Stack, Way, exact_requirements
from gpusetup.model.tables import CudaImage
from gpusetup.versions import cuda_minor, nv

_AGAINST_TORCH = "--no-build-isolation"
"""The pip option for packages that are compiled against the installed torch."""
_BUILD_TOOLS = ("ninja", "packaging", "setuptools", "wheel")
_NO_WHEELS = "nothing in this stack is a Python package"
_NO_TOOLKIT = "gpusetup installs this CUDA toolkit from system packages only"


def install_of(resolution: Resolution, matrix: Matrix) -> Install:
    """Return all ways to install a stack."""
    stack, request = resolution.stack, resolution.request
    built = _built(stack)
    pins = python_requirements(stack, matrix)
    later = tuple(pin for pin in pins if _name(pin) in built)
    pins = tuple(pin for pin in pins if pin not in later)
    notes: dict[Way, str] = {}
    missing = _NO_TOOLKIT if _lacks_toolkit(stack) else "" if pins or later else _NO_WHEELS
    if missing:
        pins = later = ()
        notes = {"pip": missing, "uv": missing, "conda": missing}
    if request.driver_elsewhere is not None:
        notes["apply"] = "this machine borrows its driver: apply installs none in WSL or a container"
    image, note = dockerfile(stack, request, matrix)
    if built:
        image = ()
        note = f"{', '.join(built)} must be built from source, which needs a toolkit in the image"
    if note:
        notes["docker"] = note
    return Install(
        apply=() if "apply" in notes else (apply_line(stack, request),),
        pip=_pip(stack, pins, later),
        uv=_uv(stack, pins, later),
        conda=_conda(stack, pins, later),
        docker=image,
        companions=companions_of(stack, matrix),
        notes=notes,
    )


def copied(install: Install, way: Way, option: str) -> str:
    """Return only the lines of one way, for a shell or a file."""
    lines = install.lines(way)
    if not lines:
        raise BadInputError(
            "GS-134", f"{way} cannot install this stack", path=option,
            note=install.notes.get(way, ""), hint=next(iter(install.apply), ""),
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def apply_line(stack: Stack, request: Request) -> str:
    """Return the `gpusetup apply` command for exactly this stack."""
    asked = {requirement.component for requirement in request.requirements}
    words = ["sudo", "gpusetup", "apply"]
    for requirement in exact_requirements(stack):
        if requirement.component == "python" and "python" not in asked:
            continue  # apply finds the distribution's Python
        if requirement.component == "driver" and stack.driver is not None and stack.driver.installed:
            continue
        if requirement.component in _built(stack):
            continue  # apply installs wheels only; source packages are built afterwards
        words += ["-w", str(requirement)]
    return shlex.join(words)


def _built(stack: Stack) -> tuple[str, ...]:
    """Return the packages without a wheel in the index."""
    return tuple(name for name, chosen in stack.packages().items() if chosen.kind == "source")


def _name(pin: str) -> str:
    return re.split(r"[\[<>=!~; ]", pin, maxsplit=1)[0]


def _steps(install: str, pins: tuple[str, ...], later: tuple[str, ...], stack: Stack) -> Iterator[str]:
    """Yield the commands for wheels, then for packages without one, which are compiled against the rest."""
    if pins:
        yield f"{install} {_words(pins)}"
    beside = tuple(pin for pin in later if _AGAINST_TORCH in stack.part(_name(pin)).build)
    if beside:
        yield f"{install} {' '.join(_BUILD_TOOLS)}"
        yield f"{install} {_AGAINST_TORCH} {_words(beside)}"
    alone = tuple(pin for pin in later if pin not in beside)
    if alone:
        yield f"{install} {_words(alone)}"


def _lacks_toolkit(stack: Stack) -> bool:
    """Return whether no wheel brings the CUDA toolkit: only frameworks, packages, and the wheels beside CuPy do."""
    users = (stack.torch, stack.tensorflow, stack.jax, *stack.packages().values())
    return stack.cuda is not None and not any(users) and not (stack.cupy and stack.cuda.wheel)


def companions_of(stack: Stack, matrix: Matrix) -> dict[str, str]:
    """Return the packages that are released with the chosen torch, each with its version."""
    if stack.torch is None:
        return {}
    version = stack.torch.version
    found = next((release.companions for release in matrix.torch.releases if release.version == version), {})
    return {name: _plain(text) for name, text in found.items()}


def _plain(text: str) -> str:
    """Return `3.9.*` for `~=3.9.0`, the form for tables; other text unchanged."""
    return f"{text.removeprefix('~=').rpartition('.')[0]}.*" if text.startswith("~=") else text


def _words(pins: tuple[str, ...]) -> str:
    return shlex.join(word for pin in pins for word in pin.split())


def _pip(stack: Stack, pins: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    if not pins and not later:
        return ()
    version = stack.python.version if stack.python else None
    python = f"python{cuda_minor(version)}" if version else "python3"
    return (f"{python} -m venv .venv", *_steps(".venv/bin/python -m pip install", pins, later, stack))


def _uv(stack: Stack, pins: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    """Return the uv commands; uv, unlike pip, searches PyTorch's index for PyTorch's own packages only."""
    if not pins and not later:
        return ()
    backend = () if stack.torch is None or stack.torch.on_pypi else (f"--torch-backend {stack.torch.variant}",)
    wanted = (*backend, *(pin for pin in pins if not pin.startswith("-")))
    venv = f"uv venv --python {shlex.quote(_python(stack, ''))}"
    return (venv, *_steps("uv pip install", wanted, later, stack))


def _conda(stack: Stack, pins: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    """Return the conda commands: conda brings Python, pip the same wheels; the matrix has no conda builds."""
    if not pins and not later:
        return ()
    python = shlex.quote("python" + _python(stack, "="))
    return (
        f"conda create --yes --name gpu --channel conda-forge {python} pip",
        *_steps("conda run --name gpu python -m pip install", pins, later, stack),
    )


def _python(stack: Stack, equal: str) -> str:
    """Return the stack's Python as a version, else as the range that its packages allow."""
    if stack.python is None:
        return f"{equal}3"
    return f"{equal}{cuda_minor(stack.python.version)}" if stack.python.version else stack.python.requires


_PYTHON = {
    "ubuntu": "apt-get update && apt-get install -y --no-install-recommends python3-venv"
    " && rm -rf /var/lib/apt/lists/*",
    "el": "dnf install -y python3 && dnf clean all",
    "amazon": "dnf install -y python3 && dnf clean all",
    "azurelinux": "tdnf install -y python3 && tdnf clean all",
    "suse": "zypper --non-interactive install python3 && zypper clean --all",
}
"""Family → command that installs its Python with venv."""


def dockerfile(stack: Stack, request: Request, matrix: Matrix) -> tuple[tuple[str, ...], str]:
    """Return the lines of a Dockerfile and a note; without a suitable image no lines, and the note says why."""
    if stack.cudas:
        return (), "an NVIDIA image holds one toolkit: ask for one CUDA"
    if (bare := stack.tensorflow) is not None and bare.extra is None:
        missing = f"CUDA {bare.cuda} and cuDNN {bare.cudnn}, which TensorFlow {bare.version} does not include"
        return (), f"the matrix has no NVIDIA image with {missing}"
    chosen = max(_candidates(stack, request, matrix), key=lambda item: _rank(stack, request, *item), default=None)
    exact = chosen is not None and stack.cuda is not None and chosen[0].cuda == stack.cuda.version
    if chosen is None or (stack.cuda is not None and stack.cupy is None and not exact):
        wanted = f"CUDA {stack.cuda.version}" if stack.cuda else "this Python and driver"
        return (), f"the matrix has no NVIDIA image with {wanted}"
    image, system = chosen
    wheels = tuple(name for name in LIBRARIES if name != "cuda" or not exact)
    pins = python_requirements(stack, matrix, wheels=wheels)
    tag = f"{image.cuda}-{'devel' if exact else 'base'}-{matrix.images.tags.get(system.id, system.id)}"
    lines = [f"FROM nvidia/cuda:{tag}"]
    if stack.driver is not None:
        lines.insert(0, f"# For a host with driver {stack.driver.version}; start it with: docker run --gpus all IMAGE")
    if pins:
        lines += [
            f"RUN {_PYTHON[system.family]}",
            f"RUN python3 -m venv /opt/venv && /opt/venv/bin/python -m pip install --no-cache-dir {_words(pins)}",
            "ENV PATH=/opt/venv/bin:$PATH",
        ]
    note = "" if image.confidence == "vendor" else f"nvidia/cuda:{tag} is known from public Dockerfiles only"
    return tuple(lines), note


def _candidates(stack: Stack, request: Request, matrix: Matrix) -> Iterator[tuple[CudaImage, OsRelease]]:
    """Yield images of the host's distribution and of Ubuntu whose Python fits and whose CUDA the driver runs."""
    pythons = SpecifierSet(stack.python.requires) if stack.python is not None else SpecifierSet()
    limit = _newest_cuda(stack, matrix)
    systems = {
        system.id: system
        for system in matrix.os.systems
        if (system.id == request.os or system.family == "ubuntu")
        and system.family in _PYTHON
        and system.python != "unknown"
        and system.python in pythons
    }
    for image in matrix.images.images:
        if limit and nv(cuda_minor(image.cuda)) > nv(limit):
            continue
        for name in image.systems.get(request.arch or "x86_64", ()):
            if name in systems:
                yield image, systems[name]


def _newest_cuda(stack: Stack, matrix: Matrix) -> str:
    """Return the newest CUDA that an image may have: the driver's or the stack's; images refuse an older driver."""
    branches = matrix.driver.branches
    branch = next((row for row in branches if stack.driver and str(row.branch) == stack.driver.branch), None)
    own = (branch and branch.cuda) or ""
    return max(
        (text for text in (own, cuda_minor(stack.cuda.version) if stack.cuda else "") if text), key=nv, default=""
    )


def _rank(stack: Stack, request: Request, image: CudaImage, system: OsRelease) -> tuple[bool, bool, bool, bool, object]:
    inside = [part.cuda for part in (stack.torch, stack.tensorflow, stack.jax) if part is not None]
    major = (stack.cuda.version if stack.cuda else inside[0] if inside else image.cuda).partition(".")[0]
    return (
        stack.cuda is not None and image.cuda == stack.cuda.version,
        image.cuda.partition(".")[0] == major,
        system.id == request.os,
        not inside or nv(cuda_minor(image.cuda)) <= nv(inside[0]),
        (nv(image.cuda), system.python and nv(system.python)),
    )
