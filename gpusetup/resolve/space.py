"""The search space of a request: variables with their values, and the constraints that the rules add."""

from collections.abc import Callable, Sequence
from typing import Any

from gpusetup.matrix.gpus import GpuKind, find_gpu
from gpusetup.matrix.load import Matrix
from gpusetup.model.platforms import OsRelease
from gpusetup.model.request import Relation, Request
from gpusetup.resolve import rules
from gpusetup.resolve.domains import (
    PYTHONS,
    CudaValue,
    CudnnValue,
    CupyValue,
    DriverValue,
    JaxValue,
    TensorflowValue,
    TorchValue,
    Value,
    minor_of,
)
from gpusetup.resolve.search import Pair, Problem, Unary, bits
from gpusetup.versions import nv

FRAMEWORKS = ("torch", "tensorflow", "jax")
DEFAULT_ARCH = "x86_64"
_MOST_KNOWN = 1500


def _memoised(matrix: Matrix, name: tuple[Any, ...], work_out: Callable[[], Any], values: Any) -> Any:
    """Return the cached result or compute it; the name contains ids of objects, so the cache keeps those alive."""
    known = matrix.known
    found = known.pop(name, None) or (work_out(), values)
    known[name] = found  # the most recently used entry is last
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]
    return found[0]


def mask_of(values: Sequence[Value], test: Callable[[Any], bool]) -> int:
    """Return the mask of the values that pass the test."""
    return sum(1 << index for index, value in enumerate(values) if test(value))


def grouped(values: Sequence[Value], key: Callable[[Any], Any], domain: int = -1) -> dict[Any, int]:
    """Group the values of a domain, or all, by a key: key → mask."""
    groups: dict[Any, int] = {}
    for index in bits(domain & ((1 << len(values)) - 1)):
        name = key(values[index])
        groups[name] = groups.get(name, 0) | 1 << index
    return groups


