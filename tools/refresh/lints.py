"""Lints of the data: rules that types cannot express.

A lint takes documents by component and returns a sentence for each error. Tests apply them to the shipped data, a
refresh to its new rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

Documents = dict[str, dict[str, Any]]


def records(documents: Documents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every record and rule: component, path, record."""
    for name, document in documents.items():
        for field, value in document.items():
            if field in ("sources", "schema", "date"):
                continue
            if isinstance(value, dict) and "confidence" in value:
                yield name, f"{name}.{field}", value
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, dict):
                        yield name, f"{name}.{field}[{index}]", item


def numbers(version: str) -> tuple[int, ...]:
    """Return the sort key of a version."""
    return tuple(int(part) for part in version.split("."))


def _cited(record: object) -> list[str]:
    if isinstance(record, dict):
        own = record["sources"] if isinstance(record.get("sources"), list) else []
        return [*own, *(key for value in record.values() for key in _cited(value))]
    return [key for item in record for key in _cited(item)] if isinstance(record, list) else []


def _sources(documents: Documents) -> list[str]:
    problems = []
    used: dict[str, set[str]] = {name: set() for name in documents}
    for name, path, record in records(documents):
        if not record.get("sources"):
            problems.append(f"{path} has no source")
        for key in _cited(record):
            used[name].add(key)
            if key not in documents[name]["sources"]:
                problems.append(f"{path} cites {key}, which is no source of {name}")
    for name, document in documents.items():
        problems += [f"{name}: nobody cites the source {key}" for key in document["sources"] if key not in used[name]]
        problems += [
            f"{name}: the source {key} has no title" for key, item in document["sources"].items() if not item["title"]
        ]
        problems += [
            f"{name}: the address of the source {key} is none"
            for key, item in document["sources"].items()
            if item.get("url") and (not item["url"].startswith("https://") or " " in item["url"])
        ]
    return problems


_KEYS = {
    "driver.branches": ("branch",), "driver.versions": ("version",), "driver.architectures": ("name", "capabilities"),
    "cuda.releases": ("version",), "cuda.majors": ("major",), "cuda.toolchains": ("minor",),
    "cuda.wheel_pins": ("wheel",),
    "cudnn.support": ("version", "cuda"), "cudnn.releases": ("version",), "nccl.releases": ("version",),
    "torch.releases": ("version",), "torch.builds": ("version", "variant"), "cupy.releases": ("package", "version"),
    "tensorflow.releases": ("version",), "jax.releases": ("version", "extra"), "gpus.gpus": ("name", "arch", "cc"),
    "os.systems": ("id",), "forward_compat.packages": ("cuda",),
    "vgpu.branches": ("vgpu",), "vgpu.releases": ("vgpu",), "vgpu.clouds": ("cloud",), "repos.keys": ("id",),
    "repos.directories": ("directory",),
    "repos.drivers": ("family", "min_branch", "max_branch", "module"),
    "repos.fabric": ("format", "min_branch", "max_branch"),
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
    "security.bulletins": ("component", "cves"),
    "instances.instances": ("name",),
    "kernel_pairs.pairs": ("driver", "module", "systems", "kernel_from"),
}  # fmt: skip


def _duplicates(documents: Documents) -> list[str]:
    seen: Counter[tuple[str, str]] = Counter()
    rules: Counter[str] = Counter()
    for _, path, record in records(documents):
        place = path.partition("[")[0]
        if place.endswith(".rules"):
            rules[record["id"]] += 1
        elif "[" in path:
            seen[place, str([str(record.get(field)).lower() for field in _KEYS[place]])] += 1
    problems = [f"{place} has {key} {count} times" for (place, key), count in seen.items() if count > 1]
    return problems + [f"the rule {rule} is there {count} times" for rule, count in rules.items() if count > 1]


_RANGES = (
    ("cc_min", "cc_max"),
    ("cuda_min", "cuda_max"),
    ("min_branch", "max_branch"),
    ("min_branch", "last_branch"),
    ("min_version", "max_version"),
)
_ORDERED = ("targets", "ptx", "cuda", "cuda_majors", "base_branches")


