"""The exact pins of a stack as pip requirements, and the interpreter that makes its environment.

Separate from `environments`, so that lookups without a host import little.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusetup.errors import PreflightError
from gpusetup.matrix.load import COMPANIONS
from gpusetup.matrix.systems import by_id
from gpusetup.model.plan import Package, Refusal
from gpusetup.versions import cuda_minor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpusetup.components.base import Offers
    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts, Python
    from gpusetup.model.platforms import OsRelease
    from gpusetup.model.release import CudaFile, NcclFile
    from gpusetup.model.settings import Settings
    from gpusetup.model.stack import Stack

_RULE = "compiler-wheels-within-driver"
CAPPED_MAJOR = 13
"""The only CUDA major with limits: wheels of earlier majors have other names, so nvidia-nvjitlink<12.3 matches none."""
_CAP = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)<([0-9.]+)")


def compiler_caps(stack: Stack, matrix: Matrix, *, toolkit: bool) -> tuple[str, ...]:
    """Return `package<version` for each compiler wheel that the stack's wheels require without an upper limit.

    The limit is the CUDA of the stack's driver, but never below the CUDA that the stack pins. `toolkit`: whether CuPy
    brings the toolkit as wheels.
    """
    names, native = compiler_wheels(matrix), _cuda_of_driver(stack, matrix)
    if native is None or native[0] != CAPPED_MAJOR:
        return ()
    brought: set[str] = set()
    users = list(_frameworks(stack, matrix))
    if toolkit and stack.cuda is not None:
        users.append((stack.cuda.version, {"cuda-toolkit": "[nvjitlink]"}))
    for cuda, pins in users:
        if _numbers(cuda)[0] == native[0]:
            brought.update(_floating(pins, names))
            native = max(native, _numbers(cuda))
    if brought:
        brought.update(_seen_floating(stack, matrix))
    return tuple(_below(name, native) for name in names if name in brought)


def limits(cuda: str, matrix: Matrix) -> tuple[str, ...]:
    """Return `package<version` for every compiler wheel at a CUDA version; () for majors without limits."""
    names = compiler_wheels(matrix)
    return tuple(_below(name, _numbers(cuda)) for name in names) if _numbers(cuda)[0] == CAPPED_MAJOR else ()


def compiler_wheels(matrix: Matrix) -> tuple[str, ...]:
    """Return the names of the wheels with a compiler or parts of one."""
    names = next((rule.value for rule in matrix.cuda.rules if rule.id == _RULE), ())
    return names if isinstance(names, tuple) else ()


def _below(name: str, cuda: tuple[int, int]) -> str:
    return f"{name}<{cuda[0]}.{cuda[1] + 1}"


def limit_of(line: str) -> tuple[str, str] | None:
    """Return package and version of a limit line; None for any other line."""
    found = _CAP.fullmatch(line)
    return (found[1], found[2]) if found else None


def without_caps(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that are not limits, and so do not depend on the driver."""
    return tuple(line for line in lines if limit_of(line) is None)


def _cuda_of_driver(stack: Stack, matrix: Matrix) -> tuple[int, int] | None:
    """Return the CUDA of the driver's branch; None if unknown, or if cuda-compat replaces parts of the driver."""
    driver = stack.driver
    if driver is None or driver.relation == "forward":
        return None
    branches = matrix.driver.branches
    found = next((branch.cuda for branch in branches if str(branch.branch) == driver.branch), None)
    return _numbers(found) if found else None


