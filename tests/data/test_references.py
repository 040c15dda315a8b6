"""What one record names, another record is: branches, drivers, CUDA versions, libraries, distributions, keys."""

from tests.data.lint import Documents, holds, shipped


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


def lint(documents: Documents) -> list[str]:
    return [*_drivers(documents), *_libraries(documents), *_places(documents), *_wheels(documents)]


def test_shipped() -> None:
    assert lint(shipped()) == []


def test_fixtures() -> None:
    holds(lint, "references")