def _key(value: Any) -> Any:
    if isinstance(value, int):
        return (value,)
    text = str(value)
    return text if "-" in text else numbers(text)


def _ranges(documents: Documents) -> list[str]:
    problems = []
    for _, path, record in records(documents):
        for low, high in _RANGES:
            if record.get(low) and record.get(high) and _key(record[low]) > _key(record[high]):
                problems.append(f"{path}: {low} {record[low]} is above {high} {record[high]}")
        nested = [build for build in record.get("builds", ()) if isinstance(build, dict)]
        codes = [record["code"]] if isinstance(record.get("code"), dict) and "targets" in record["code"] else []
        codes += list(record["code"].values()) if isinstance(record.get("code"), dict) and not codes else []
        for item in (record, *nested, *codes):
            for field in _ORDERED:
                value = item.get(field)
                if isinstance(value, list) and sorted(value, key=_key) != value:
                    problems.append(f"{path}: {field} is not in order")
    return problems


_LEGAL = ("vendor", "observed", "inferred")


def _confidence(documents: Documents) -> list[str]:
    problems = []
    for name, path, record in records(documents):
        if record.get("confidence") not in _LEGAL:
            problems.append(f"{path} has confidence {record.get('confidence')!r}")
        derived = name == "gpus" and "follows from the die" in record.get("note", "")
        if derived and record["confidence"] == "vendor":
            problems.append(f"{path} is derived from the die and called the vendor's")
        if name == "gpus" and ".gpus[" in path and record.get("confidence") == "inferred" and not record.get("note"):
            problems.append(f"{path} is inferred and does not say from what")
    return problems


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _drivers(documents: Documents) -> list[str]:
    driver = documents["driver"]
    branches = {row["branch"] for row in driver["branches"]}
    linux = {row["version"]: row for row in driver["versions"] if row.get("platform") != "windows"}
    problems = [f"driver {v}: no branch {row['branch']}" for v, row in linux.items() if row["branch"] not in branches]
    problems += [
        f"R{row['branch']}: its latest {row['latest']} is no driver"
        for row in driver["branches"]
        if row.get("latest") and row["latest"] not in linux
    ]
    for release in documents.get("cuda", {}).get("releases", ()):
        if release["driver_branch"] not in branches:
            problems.append(f"CUDA {release['version']}: no branch {release['driver_branch']}")
        problems += [
            f"CUDA {release['version']}: its {field} {release[field]} is no Linux driver"
            for field in ("driver", "installer_driver")
            if release.get(field) and release[field] not in linux
        ]
    for gpu in documents.get("gpus", {}).get("gpus", ()):
        floor = gpu.get("min_driver")
        if floor and floor not in linux:
            problems.append(f"{gpu['name']}: its first driver {floor} is no Linux driver")
        if floor and linux.get(floor, {}).get("beta"):
            problems.append(f"{gpu['name']}: its first driver {floor} is a developer beta")
    problems += [
        f"vGPU {row['vgpu']}: no branch {row['branch']}"
        for row in documents.get("vgpu", {}).get("branches", ())
        if row["branch"] not in branches
    ]
    vgpu = documents.get("vgpu", {})
    guests = {row["vgpu"]: row["guest"] for row in vgpu.get("releases", ())}
    for cloud in vgpu.get("clouds", ()):
        named = [*cloud.get("releases", ()), *(file["vgpu"] for file in cloud.get("files", ()))]
        problems += [f"{cloud['name']}: no release of vGPU {name}" for name in named if name not in guests]
        problems += [
            f"{cloud['name']}: {file['url']} is not the guest driver {guests.get(file['vgpu'])}"
            for file in cloud.get("files", ())
            if f"-{guests.get(file['vgpu'])}-" not in file["url"]
        ]
    for package in documents.get("forward_compat", {}).get("packages", ()):
        for branch in package["base_branches"]:
            if branch not in branches:
                problems.append(f"cuda-compat of CUDA {package['cuda']}: no branch {branch}")
    return problems