def _frameworks(stack: Stack, matrix: Matrix) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the CUDA of each framework, and its requirements on CUDA wheels."""
    if stack.torch is not None:
        version = stack.torch.version
        yield stack.torch.cuda, next((row.pins for row in matrix.torch.releases if row.version == version), {})
    if stack.jax is not None:
        chosen = (stack.jax.version, stack.jax.extra)
        rows = matrix.jax.releases
        # JAX accepts any minor release of its major, so it sets no lower bound beyond .0.
        major = stack.jax.cuda.partition(".")[0]
        yield f"{major}.0", next((row.pins for row in rows if (row.version, row.extra) == chosen), {})


def _seen_floating(stack: Stack, matrix: Matrix) -> Iterator[str]:
    """Yield the compiler wheels that are known to come too new with a package of the stack."""
    for name, chosen in stack.packages().items():
        for release in matrix.package(name).releases if name not in COMPANIONS else ():
            if release.version == chosen.version and release.compilers:
                yield from release.compilers
                yield from ("nvidia-cuda-crt",) if "nvidia-cuda-nvcc" in release.compilers else ()


def _floating(pins: Mapping[str, str], names: tuple[str, ...]) -> Iterator[str]:
    asked = {name for name, specifier in pins.items() if not specifier[:1].isdigit()}
    if "nvidia-cuda-nvcc" in asked:
        asked.add("nvidia-cuda-crt")  # nvcc requires it without a version
    if "nvjitlink" in pins.get("cuda-toolkit", "").partition("]")[0].strip("[").split(","):
        asked.add("nvidia-nvjitlink")  # cuda-toolkit sets no upper limit for this part alone
    yield from (name for name in names if name in asked)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = cuda_minor(version).split(".")
    return int(major), int(minor)


_ADOPTED = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow",),
    "jax": ("jax",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
}


def adopted_python(facts: HostFacts, settings: Settings) -> Python | None:
    """Return the interpreter in `python_adopt` as the probe found it; None if not set or not found."""
    if not settings.python_adopt:
        return None
    return next((python for python in facts.pythons if python.path == settings.python_adopt), None)


def installed_version(python: Python, component: str) -> str | None:
    """Return the installed version of a framework; None if it is not installed."""
    return next((python.packages[name] for name in _ADOPTED.get(component, ()) if name in python.packages), None)


SYSTEM_PYTHON = "/usr/bin/python3"

LIBRARIES = ("cuda", "cudnn", "nccl")
"""Libraries that come as system packages or as wheels."""

_CUPY_NEEDS = ("cuda-runtime", "cuda-nvrtc", "cublas", "cufft", "curand", "cusolver", "cusparse", "nvjitlink")
_WITH_TORCH = ("torchvision", "torchaudio")
_WATCHED = ("cupy", "torch", "tensorflow", "jax")


def python_requirements(stack: Stack, matrix: Matrix, *, wheels: Collection[str] = LIBRARIES) -> tuple[str, ...]:
    """Return the lines of a requirements file, options first. `wheels`: the CUDA libraries to include as wheels."""
    options: list[str] = []
    pins: list[str] = []
    frameworks = [name for name in ("torch", "tensorflow", "jax") if getattr(stack, name) is not None]
    frameworks += stack.packages()
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
        pins += [line for line in stack.jax.limits if ">=" in line]  # the release's own, whatever the GPU
    if stack.cupy is not None:
        extra = "[ctk]" if "cuda" in wheels and stack.cupy.ctk else ""
        pins.append(f"{stack.cupy.package}{extra}=={stack.cupy.version}")
    pins += _packages(stack)
    if not frameworks:
        pins += _toolkit_wheels(stack, matrix.cuda) if "cuda" in wheels else []
        pins += _other_wheels(stack, matrix.nccl, wheels)
    limits = [line for framework in (stack.tensorflow, stack.jax) if framework is not None for line in framework.limits]
    toolkit = stack.cupy is not None and stack.cupy.ctk and "cuda" in wheels
    return (*options, *dict.fromkeys((*pins, *limits)), *compiler_caps(stack, matrix, toolkit=toolkit))


def _packages(stack: Stack) -> list[str]:
    """Return pins of the packages that use a framework; torchvision and torchaudio have torch's build."""
    pins: list[str] = []
    for name, chosen in stack.packages().items():
        extras = f"[{','.join(chosen.extras)}]" if chosen.extras else ""
        build = f"+{stack.torch.variant}" if name in _WITH_TORCH and stack.torch and not stack.torch.on_pypi else ""
        pins.append(f"{name}{extras}=={chosen.version}{build}")
        pins += chosen.adds
    return pins


def _toolkit_wheels(stack: Stack, cuda: CudaFile) -> list[str]:
    """Return pins of the toolkit's wheels for CuPy; only called without a framework, whose own pins decide."""
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
    """Return pins of the stack's frameworks as they are installed in the adopted interpreter."""
    python = adopted_python(facts, settings)
    if python is None:
        return ()
    wanted = {name for name in _WATCHED if getattr(stack, name) is not None}
    return tuple(
        f"{name}=={version}"
        for name, version in sorted(python.packages.items())
        if any(name == item or name.startswith(f"{item}-cuda") for item in wanted)
    )


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The Python that makes an environment."""

    path: str = ""
    """Empty: the system's own."""
    version: str = ""
    """Empty: unknown."""
    packages: tuple[Package, ...] = ()


def system_of(matrix: Matrix, facts: HostFacts) -> OsRelease | None:
    """Return the matrix's record of a host's distribution; None if it has none."""
    return by_id(matrix, facts.os.label)


