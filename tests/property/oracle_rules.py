"""The resolver's rules written a second time, as plainly as possible: each looks at one or two candidates."""

from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpusetup.matrix.gpus import GpuKind
from tests.property.offered import FRAMEWORKS, Assignment, Candidate, Offered, major, num


def built(name: str, one: Candidate) -> set[str]:
    """What a build of a component is called: torch's by name, the others by their CUDA major."""
    if name == "torch":
        return {one.variant}
    minors = {"jax": lambda: (one.extra[4:6],), "cupy": lambda: one.release.cuda, "cudnn": lambda: one.row.cuda}
    return {f"cu{major(minor)}" for minor in minors.get(name, lambda: (one.minor,))()}


class Rules(Offered):
    """What may be."""

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
            if not self.names(wish, one.version, published) or (wish.variant and wish.variant not in built(name, one)):
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
        if name == "driver" and self.os.last_branch and self.request.driver_candidates is None:
            there = (self.request.driver, self.request.installed_driver)
            return one.branch.branch <= self.os.last_branch or one.version in there
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
            later = [one for one in self.matrix.cuda.toolchains if one.cc_max and num(one.minor) >= num(row.minor)]
            last = num(min(later, key=lambda one: num(one.minor)).cc_max) if later else cc
            return gpu.cc in row.targets if row.targets else cc <= last
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
                jit = self.runs(a[name].code, gpu.cc) == "ptx"
                if jit and self.stands(driver, name, a[name]) not in ("native", "backward"):
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
        if "torch" in a:
            own, same = a["torch"].build, [b for b in self.matrix.torch.builds if b.version == a["torch"].version]
            inside = num(own.cudnn)[:3] if own.cudnn else next((num(b.cudnn)[:1] for b in same[::-1] if b.cudnn), ())
            if num(one.version)[: len(inside)] != inside:
                return False
        for name in ("tensorflow", "jax"):
            if name in a:
                own = f">={a[name].release.cudnn}" if name == "tensorflow" else ""
                pin = a[name].pins.get(f"nvidia-cudnn-cu{major(a[name].minor)}", own)
                if pin and not self.agree(pin, one.version):
                    return False
                if pin and "<" not in pin and num(pin.lstrip(">="))[0] != num(one.version)[0]:
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
