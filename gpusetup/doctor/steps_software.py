"""Checks of CUDA libraries, frameworks (from their metadata, never imported), containers and exporters."""

import re
from collections.abc import Iterator

from gpusetup.components.judge import names
from gpusetup.components.record import record_of, wish_on_record
from gpusetup.doctor import builds
from gpusetup.doctor.look import Look, Outcome, cause, fine, notice, unknown
from gpusetup.drive.causes import counted
from gpusetup.model.diagnosis import Environment
from gpusetup.model.release import ArchCode
from gpusetup.resolve.rules import way_of
from gpusetup.versions import nv

_VERSIONED = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_BESIDE = ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libnccl.so.2", "libcudnn.so.8", "libcudnn.so.9")


def libcuda(look: Look) -> Outcome:
    """Check that the loader finds the driver's own libcuda, not one that hides it."""
    found = look.symptoms.libraries.get("libcuda.so.1", ())
    plain = look.symptoms.libraries.get("libcuda.so", ())
    if not found:
        if any("/stubs/" in file.leads_to for file in plain):
            return cause(
                "stub-library", "only the toolkit's stub of libcuda is found", *(file.path for file in plain[:2])
            )
        if look.facts.gpus and look.driver is None:
            return unknown("no driver")
        if not look.symptoms.live:
            library = look.facts.driver.library if look.facts.driver else None
            if library:
                return fine(f"libcuda {library} (the capture has no cache of the loader)")
            if not look.symptoms.loader_cache:
                return unknown("the capture has no cache of the loader")
        return cause(
            "libcuda-missing", "the loader finds no libcuda.so.1", "neither LD_LIBRARY_PATH nor ld.so.cache has it"
        )
    first, taken = found[0].path, found[0].leads_to
    shown = [f"taken: {first} → {taken}" if taken != first else f"taken: {taken}"]
    if "/stubs/" in taken or "/stubs/" in first:
        return cause("stub-library", "the toolkit's stub is taken instead of the driver's library", *shown)
    version = _VERSIONED.search(taken)
    if version and look.loaded and version[1] != look.loaded:
        shown.append(f"the loaded module is {look.loaded}")
        own = [
            file.path for file in found[1:] if (other := _VERSIONED.search(file.leads_to)) and other[1] == look.loaded
        ]
        if "compat" in taken or "compat" in first:
            if nv(version[1]) < nv(look.loaded):
                return cause(
                    "compat-shadows-driver", "an older cuda-compat library hides the driver's own", *shown, *own[:1]
                )
            return notice("compat-in-use", "a cuda-compat library is used on purpose or by accident", *shown)
        return cause("nvml-version-mismatch", "libcuda is of another version than the loaded module", *shown)
    return fine(shown[0].removeprefix("taken: "))


def libraries(look: Look) -> Outcome:
    """Check for several versions of a library, of which the loader takes the first."""
    shown, several = [], []
    for name in _BESIDE:
        found = list(dict.fromkeys(file.leads_to for file in look.symptoms.libraries.get(name, ())))
        if found:
            shown.append(f"{name}: {found[0]}")
        if len({path.rsplit("/", 1)[-1] for path in found}) > 1:
            several.append(f"{name}: {found[0]} before {', '.join(found[1:])}")
    if several:
        return notice("library-copies", "several versions of a library; the first is taken", *several)
    return fine("; ".join(shown) or "no CUDA library outside of Python environments")


def visible(look: Look) -> Outcome:
    """Check CUDA_VISIBLE_DEVICES against the machine's GPUs."""
    value = look.symptoms.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None and not look.symptoms.live:
        return unknown("the environment of programs there is not known")
    if value is None:
        return fine("CUDA_VISIBLE_DEVICES is not set")
    asked = [part.strip() for part in value.split(",")]
    count = sum(1 for gpu in look.facts.gpus if gpu.uuid) or len(look.facts.gpus)
    uuids = [gpu.uuid for gpu in look.facts.gpus if gpu.uuid]
    shown = f"CUDA_VISIBLE_DEVICES={value!r}, {counted(count, 'GPU')}"
    if value.strip() in {"", "-1", "NoDevFiles", "none", "void"}:
        return cause("cuda-visible-devices", "CUDA_VISIBLE_DEVICES hides every GPU", shown)
    for position, part in enumerate(asked):
        wrong = (
            (part.isdigit() and count and int(part) >= count)
            or (part.startswith("GPU-") and uuids and not any(uuid.startswith(part) for uuid in uuids))
            or not (part.isdigit() or part.startswith(("GPU-", "MIG-")))
        )
        if wrong:
            hidden = "hides every GPU" if position == 0 else f"hides what follows {asked[position - 1]}"
            return cause(
                "cuda-visible-devices", f"CUDA_VISIBLE_DEVICES names {part!r}, which is missing, and {hidden}", shown
            )
    if len(set(asked)) != len(asked):
        return cause("cuda-visible-devices", "CUDA_VISIBLE_DEVICES names a GPU twice, so CUDA shows none", shown)
    return fine(f"CUDA_VISIBLE_DEVICES={value}")