def pythons_of(
    facts: HostFacts, settings: Settings, system: OsRelease | None, offers: Offers, *, installable: bool = True
) -> tuple[str, ...] | None:
    """Return the Python versions that a host has or can install, the system's own first; None if unknown.

    `installable`: whether gpusetup can install packages there.
    """
    if settings.python_interpreter:
        named = _version_at(facts.pythons, settings.python_interpreter)
        return (named,) if named else None
    own = _own_version(facts, system)
    if not own:
        return None
    others = [
        row.version
        for row in (system.pythons if system is not None else ())
        if not row.prerelease
        and (
            _version_at(facts.pythons, row.path)
            or (installable and _offered(facts.packages.installed, offers, row.packages))
        )
    ]
    return tuple(dict.fromkeys((own, *others)))


def packaged_patterns(system: OsRelease | None) -> tuple[str, ...]:
    """Return the package names of the distribution's additional Pythons."""
    rows = system.pythons if system is not None else ()
    return tuple(dict.fromkeys(name for row in rows for name in row.packages))


def interpreter_of(facts: HostFacts, settings: Settings, stack: Stack, system: OsRelease | None) -> Interpreter:
    """Return the Python that makes the stack's environment; raise if the host cannot have it."""
    wanted = ".".join(((stack.python and stack.python.version) or "").split(".")[:2])
    if settings.python_interpreter:
        path = settings.python_interpreter
        return Interpreter(path=path, version=_version_at(facts.pythons, path) or wanted)
    own = _own_version(facts, system)
    if not wanted or not own or wanted == own:
        return Interpreter(version=own, packages=_venv(facts))
    row = system.packaged(wanted) if system is not None else None
    if row is not None:
        return Interpreter(path=row.path, version=wanted, packages=tuple(Package(name=name) for name in row.packages))
    found = next((python for python in facts.pythons if python.version == wanted and python.ensurepip), None)
    if found is not None:
        return Interpreter(path=found.path, version=wanted)
    packaged = [row.version for row in system.pythons] if system is not None else []
    raise PreflightError(
        "GS-334",
        f"no Python {wanted} on {facts.os.label}, and its distribution has no package of it",
        note=f"its own is {own}" + (f"; it packages {', '.join(packaged)}" if packaged else ""),
        hint="ask for one of these, or install one and name it: UV_PYTHON_INSTALL_DIR=/opt/python uv python install "
        f"{wanted}; then gpusetup_python_interpreter=/opt/python/…/bin/python{wanted}",
    )


def _own_version(facts: HostFacts, system: OsRelease | None) -> str:
    """Return the version of /usr/bin/python3: from the host, else from the matrix; "" if neither knows."""
    known = system.python if system is not None and system.python != "unknown" else ""
    return _version_at(facts.pythons, SYSTEM_PYTHON) or known


def _version_at(pythons: Iterable[Python], path: str) -> str:
    return next((python.version for python in pythons if python.path == path), "")


def _offered(installed: Collection[str], offers: Offers, packages: Collection[str]) -> bool:
    return not offers.known or all(offers.has(name) or name in installed for name in packages)


def _venv(facts: HostFacts) -> tuple[Package, ...]:
    """Return python3-venv where it is missing or ours: Debian and Ubuntu package it separately."""
    from gpusetup.components.record import record_of

    own = next((python for python in facts.pythons if python.path == SYSTEM_PYTHON), None)
    there = "python3-venv" in facts.packages.installed or (own is not None and own.ensurepip)
    if facts.packages.manager != "apt" or (there and "python3-venv" not in record_of(facts).requested):
        return ()
    return (Package(name="python3-venv"),)


def adoption(facts: HostFacts, settings: Settings) -> tuple[Refusal, ...]:
    """Return why the interpreter in `python_adopt` cannot be adopted; () if it can."""
    python = adopted_python(facts, settings)
    if not settings.python_adopt or (python is not None and not python.changeable):
        return ()
    if python is not None:
        return (
            Refusal(
                reference="GS-337",
                message=f"{settings.python_adopt} is writable by users other than root: {python.changeable}",
                note="gpusetup runs this interpreter as root, so anyone who can change it could become root",
                hint="give it to root (chown -R root:root, chmod -R go-w), or unset gpusetup_python_adopt",
            ),
        )
    return (
        Refusal(
            reference="GS-330",
            message=f"no Python at {settings.python_adopt}",
            hint="correct gpusetup_python_adopt, or unset it: gpusetup then creates an environment in /opt/gpusetup",
        ),
    )


def has_python(stack: Stack) -> bool:
    """Return whether a part of the stack needs a Python environment."""
    frameworks = ("torch", "tensorflow", "jax", "cupy")
    return any(getattr(stack, name) is not None for name in frameworks) or bool(stack.packages())
