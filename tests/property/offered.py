"""What the oracle may choose from: every candidate of every component, a plain namespace each."""

from collections.abc import Iterator
from types import SimpleNamespace as Candidate
from typing import Any

from gpusetup.matrix.gpus import GpuKind, find_gpu
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import Request

FRAMEWORKS = ("torch", "tensorflow", "jax")
Assignment = dict[str, Candidate]


def num(text: str) -> tuple[int, ...]:
    """Return a version as numbers of one length, so that tuples compare as versions do."""
    numbers = [int(part) for part in text.split(".")]
    return tuple(numbers + [0] * (6 - len(numbers)))


def minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def major(text: str) -> int:
    return int(text.split(".", maxsplit=1)[0])


class Offered:
    """What there is."""

    def __init__(self, matrix: Matrix, request: Request) -> None:
        self.matrix = matrix
        self.request = request
        self.gpus: list[GpuKind] = [find_gpu(matrix, name) for name in request.gpus]
        self.wishes = {item.component: item for item in request.requirements}
        only = {gpu.only_cpu for gpu in self.gpus if gpu.only_cpu}
        self.arch = request.arch or (only.copy().pop() if len(only) == 1 else "x86_64")
        self.os = next((system for system in matrix.os.systems if system.id == request.os), None)
        self.forward = request.forward and all(gpu.forward_compatible is not False for gpu in self.gpus)
        self.candidates = {name: list(getattr(self, name)()) for name in self.components()}

    # --- what there is ------------------------------------------------------------------------------------------

    def components(self) -> list[str]:
        asked = set(self.wishes)
        if asked <= {"python"}:
            asked |= {"driver", "cuda", "cudnn", "nccl", "cupy"}
        if "cupy" in asked or (asked & {"cudnn", "nccl"} and not asked & set(FRAMEWORKS)):
            asked.add("cuda")
        if asked & {*FRAMEWORKS, "cupy"}:
            asked.add("python")
        asked.add("driver")
        order = ("driver", "torch", "tensorflow", "jax", "cuda", "cudnn", "nccl", "cupy", "python")
        return [name for name in order if name in asked]

    def driver(self) -> Iterator[Candidate]:
        branches = {branch.branch: branch for branch in self.matrix.driver.branches}
        wish = self.wishes.get("driver")
        offered = {item.version: item.modules for item in self.request.driver_candidates or ()}
        linux = [item for item in self.matrix.driver.versions if item.platform == "linux"]
        published, told = [item.version for item in linux], set()
        for item in linux:
            if item.beta:
                finals = [other for other in linux if other.branch == item.branch and not other.beta]
                named = wish is not None and wish.specifier and self.names(wish, item.version, published)
                better = wish is None or any(self.names(wish, other.version, published) for other in finals)
                here = item.version in (*offered, self.request.driver, self.request.installed_driver)
                if not here and (not named or better):
                    continue
            told.add(item.version)
            yield from self.flavours(item.version, branches[item.branch], item.confidence, offered)
        for version in (self.request.driver, self.request.installed_driver, *offered):
            if version is not None and version not in told:
                told.add(version)
                below = [branch for branch in branches.values() if branch.branch <= major(version) and branch.latest]
                if below:
                    judge = max(below, key=lambda branch: branch.branch)
                    yield from self.flavours(version, judge, "observed", offered)

    def flavours(self, version: str, branch: Any, confidence: str, offered: dict[str, Any]) -> Iterator[Candidate]:
        own = major(version)
        modules = ("proprietary",) if own < 515 else ("open",) if own >= 615 else ("open", "proprietary")
        day = self.matrix.date
        ended = branch.ended or (branch.eol != "unknown" and branch.eol < day[: len(branch.eol)])
        known = any(item.version == version and item.platform == "linux" for item in self.matrix.driver.versions)
        for module in offered.get(version, modules):
            told = {"confidence": confidence, "ended": ended, "known": known}
            yield Candidate(version=version, module=module, branch=branch, **told)

    def cuda(self) -> Iterator[Candidate]:
        for item in self.matrix.cuda.releases:
            yield Candidate(version=item.version, minor=item.minor, release=item, confidence=item.confidence)

    def cudnn(self) -> Iterator[Candidate]:
        for release in self.matrix.cudnn.releases:
            mine = num(release.version)[:3]
            for cuda_major in release.cuda_majors:
                rows = [row for row in self.matrix.cudnn.support if cuda_major in {major(minor) for minor in row.cuda}]
                own = [row for row in rows if num(row.version)[:3] == mine]
                general = [row for row in rows if row.general and major(row.version) == mine[0]]
                leaning = []
                if not any(row.general for row in own):
                    lower = [num(row.version)[:3] for row in general if num(row.version)[:3] < mine]
                    higher = [num(row.version)[:3] for row in general if num(row.version)[:3] > mine]
                    nearest = max(lower) if lower else min(higher) if higher else None
                    leaning = [row for row in general if num(row.version)[:3] == nearest]
                for row in (*own, *leaning):
                    yield Candidate(
                        version=release.version, row=row, majors=release.cuda_majors, leaning=row in leaning,
                        confidence=release.confidence,
                    )  # fmt: skip

    def nccl(self) -> Iterator[Candidate]:
        for release in self.matrix.nccl.releases:
            for build in release.builds:
                yield Candidate(
                    version=release.version, release=release, build=build, minor=minor(build.cuda),
                    confidence=release.confidence,
                )  # fmt: skip

    def torch(self) -> Iterator[Candidate]:
        releases = {item.version: item for item in self.matrix.torch.releases}
        for build in self.matrix.torch.builds:
            release = releases[build.version]
            pins = release.pins
            if not build.default:
                suffix = f"cu{major(build.cuda)}"
                pins = {f"nvidia-cudnn-{suffix}": build.cudnn, f"nvidia-nccl-{suffix}": build.nccl}
                pins = {name: version for name, version in pins.items() if version}
            on_pypi = build.default if self.arch == "x86_64" else build.variant == release.aarch64_default
            yield Candidate(
                version=build.version, variant=build.variant, minor=build.cuda, build=build, pins=pins, on_pypi=on_pypi,
                code=(build.code or {}).get(self.arch), pythons=release.pythons, glibc=release.glibc,
                confidence=build.confidence,
            )  # fmt: skip

    def tensorflow(self) -> Iterator[Candidate]:
        for item in self.matrix.tensorflow.releases:
            yield Candidate(
                version=item.version, minor=minor(item.cuda), pins=item.pins, code=item.code, glibc=item.glibc,
                pythons=item.pythons.get(self.arch, ()), excluded=item.excluded, confidence=item.confidence,
                fails_on=item.fails_on,
            )  # fmt: skip

    def jax(self) -> Iterator[Candidate]:
        for item in self.matrix.jax.releases:
            start = f"{item.cuda_major}.0"
            for name in (f"nvidia-cuda-runtime-cu{item.cuda_major}", "nvidia-cuda-runtime"):
                for part in item.pins.get(name, "").split("]")[-1].split(","):
                    text = part.strip()
                    if text[:2] in (">=", "==", "~=") or text[:1].isdigit():
                        bound = minor(text.lstrip("=<>~ "))
                        if major(bound) == item.cuda_major:
                            start = bound
                        break
            yield Candidate(
                version=item.version, minor=start, pins=item.pins, code=item.code, glibc=item.glibc, extra=item.extra,
                cuda_major=item.cuda_major, min_driver=item.min_driver, pythons=item.pythons, excluded=item.excluded,
                confidence=item.confidence,
            )  # fmt: skip

    def cupy(self) -> Iterator[Candidate]:
        for item in self.matrix.cupy.releases:
            yield Candidate(
                version=item.version, package=item.package, release=item, pythons=item.pythons.get(self.arch, ()),
                majors={major(minor) for minor in item.cuda}, excluded=item.excluded, confidence=item.confidence,
            )  # fmt: skip

    def python(self) -> Iterator[Candidate]:
        for number in range(6, 16):
            yield Candidate(version=f"3.{number}", confidence="vendor")

    def pythons(self) -> list[str]:
        """What the system brings without being asked, the preferred first; nothing where nobody knows."""
        if self.request.pythons is not None:
            return list(self.request.pythons)
        if self.os is None or self.os.python == "unknown":
            return []
        return [self.os.python, *(row.version for row in self.os.pythons if not row.prerelease)]
