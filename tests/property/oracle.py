"""The resolver's rules and preferences written a second time, as plainly as possible: every assignment is looked at.

Nothing of `gpusetup.resolve` is used. A candidate is a plain namespace; a rule looks at one or two of them; a
preference is a function of a whole assignment, and the preferences are applied one after the other.
"""

from __future__ import annotations

from types import SimpleNamespace as Candidate
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpusetup.matrix.gpus import GpuKind, find_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


class Oracle:
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
        told = set()
        for item in linux:
            finals = [other for other in linux if other.branch == item.branch and not other.beta]
            if item.beta:
                named = (
                    wish is not None and wish.specifier and self.names(wish, item.version, [v.version for v in linux])
                )
                better = (
                    any(self.names(wish, other.version, [v.version for v in linux]) for other in finals)
                    if wish
                    else True
                )
                if (
                    item.version not in offered
                    and item.version not in (self.request.driver, self.request.installed_driver)
                    and (not named or better)
                ):
                    continue  # fmt: skip
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
            yield Candidate(
                version=version, module=module, branch=branch, confidence=confidence, ended=ended, known=known
            )

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

    # --- what may be --------------------------------------------------------------------------------------------

    def names(self, wish: Any, version: str, published: list[str]) -> bool:
        parts = SpecifierSet(wish.specifier, prereleases=True)
        if wish.component == "python":  # the candidates are minor versions; some patch release of one is meant
            return any(f"{version}.{patch}" in parts for patch in range(40))
        if any(other in parts for other in published):
            return version in parts
        if not all(part.operator == "==" and "*" not in part.version for part in parts):
            return False
        starts = [part.version.split(".") for part in parts]
        return all([int(n) for n in version.split(".")[: len(start)]] == [int(n) for n in start] for start in starts)

    def alone(self, name: str, one: Candidate) -> bool:
        """Tell whether a candidate may be in any stack at all."""
        return (
            self.asked(name, one)
            and self.on_system(name, one)
            and all(self.on_gpu(name, one, gpu) for gpu in self.gpus)
            and not getattr(one, "excluded", "")
        )

    def asked(self, name: str, one: Candidate) -> bool:
        request, wish = self.request, self.wishes.get(name)
        if wish is not None:
            published = [other.version for other in self.candidates[name]]
            if not self.names(wish, one.version, published) or wish.variant not in ("", getattr(one, "variant", "")):
                return False
        if name == "driver":
            if request.driver is not None and one.version != request.driver:
                return False
            if request.vgpu_guest and one.version != request.installed_driver:
                return False
            if request.driver_candidates is not None:
                offered = {item.version for item in request.driver_candidates} | {request.installed_driver}
                return one.version in offered
        return True

    def on_system(self, name: str, one: Candidate) -> bool:
        if any(gpu.only_cpu not in (None, self.arch) for gpu in self.gpus):
            return False
        if name in ("tensorflow", "cupy") and not one.pythons:
            return False
        if name == "torch" and one.code is None:
            return False
        if name == "cuda" and not one.release.system:
            return False
        if self.os is None:
            return True
        if self.arch not in self.os.arches:
            return False
        known = self.pythons()
        if name == "python" and "python" not in self.wishes and known and one.version not in known:
            return False
        if name in FRAMEWORKS and self.os.glibc != "unknown" and num(one.glibc) > num(self.os.glibc):
            return False
        if name == "cuda":
            low, high = self.os.cuda_min, self.os.cuda_max
            return not (low and num(one.version) < num(low)) and not (high and num(one.version) > num(high))
        return True

    def on_gpu(self, name: str, one: Candidate, gpu: GpuKind) -> bool:
        cc = num(gpu.cc)
        if name == "driver":
            branch = one.branch.branch
            if (gpu.min_branch or 0) > branch or branch > (gpu.last_branch or 10**6):
                return False
            if (gpu.module == "required" and one.module != "open") or (
                gpu.module in ("unsupported", "unknown") and one.module == "open"
            ):
                return False
            wish = self.wishes.get("driver")
            named = wish is not None and wish.specifier.startswith("==") and not set("*,") & set(wish.specifier)
            ours = self.request.driver is None and not named and one.version != self.request.installed_driver
            return not (ours and gpu.min_driver and num(one.version) < num(gpu.min_driver))
        if name == "cuda":
            row = next((row for row in self.matrix.cuda.toolchains if row.minor == one.minor), None)
            if row is None or cc < num(row.cc_min):
                return False
            if row.targets:
                return self.cubin(row.targets, gpu.cc)
            return row.cc_max is None or cc[0] <= num(row.cc_max)[0]
        if name == "cudnn":
            low, high = one.row.cc_min, one.row.cc_max
            return not (low and cc < num(low)) and (not high or cc <= num(high) or cc[0] == num(high)[0])
        if name == "cupy":
            return cc >= num(one.release.cc_min) and not (one.release.cc_max and cc[0] > num(one.release.cc_max)[0])
        if name == "nccl":
            must = "nccl" in self.wishes or self.request.gpu_count > 1 or len(self.gpus) > 1
            return not must or self.nccl_runs(one, gpu)
        if name == "tensorflow" and any(cc[0] == num(broken)[0] for broken in one.fails_on):
            return False
        if name in FRAMEWORKS:
            return self.runs(one.code, gpu.cc) != ""
        return True

    def cubin(self, targets: Any, cc: str) -> bool:
        return any(num(t)[0] == num(cc)[0] and num(t)[1] <= num(cc)[1] for t in targets)

    def runs(self, code: Any, cc: str) -> str:
        if self.cubin(code.targets, cc):
            return "cubin"
        return "ptx" if any(num(ptx) <= num(cc) for ptx in code.ptx) else ""

    def nccl_runs(self, one: Candidate, gpu: GpuKind) -> bool:
        looked_into = [one.build] if one.build.targets else [
            build for build in one.release.builds if build.targets and major(build.cuda) == major(one.build.cuda)
        ]  # fmt: skip
        return not looked_into or any(self.runs(build, gpu.cc) for build in looked_into)

    def stands(self, driver: Candidate, name: str, one: Candidate) -> str:
        """Return how a CUDA runtime stands on a driver; empty when it does not."""
        if name == "cuda":
            first = one.release
        else:
            releases = sorted(self.matrix.cuda.releases, key=lambda item: num(item.version))
            same = [item for item in releases if item.minor == one.minor]
            newer = [item for item in releases if num(item.minor) > num(one.minor)]
            first = (same or newer or releases[-1:])[0]
        if driver.branch.branch > first.driver_branch:
            return "backward"
        if driver.branch.branch == first.driver_branch and (
            first.driver is None or not driver.known or num(driver.version) >= num(first.driver)
        ):
            return "native"
        cuda_major = major(one.minor)
        floor = next((row.min_driver for row in self.matrix.cuda.majors if row.major == cuda_major), None)
        if cuda_major >= 11 and floor is not None and num(driver.version) >= num(floor):
            return "minor-version"
        compat = [row for row in self.matrix.forward_compat.packages if row.cuda == one.minor]
        if self.forward and any(driver.branch.branch in row.base_branches for row in compat):
            return "forward"
        return ""

    def together(self, a: Assignment) -> bool:
        """Tell whether every rule about two components holds, as far as both are chosen."""
        return all(rule(a) for rule in (self.on_driver, self.one_major, self.cudnn_fits, self.wheels_agree))

    def on_driver(self, a: Assignment) -> bool:
        driver = a["driver"]
        for name in ("cuda", *FRAMEWORKS):
            if name in a:
                how = self.stands(driver, name, a[name])
                if not how or (self.request.native and how not in ("native", "backward")):
                    return False
        for name in FRAMEWORKS:
            for gpu in self.gpus if name in a else ():
                if self.runs(a[name].code, gpu.cc) == "ptx" and self.stands(driver, name, a[name]) not in (
                    "native",
                    "backward",
                ):
                    return False
        return "jax" not in a or num(driver.version) >= num(a["jax"].min_driver)

    def one_major(self, a: Assignment) -> bool:
        majors = {major(a[name].minor) for name in ("cuda", "nccl", *FRAMEWORKS) if name in a}
        runtimes = {major(a[name].minor) for name in ("cuda", *FRAMEWORKS) if name in a}
        return len(majors) <= 1 and ("cupy" not in a or runtimes <= a["cupy"].majors)

    def cudnn_fits(self, a: Assignment) -> bool:
        if "cudnn" not in a:
            return True
        one = a["cudnn"]
        floor = one.row.min_driver
        if floor and num(a["driver"].version) < num(floor):
            return False
        if any(name in a and major(a[name].minor) not in one.majors for name in ("cuda", *FRAMEWORKS)):
            return False
        if "cuda" in a and not self.row_takes(one.row, a["cuda"].minor):
            return False
        if "torch" in a and a["torch"].build.cudnn and num(a["torch"].build.cudnn)[:3] != num(one.version)[:3]:
            return False
        for name in ("tensorflow", "jax"):
            if name in a:
                pin = a[name].pins.get(f"nvidia-cudnn-cu{major(a[name].minor)}")
                if pin and not self.agree(pin, one.version):
                    return False
        return True

    def row_takes(self, row: Any, wanted: str) -> bool:
        same = [listed for listed in row.cuda if major(listed) == major(wanted)]
        return wanted in row.cuda or (major(wanted) >= 11 and any(num(wanted) > num(listed) for listed in same))

    def agree(self, one: str, other: str) -> bool:
        exact, text = (one, other) if one[0].isdigit() else (other, one)
        if not exact[0].isdigit():
            return True
        if text[0].isdigit():
            return Version(exact) == Version(text)
        return Version(exact) in SpecifierSet(text.split("]")[-1])

    def wheels_agree(self, a: Assignment) -> bool:
        for name in (*FRAMEWORKS, "cupy"):
            if name in a and "python" in a and a["python"].version not in a[name].pythons:
                return False
        for one, other in (("torch", "tensorflow"), ("torch", "jax"), ("tensorflow", "jax")):
            if one in a and other in a:
                first, second = a[one].pins, a[other].pins
                if not all(self.agree(first[name], second[name]) for name in set(first) & set(second)):
                    return False
        return True

    # --- every stack, and the best ------------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        """Return every assignment that keeps every rule."""
        found: list[Assignment] = [{}]
        for name, candidates in self.candidates.items():
            usable = [one for one in candidates if self.alone(name, one)]
            found = [
                extended for a in found for one in usable if self.together(extended := {**a, name: one})
            ]  # fmt: skip
        return found

    def preferences(self) -> Iterator[Callable[[list[Assignment]], list[Assignment]]]:
        """Return what is preferred, most important first: each keeps the best of what it is given."""
        request = self.request
        for name in ("torch", "tensorflow", "jax", "cupy", "cuda", "cudnn", "nccl", "driver"):
            if name in self.wishes and self.wishes[name].latest:
                yield self.release(name, lambda one: (Version(one.version).is_prerelease, _Newest(one.version)))
                yield self.covered(name)
        if request.installed_driver is not None and request.driver is None:
            yield best_by(
                lambda a: (
                    a["driver"].version != request.installed_driver
                    or request.installed_module not in (None, a["driver"].module)
                )
            )
        for item in request.recorded:
            yield self.as_recorded(item)
        yield best_by(lambda a: a["driver"].ended)
        for name in (*FRAMEWORKS, "cupy"):
            if name in self.wishes:
                yield self.release(name, self.confirmed(name))
                yield self.covered(name)
        cuda, torch = self.wishes.get("cuda"), self.wishes.get("torch")
        if cuda is not None and (cuda.specifier or cuda.latest):
            yield self.native("cuda")
        if torch is not None and (torch.variant or torch.latest):
            yield self.native("torch")
        yield best_by(lambda a: self.dies_within_a_year(a["driver"].branch))
        for name in (*FRAMEWORKS, "cuda"):
            yield self.native(name)
        for name in ("torch", "tensorflow", "jax", "cupy", "cudnn", "nccl", "driver"):
            if name in self.wishes:
                if name in ("cudnn", "nccl"):
                    yield self.release(name, self.confirmed(name))
                yield from self.best_build(name)
        yield best_by(
            lambda a: {"LTSB": 0, "PB": 1}.get(a["driver"].branch.kind, 2) if a["driver"].branch.eol != "unknown" else 2
        )
        yield best_by(lambda a: self.confirmed("driver")(a["driver"]))
        yield best_by(lambda a: (a["driver"].module == "open") != (a["driver"].branch.branch >= 560))
        yield best_by(lambda a: a["cuda"].minor not in a["cupy"].release.cuda)
        for name in ("cuda", "cudnn"):
            if name not in self.wishes or name == "cuda":
                yield self.release(name, self.confirmed(name))
                yield from self.best_build(name)
        yield best_by(lambda a: not all(self.nccl_runs(a["nccl"], gpu) for gpu in self.gpus))
        for name in ("cuda", *FRAMEWORKS):
            yield best_by(lambda a, name=name: num(a["nccl"].minor) > num(a[name].minor))
        for name in ("nccl", "cupy"):
            if name not in self.wishes:
                yield self.release(name, self.confirmed(name))
                yield from self.best_build(name)
        known = self.pythons()
        yield best_by(lambda a: known.index(a["python"].version) if a["python"].version in known else len(known))
        yield best_by(lambda a: [-part for part in num(a["python"].version)])

    def as_recorded(self, item: Any) -> Callable[[list[Assignment]], list[Assignment]]:
        return best_by(
            lambda a: (
                item.specifier != f"=={a[item.component].version}"
                or (item.component == "torch" and item.variant not in ("", a["torch"].variant))
            )
        )

    def confirmed(self, name: str) -> Callable[[Candidate], Any]:
        """Return what a component's candidates are ranked by: confirmed by its publisher, then newest."""

        def rank(one: Candidate) -> Any:
            latest = name == "driver" and one.version == one.branch.latest
            return (not latest and one.confidence != "vendor", _Newest(one.version))

        return rank

    def release(self, name: str, rank: Callable[[Candidate], Any]) -> Callable[[list[Assignment]], list[Assignment]]:
        """Keep every assignment with the release that has the best candidate."""

        def keep(left: list[Assignment]) -> list[Assignment]:
            version = min((a[name] for a in left), key=rank).version
            return [a for a in left if a[name].version == version]

        return keep

    def covered(self, name: str) -> Callable[[list[Assignment]], list[Assignment]]:
        return best_by(lambda a: name == "torch" and self.uncovered(a[name]))

    def native(self, name: str) -> Callable[[list[Assignment]], list[Assignment]]:
        levels = {"native": 0, "backward": 0, "minor-version": 1, "forward": 2}
        return best_by(lambda a: levels[self.stands(a["driver"], name, a[name])])

    def dies_within_a_year(self, branch: Any) -> bool:
        if branch.eol == "unknown":
            return True
        year, _, rest = self.matrix.date.partition("-")
        return branch.eol < f"{int(year) + 1}-{rest}"[: len(branch.eol)]

    def best_build(self, name: str) -> Iterator[Callable[[list[Assignment]], list[Assignment]]]:
        if name == "torch":
            yield best_by(lambda a: not a[name].on_pypi)
            kinds = ("stable", "legacy", "experimental", "unlisted", "lts")
            yield best_by(lambda a: kinds.index(a[name].build.status))
            yield best_by(lambda a: a[name].confidence != "vendor")
            yield best_by(lambda a: _Newest(a[name].minor))
        elif name == "jax":
            yield best_by(lambda a: -a[name].cuda_major)
        elif name == "cupy":
            yield best_by(lambda a: _Newest(max(a[name].release.cuda, key=num)))
        elif name == "cudnn":
            yield best_by(lambda a: a[name].leaning)
        elif name == "nccl":
            yield best_by(lambda a: a[name].build.kind == "wheel")
            yield best_by(lambda a: _Newest(a[name].build.cuda))

    def uncovered(self, one: Candidate) -> bool:
        """Tell whether a library inside a torch wheel leaves a GPU out."""
        build = one.build
        for gpu in self.gpus:
            rows = [
                other.row for other in self.cudnn() if build.cudnn and num(other.version)[:3] == num(build.cudnn)[:3]
            ]
            if rows and not any(self.on_gpu("cudnn", Candidate(row=row), gpu) for row in rows):
                return True
            nccl = [
                other
                for other in self.nccl()
                if other.version == build.nccl and major(other.minor) == major(build.cuda) and other.build.targets
            ]
            if nccl and not any(self.nccl_runs(other, gpu) for other in nccl):
                return True
        return False

    def best(self) -> list[Assignment]:
        """Return the assignments that no preference tells apart; empty when nothing fits."""
        left = self.assignments()
        for preference in self.preferences():
            left = self.kept(preference, left)
        return left

    def kept(self, preference: Callable[[list[Assignment]], list[Assignment]], left: list[Assignment]) -> Any:
        try:
            return preference(left) if left else left
        except KeyError:  # it speaks of a component that nobody asked for
            return left


def best_by(rank: Callable[[Assignment], Any]) -> Callable[[list[Assignment]], list[Assignment]]:
    """Keep the assignments of the lowest rank."""

    def keep(left: list[Assignment]) -> list[Assignment]:
        ranked = [(rank(a), a) for a in left]
        best = min(number for number, _ in ranked)
        return [a for number, a in ranked if number == best]

    return keep


class _Newest(Version):
    """A version for which newer is smaller."""

    def __lt__(self, other: Version) -> bool:
        return Version.__gt__(self, other)
