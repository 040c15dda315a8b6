"""No record is there twice, and a rule's name belongs to one rule of all files."""

from collections import Counter

from tests.data.lint import Documents, holds, records, shipped

KEYS = {
    "driver.branches": ("branch",), "driver.versions": ("version",), "driver.architectures": ("name", "capabilities"),
    "cuda.releases": ("version",), "cuda.majors": ("major",), "cuda.toolchains": ("minor",), "cuda.wheel_pins": ("wheel",),
    "cudnn.support": ("version", "cuda"), "cudnn.releases": ("version",), "nccl.releases": ("version",),
    "torch.releases": ("version",), "torch.builds": ("version", "variant"), "cupy.releases": ("package", "version"),
    "tensorflow.releases": ("version",), "jax.releases": ("version", "extra"), "gpus.gpus": ("name", "arch", "cc"),
    "os.systems": ("id",), "forward_compat.packages": ("cuda",),
    "vgpu.branches": ("vgpu",), "vgpu.releases": ("vgpu",), "vgpu.clouds": ("cloud",), "repos.keys": ("id",), "repos.directories": ("directory",),
    "repos.drivers": ("family", "min_branch", "max_branch", "module"), "repos.fabric": ("format", "min_branch", "max_branch"),
    "repos.libraries": ("component", "format", "min_version", "max_version"),
    "repos.distro_drivers": ("systems", "module", "series"), "repos.prebuilt": ("systems", "min_branch", "module"),
    "repos.kernels": ("systems", "release", "arch"),
    "repos.stack_names": ("source", "families"),
    "images.images": ("cuda",), "gpu_figures.gpus": ("names",),
    "mig.products": ("name", "ids"),
    "wheels.closures": ("pin", "arch"),
    "rdma.packages": ("part", "managers"),
    "monitoring.pairs": ("exporter",),
    "monitoring.cuda": ("min_branch", "architectures"),
    "monitoring.exporters": ("kind", "managers"),
    "kernel_pairs.pairs": ("driver", "module", "systems", "kernel_from"),
}  # fmt: skip


def lint(documents: Documents) -> list[str]:
    seen: Counter[tuple[str, str]] = Counter()
    rules: Counter[str] = Counter()
    for _, path, record in records(documents):
        place = path.partition("[")[0]
        if place.endswith(".rules"):
            rules[record["id"]] += 1
        elif "[" in path:
            seen[place, str([str(record.get(field)).lower() for field in KEYS[place]])] += 1
    problems = [f"{place} has {key} {count} times" for (place, key), count in seen.items() if count > 1]
    return problems + [f"the rule {rule} is there {count} times" for rule, count in rules.items() if count > 1]


def test_shipped() -> None:
    assert lint(shipped()) == []


def test_fixtures() -> None:
    holds(lint, "duplicates")
