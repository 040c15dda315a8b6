"""The resolver's rules and preferences written a second time, as plainly as possible: every assignment is looked at.

Nothing of `gpusetup.resolve` is used. A candidate is a plain namespace; a rule looks at one or two of them; a
preference is a function of a whole assignment, and the preferences are applied one after the other.
"""

from collections.abc import Callable, Iterator
from typing import Any

from packaging.version import Version

from gpusetup.matrix.security import floor, vulnerable
from tests.property.offered import FRAMEWORKS, Assignment, Candidate, major, num
from tests.property.oracle_rules import Rules


class Oracle(Rules):
    """Every stack, and the best."""

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
        least = floor(self.matrix)
        yield best_by(
            lambda a: (
                not request.allow_vulnerable
                and vulnerable(self.matrix, "driver", a["driver"].version, least) is not None
            )
        )
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
            lambda a: max(
                {"LTSB": 0, "PB": 1, "evaluation": 3}.get(a["driver"].branch.kind, 2),
                2 * (a["driver"].branch.eol == "unknown"),
            )
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
            pinned = num(build.cudnn)[:3] if build.cudnn else None
            rows = [other.row for other in self.cudnn() if num(other.version)[:3] == pinned]
            if rows and not any(self.on_gpu("cudnn", Candidate(row=row), gpu) for row in rows):
                return True
            nccl = [other for other in self.nccl() if other.version == build.nccl and other.build.targets]
            nccl = [other for other in nccl if major(other.minor) == major(build.cuda)]
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