def _libraries(documents: Documents) -> list[str]:
    minors = {row["minor"] for row in documents["cuda"]["releases"]}
    cudnn = {row["version"] for row in documents["cudnn"]["releases"]}
    nccl = {row["version"] for row in documents["nccl"]["releases"]}
    torch_releases = {row["version"] for row in documents["torch"]["releases"]}
    problems = []
    for build in documents["torch"]["builds"]:
        name = f"torch {build['version']}+{build['variant']}"
        if build["cuda"] not in minors:
            problems.append(f"{name}: no CUDA {build['cuda']}")
        if build["variant"] != "cu" + build["cuda"].replace(".", ""):
            problems.append(f"{name} is said to be for CUDA {build['cuda']}")
        if build["version"] not in torch_releases and build["code"] is not None:
            problems.append(f"{name}: no such release")
        if build.get("cudnn") and build["cudnn"] not in cudnn:
            problems.append(f"{name}: no cuDNN {build['cudnn']}")
        if build.get("nccl") and build["nccl"] not in nccl:
            problems.append(f"{name}: no NCCL {build['nccl']}")
    problems += [
        f"TensorFlow {row['version']}: no CUDA {row['cuda']}"
        for row in documents["tensorflow"]["releases"]
        if row["cuda"] not in minors
    ]
    for row in documents["cupy"]["releases"]:
        problems += [
            f"{row['package']} {row['version']}: no CUDA {minor}" for minor in row["cuda"] if minor not in minors
        ]
    for row in documents["nccl"]["releases"]:
        problems += [
            f"NCCL {row['version']}: no CUDA {b['cuda']}"
            for b in row.get("builds", ())
            if _minor(b["cuda"]) not in minors
        ]
    return problems


def _places(documents: Documents) -> list[str]:
    systems = {row["id"]: row for row in documents["os"]["systems"]}
    repos = documents["repos"]
    keys = {row["id"] for row in repos["keys"]}
    directories = {row["directory"]: row for row in repos["directories"]}
    problems = [
        f"{name}: no repository directory {row['repo']}"
        for name, row in systems.items()
        if row.get("repo") and row["repo"] not in directories
    ]
    for directory in directories.values():
        if directory.get("key") and directory["key"] not in keys:
            problems.append(f"{directory['directory']}: no key {directory['key']}")
        problems += [
            f"{directory['directory']} is said to serve {system}, which does not name it"
            for system in directory["systems"]
            if systems.get(system, {}).get("repo") != directory["directory"]
        ]
    problems += [
        f"repos: no distribution {system}"
        for row in repos["distro_drivers"]
        for system in row["systems"]
        if system not in systems
    ]
    releases = {row["version"] for row in documents["cuda"]["releases"]}
    for name, row in systems.items():
        problems += [
            f"{name}: no CUDA {row[field]}"
            for field in ("cuda_min", "cuda_max")
            if row.get(field) and row[field] not in releases
        ]
    return problems


def _wheels(documents: Documents) -> list[str]:
    wheels = documents.get("wheels", {"closures": [], "sizes": {}})
    named = {(row["arch"], wheel) for row in wheels["closures"] for wheel in row["wheels"]}
    sized = {(arch, wheel) for arch, sizes in wheels["sizes"].items() for wheel in sizes}
    problems = [f"{arch}: no size of {wheel}" for arch, wheel in sorted(named - sized)]
    return problems + [f"{arch}: {wheel} comes with nothing" for arch, wheel in sorted(sized - named)]


def _references(documents: Documents) -> list[str]:
    return [*_drivers(documents), *_libraries(documents), *_places(documents), *_wheels(documents)]


LINTS: dict[str, Callable[[Documents], list[str]]] = {
    "sources": _sources,
    "duplicates": _duplicates,
    "ranges": _ranges,
    "confidence": _confidence,
    "references": _references,
}
"""The lints for data from other sources, too."""