def frameworks(look: Look) -> Outcome:
    """Check every Python environment; the first that cannot work is the cause."""
    told = []
    for environment in look.symptoms.environments:
        for judge in (_torch, _cupy, _jax, _tensorflow):
            outcome = judge(look, environment)
            if outcome is not None and outcome.answer == "cause":
                return outcome
            if outcome is not None:
                told.append(outcome.text)
    return fine("; ".join(told) or "none in the usual places (activate one, then ask again)")


def _capabilities(look: Look) -> list[str]:
    return sorted(
        {text for gpu in look.facts.gpus if (text := gpu.reported_capability or gpu.compute_capability)}, key=nv
    )


def _needs(look: Look, what: str, cuda: str, path: str) -> Outcome | None:
    if look.driver is None or builds.runs(cuda, look.driver):
        return None
    shown = [
        f"{path}: {what} needs CUDA {cuda}, driver {builds.needs_driver(cuda) or 'unknown'} or newer",
        f"driver: {look.driver}",
    ]
    return cause(
        "driver-too-old", f"{what} is built for a newer driver", *shown, cuda=builds.cuda_of_driver(look.driver) or ""
    )


def _torch(look: Look, environment: Environment) -> Outcome | None:
    version = environment.packages.get("torch")
    if version is None:
        return None
    if "+cpu" in version:
        return cause(
            "torch-cpu-build", f"torch {version} has no CUDA", f"{environment.path}: torch {version}", torch=version
        )
    build = builds.torch_build(version, look.facts.arch)
    if build is None:
        return fine(f"torch {version} is not in the matrix")
    shown = f"torch {build.version}+{build.variant}"
    if outcome := _needs(look, shown, build.cuda, environment.path):
        return outcome
    code = build.code_on(look.facts.arch)
    return _lacks_code(look, shown, code, build.cuda, environment.path) or fine(f"{shown} fits")


def _lacks_code(look: Look, what: str, code: ArchCode | None, cuda: str, path: str) -> Outcome | None:
    if code is None:
        return None
    jit = look.driver is None or builds.compiles(cuda, look.driver)
    for capability in _capabilities(look):
        if way_of(code.targets, code.ptx, capability, jit=jit) is None:
            has = " ".join(f"sm_{target.replace('.', '')}" for target in code.targets)
            lines = [f"{path}: {what} has code for {has}", f"GPU: sm_{capability.replace('.', '')}"]
            return cause("no-kernel-image", f"{what} has no code for this GPU", *lines, capability=capability)
    return None


def _cupy(look: Look, environment: Environment) -> Outcome | None:
    found = {name: version for name, version in environment.packages.items() if re.fullmatch(r"cupy(-cuda\w+)?", name)}
    if not found:
        return None
    shown = [f"{name} {version}" for name, version in sorted(found.items())]
    if len(found) > 1:
        return cause(
            "cupy-multiple-packages",
            "several CuPy packages overwrote each other",
            environment.path,
            *shown,
            packages=", ".join(shown),
        )
    name = next(iter(found))
    match = re.fullmatch(r"cupy-cuda(\d+)x", name)
    if match and (outcome := _needs(look, shown[0], f"{match[1]}.0", environment.path)):
        return outcome
    return fine(f"{shown[0]} fits" if match else shown[0])


