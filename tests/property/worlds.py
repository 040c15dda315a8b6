"""Small random matrices, cut out of the shipped data and bent, and random requests about them."""

from typing import Any

import msgspec
from hypothesis import assume
from hypothesis import strategies as st

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import BUILT_FOR, DriverCandidate, Request, Requirement
from gpusetup.resolve.constraints import build
from gpusetup.resolve.domains import branch_of
from gpusetup.versions import nv

SHIPPED = Matrix()
CAPABILITIES = ("5.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
GPUS = (
    "v100", "t4", "h100", "h200", "rtx 4090", "rtx 5090", "gtx 1080 ti", "gh200", "t4g", "b200", "sm_50", "sm_61",
    "sm_86", "sm_121",
)  # fmt: skip
SYSTEMS = ("ubuntu20.04", "ubuntu22.04", "ubuntu24.04", "debian12", "rhel8", "rocky9", "amzn2023")
FINAL: dict[int, list[Any]] = {}
for _item in SHIPPED.driver.versions:
    if _item.platform == "linux" and not _item.beta:
        FINAL.setdefault(_item.branch, []).append(_item)
change = msgspec.structs.replace


class SmallMatrix(Matrix):
    """A matrix that never was in a file."""

    def __init__(self, **files: Any) -> None:
        super().__init__()
        self.__dict__.update(files, digest="small", date=SHIPPED.date)


def some(draw: Any, records: Any, low: int, high: int) -> list[Any]:
    """Draw some records, in the order of the data."""
    records = list(records)
    chosen = draw(st.lists(st.integers(0, len(records) - 1), min_size=low, max_size=high, unique=True))
    return [records[index] for index in sorted(chosen)]


confidences = st.sampled_from(("vendor", "vendor", "observed", "inferred"))
codes = st.builds(
    lambda targets, ptx: {"targets": tuple(sorted(targets, key=nv)), "ptx": tuple(ptx)},
    st.sets(st.sampled_from(CAPABILITIES), min_size=1, max_size=6),
    st.lists(st.sampled_from(CAPABILITIES), max_size=1),
)


def bent(draw: Any, code: Any) -> Any:
    """Return GPU code as it is, or with other targets."""
    return change(code, **draw(codes)) if draw(st.booleans()) else code


@st.composite
def matrices(draw: Any) -> SmallMatrix:
    shipped = SHIPPED
    branches, versions = [], []
    for branch in some(draw, [item for item in shipped.driver.branches if item.branch in FINAL], 2, 5):
        final = FINAL[branch.branch]
        picked = [change(item, confidence=draw(confidences)) for item in some(draw, final, 1, 3)]
        versions += picked
        newest = max(picked, key=lambda item: nv(item.version)).version
        kind = draw(st.sampled_from((branch.kind, "LTSB", "PB", "NFB", "unknown")))
        eol = draw(st.sampled_from((branch.eol, "unknown", "2025-01", "2028-06-30")))
        branches.append(change(branch, latest=newest, kind=kind, eol=eol, ended=False))
    releases = [change(item, confidence=draw(confidences)) for item in some(draw, shipped.cuda.releases, 2, 5)]
    known, builds, frameworks = {item.version for item in shipped.torch.releases}, [], {}
    for item in some(draw, [item for item in shipped.torch.builds if item.version in known], 2, 5):
        confidence = draw(confidences)
        code = {arch: bent(draw, code) for arch, code in item.code.items()} if item.code else None
        builds.append(change(item, confidence=confidence, code=code))
    for name in ("tensorflow", "jax"):
        picked = some(draw, getattr(shipped, name).releases[-20:], 1, 2)
        picked = [change(item, confidence=draw(confidences), code=bent(draw, item.code)) for item in picked]
        frameworks[name] = change(getattr(shipped, name), releases=tuple(picked))

    def few(records: Any, low: int, high: int) -> tuple[Any, ...]:
        return tuple(some(draw, records, low, high))

    cudnn = {"releases": few(shipped.cudnn.releases, 1, 3), "support": few(shipped.cudnn.support, 1, 6)}
    return SmallMatrix(
        driver=change(shipped.driver, branches=tuple(branches), versions=tuple(versions)),
        cuda=change(shipped.cuda, releases=tuple(releases)), cudnn=change(shipped.cudnn, **cudnn),
        nccl=change(shipped.nccl, releases=few([item for item in shipped.nccl.releases if item.builds], 1, 2)),
        torch=change(shipped.torch, builds=tuple(builds)),
        cupy=change(shipped.cupy, releases=few(shipped.cupy.releases, 1, 3)), gpus=shipped.gpus, os=shipped.os,
        forward_compat=shipped.forward_compat, vgpu=shipped.vgpu, **frameworks,
    )  # fmt: skip


def published(matrix: Matrix, component: str) -> list[str]:
    """Return the versions that a small matrix has of a component."""
    if component == "python":
        return [f"3.{number}" for number in range(6, 16)]
    if component == "driver":
        return [item.version for item in matrix.driver.versions]
    if component == "torch":
        return [item.version for item in matrix.torch.builds]
    return [item.version for item in getattr(matrix, component).releases]


@st.composite
def requests(draw: Any, matrix: Matrix) -> Request:
    names = ("torch", "torch", "tensorflow", "jax", "cupy", "cuda", "cuda", "cudnn", "nccl", "driver", "python")
    asked = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    requirements = []
    for component in asked:
        specifier, variant = "", ""
        if draw(st.integers(0, 3)) == 0:
            version = draw(st.sampled_from(published(matrix, component)))
            specifier = draw(st.sampled_from(("==", ">=", ">=", "<=", "!="))) + version
        if component == "torch" and draw(st.integers(0, 5)) == 0:
            variant = draw(st.sampled_from([item.variant for item in matrix.torch.builds]))
        if component in BUILT_FOR and draw(st.integers(0, 5)) == 0:
            variant = draw(st.sampled_from(("cu11", "cu12", "cu13")))
        plain = not specifier and not variant and component != "python"
        latest = plain and draw(st.integers(0, 7)) == 0
        requirements.append(Requirement(component=component, specifier=specifier, variant=variant, latest=latest))
    if not set(asked) - {"python"}:
        requirements.append(Requirement(component=draw(st.sampled_from(("cuda", "cudnn", "nccl", "torch")))))
    drivers = [*published(matrix, "driver"), "550.144.03", "590.48.01", "999.1", "470.999"]
    stays = draw(st.sampled_from(drivers)) if draw(st.integers(0, 4)) == 0 else None
    if stays is not None and branch_of(matrix, stays) is None:
        stays = None  # refused as bad input before anything is searched
    installed = draw(st.sampled_from((None, None, *drivers)))
    offered = None
    if draw(st.integers(0, 7)) == 0:
        modules = st.sampled_from((("open",), ("proprietary",), ("open", "proprietary")))
        picked = draw(st.lists(st.sampled_from(drivers), max_size=2, unique=True))
        offered = tuple(DriverCandidate(version=version, modules=draw(modules)) for version in picked)
    gpus = tuple(draw(st.lists(st.sampled_from(GPUS), max_size=2, unique=True)) if draw(st.booleans()) else ())
    return Request(
        requirements=tuple(requirements), gpus=gpus, gpu_count=max(len(gpus), draw(st.sampled_from((0, 1, 8)))),
        os=draw(st.sampled_from((None,) * 9 + SYSTEMS)),
        arch=draw(st.sampled_from((None, None, None, None, "x86_64", "aarch64"))), driver=stays,
        installed_driver=installed, installed_module=draw(st.sampled_from((None, "open", "proprietary"))),
        driver_candidates=offered, recorded=tuple(on_record(draw, matrix)) if draw(st.integers(0, 3)) == 0 else (),
        vgpu_guest=draw(st.integers(0, 29)) == 0, native=draw(st.integers(0, 3)) == 0,
        forward=draw(st.integers(0, 3)) == 0,
    )  # fmt: skip


def on_record(draw: Any, matrix: SmallMatrix) -> Any:
    """Draw what an earlier apply brought: some releases of this matrix."""
    builds = draw(st.sampled_from(matrix.torch.builds))
    if draw(st.booleans()):
        yield Requirement(component="torch", specifier=f"=={builds.version}", variant=builds.variant)
    for name in ("jax", "tensorflow", "cupy", "cuda", "cudnn", "nccl"):
        if draw(st.booleans()):
            version = draw(st.sampled_from(getattr(matrix, name).releases)).version
            yield Requirement(component=name, specifier=f"=={version}")


@st.composite
def questions(draw: Any) -> tuple[SmallMatrix, Request]:
    matrix = draw(matrices())
    request = draw(requests(matrix))
    try:
        build(matrix, request)
    except BadInputError:
        assume(False)
    return matrix, request