class Space:
    """A request turned into variables, values and constraints."""

    def __init__(self, matrix: Matrix, request: Request) -> None:
        self.matrix = matrix
        self.request = request
        self.gpus: tuple[GpuKind, ...] = tuple(find_gpu(matrix, name) for name in request.gpus)
        self.named = {item.component: item for item in request.requirements}
        self.os: OsRelease | None = None
        self.arch: str = request.arch or DEFAULT_ARCH
        self.values: dict[str, Sequence[Value]] = {}
        self.constraints: list[Unary | Pair] = []

    def problem(self) -> Problem:
        """Return the search problem with every constraint."""
        return Problem({name: len(values) for name, values in self.values.items()}, self.constraints)

    def unary(
        self,
        rule: str,
        variable: str,
        test: Callable[[Any], bool],
        *,
        subject: Any = None,
        origin: str = "rule",
        lasting: bool = True,
    ) -> None:
        """Add a rule about one component, unless the component is absent or every value passes.

        A GPU's demand on the same values is the same in every request for the same CPU, so it is computed once;
        pass `lasting=False` for a rule that also depends on the request.
        """
        if variable not in self.values:
            return
        values = self.values[variable]
        if isinstance(subject, GpuKind) and lasting:
            name = (rule, variable, id(values), self.arch, subject)
            allowed = _memoised(self.matrix, name, lambda: mask_of(values, test), values)
        else:
            allowed = mask_of(values, test)
        if allowed != (1 << len(values)) - 1:
            self.constraints.append(Unary(rule, variable, allowed, subject=subject, origin=origin))

    def pair(
        self,
        rule: str,
        first: tuple[str, Callable[[Any], Any]],
        second: tuple[str, Callable[[Any], Any]],
        test: Callable[[Any, Any], bool],
        *,
        subject: Any = None,
    ) -> None:
        """Add a rule between two components; values with the same key are equivalent.

        A rule between the same values is computed once: its result depends only on them, its subject, the CPU and the
        request's `native` and `forward`.
        """
        if first[0] not in self.values or second[0] not in self.values:
            return
        lists = (self.values[first[0]], self.values[second[0]])
        request = self.request
        name = (rule, first[0], second[0], id(lists[0]), id(lists[1]), self.arch, request.native, self.forward, subject)

        def work_out() -> Pair:
            groups = [(side[0], grouped(values, side[1])) for side, values in zip((first, second), lists, strict=True)]
            return Pair(rule, groups[0], groups[1], test, subject=subject)

        self.constraints.append(_memoised(self.matrix, name, work_out, lists))

    def minor(self, value: Value) -> str:
        """Return the CUDA minor that a value contains, needs or was built for."""
        if isinstance(value, JaxValue):
            cuda_major = value.release.cuda_major
            for name in ("nvidia-cuda-runtime", f"nvidia-cuda-runtime-cu{cuda_major}"):
                bound = rules.lower_bound(value.release.pins.get(name, ""))
                if bound is not None and rules.major(bound) == cuda_major:
                    return bound
            return f"{cuda_major}.0"
        return minor_of(value)

    def cuda_major(self, value: Value) -> int:
        """Return the CUDA major of a value."""
        return rules.major(self.minor(value))

    def cudnn_pin(self, value: TensorflowValue | JaxValue) -> str:
        """Return the cuDNN that a framework requires, always of one major: without a pin, the one it was built with."""
        own = f">={value.release.cudnn}" if isinstance(value, TensorflowValue) else ""
        pin = value.release.pins.get(f"nvidia-cudnn-cu{self.cuda_major(value)}", own)
        return f"{pin},<{nv(pin[2:]).major + 1}" if pin.startswith(">=") and "," not in pin else pin

    def builds(self, value: Value) -> tuple[str, ...]:
        """Return the names of a value's build: `cu128` of torch, the CUDA majors of what is built per major."""
        if isinstance(value, TorchValue):
            return (value.build.variant,)
        if isinstance(value, CudnnValue):
            return tuple(sorted({f"cu{rules.major(minor)}" for minor in value.row.cuda}))
        minor = value.release.cuda[0] if isinstance(value, CupyValue) else self.minor(value)
        return (f"cu{rules.major(minor)}",)

    def need(self, value: Value) -> rules.CudaNeed:
        """Return what a value's CUDA runtime needs of the driver."""
        if isinstance(value, CudaValue):
            return (value.release.minor, value.release.driver_branch, value.release.driver or "")
        return rules.need_of_minor(self.matrix, self.minor(value))

    def on_pypi(self, value: TorchValue) -> bool:
        """Return whether PyPI serves this build to the host's CPU."""
        if self.arch == DEFAULT_ARCH:
            return value.build.default
        return value.build.variant == value.release.aarch64_default

    @property
    def forward(self) -> bool:
        """Whether cuda-compat packages are allowed: requested, and no GPU rules them out."""
        return self.request.forward and all(gpu.forward_compatible is not False for gpu in self.gpus)

    def relation(self, driver: DriverValue, value: Value) -> Relation | None:
        """Return how a value's CUDA runtime runs on a driver."""
        return rules.relation(self.matrix, driver, self.need(value), forward=self.forward)


OTHERS = ("3.12", "3.13", "3.11", "3.14", "3.10", "3.9", "3.8", "3.15", "3.7", "3.6")
"""The Pythons to try instead of a system's own, the one with the most wheels first."""


def pythons(space: Space) -> tuple[str, ...]:
    """Return the Pythons that the host has or packages, the preferred one first; empty when unknown."""
    if space.request.pythons is not None:
        return space.request.pythons
    system = space.os
    if system is None or system.python == "unknown":
        return ()
    return (system.python, *(row.version for row in system.pythons if not row.prerelease))


def python_rank(space: Space) -> Callable[[Value], Any]:
    """Return a rank: the system's own Python, then its other packages in order, then the newest."""
    known = {version: index for index, version in enumerate(pythons(space))}
    newest = {version: index for index, version in enumerate(reversed(PYTHONS))}
    return lambda value: (known.get(value.version, len(known)), newest[value.version])


def own_python(space: Space) -> str:
    """Return the Python that the system calls python3, or "unknown"."""
    return next(iter(pythons(space)), "unknown")