def _jax(look: Look, environment: Environment) -> Outcome | None:
    packages = environment.packages
    version = packages.get("jax")
    if version is None:
        return None
    plugins = {name: text for name, text in packages.items() if re.fullmatch(r"jax-cuda\d+-(?:plugin|pjrt)", name)}
    lib = packages.get("jaxlib", "")
    if not plugins and "cuda" not in lib:
        return cause(
            "jax-cuda-plugin-missing",
            f"jax {version} has no CUDA plug-in",
            f"{environment.path}: jax {version}, jaxlib {lib or 'missing'}",
        )
    odd = [
        f"{name} {text}"
        for name, text in plugins.items()
        if lib and nv(_release(text)).minor != nv(_release(lib)).minor
    ]
    if odd:
        return cause(
            "jax-plugin-mismatch",
            "jaxlib and its CUDA plug-in differ",
            f"{environment.path}: jaxlib {lib}",
            *odd,
            jaxlib=lib,
        )
    for name, text in plugins.items():
        major = re.sub(r"\D", "", name.split("-")[1])
        if outcome := _needs(look, f"{name} {text}", f"{major}.0", environment.path):
            return outcome
        code = builds.jax_code(_release(version), f"cuda{major}")
        if outcome := _lacks_code(look, f"jax {version}", code, f"{major}.0", environment.path):
            return outcome
    return fine(f"jax {version} fits")


def _release(text: str) -> str:
    match = re.match(r"\d+(?:\.\d+)*", text)
    return match[0] if match else "0"


def _tensorflow(look: Look, environment: Environment) -> Outcome | None:
    version = environment.packages.get("tensorflow")
    if version is None:
        return None
    release, what, path = builds.tensorflow(_release(version)), f"tensorflow {version}", environment.path
    if release is None:
        return fine(f"{what} is not in the matrix")
    for capability in _capabilities(look):
        if way_of(release.fails_on, (), capability) is not None:
            shown = f"{path}: {what} starts on sm_{capability.replace('.', '')} and fails there"
            return cause("no-kernel-image", f"{what} fails on this GPU; NVIDIA's container of it works", shown)
    found = _needs(look, what, release.cuda, path) or _lacks_code(look, what, release.code, release.cuda, path)
    return found or fine(f"{what} fits")


def runtimes(look: Look) -> Outcome:
    """Check the container toolkit, the runtimes configured for it, and that CDI files name the loaded driver."""
    containers = look.facts.containers
    for path, named in look.symptoms.cdi.items():
        if named and look.loaded and look.loaded not in named:
            shown = f"{path} names libcuda {', '.join(named)}; the driver is {look.loaded}"
            return cause("cdi-stale", "a CDI file was written for another driver", shown)
    if not containers.runtimes:
        return fine("no container runtime")
    names = ", ".join(containers.runtimes)
    if containers.toolkit is None:
        return notice(
            "docker-no-gpu-driver", f"{names} without the NVIDIA Container Toolkit: no GPU in containers", names
        )
    deaf = [
        name
        for name in containers.runtimes
        if name in {"docker", "containerd", "crio"} and name not in containers.configured
    ]
    if deaf and not containers.cdi:
        name = "containerd-runtime-missing" if deaf[0] != "docker" else "docker-runtime-unknown"
        return notice(name, f"{', '.join(deaf)} is not configured for the toolkit", f"toolkit {containers.toolkit}")
    return fine(f"{names}; toolkit {containers.toolkit}")


def exporters(look: Look) -> Outcome:
    """Check for exporters that failed, and for ones that gpusetup started but that are not running."""
    silent = list(_silent(look))
    wanted = wish_on_record(look.facts, "monitoring")
    if silent:
        what = f"{wanted.kind} " if wanted is not None else ""
        return notice("exporter-silent", f"{what}exports nothing: {', '.join(silent)}", *silent)
    if wanted is None:
        return fine("nothing that gpusetup set up exports figures")
    return fine(f"{wanted.kind}{f' on {wanted.listen}' if wanted.listen else ''}")


def _silent(look: Look) -> Iterator[str]:
    recorded = record_of(look.facts).services
    for service in look.facts.services.values():
        if service.unit not in names.MONITORING_UNITS:
            continue
        stopped = service.unit in recorded and service.active not in (None, "active", "activating")
        if service.active == "failed" or stopped:
            yield f"{service.unit} is {service.active}"
