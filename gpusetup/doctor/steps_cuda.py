"""Which CUDA libraries a program would load, and which GPUs it would see."""

from __future__ import annotations

import re

from gpusetup.doctor.look import Look, Outcome, cause, fine, notice, unknown
from gpusetup.versions import nv

__all__ = ["libcuda", "libraries", "visible"]

_VERSIONED = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_BESIDE = ("libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libnccl.so.2", "libcudnn.so.8", "libcudnn.so.9")


def libcuda(look: Look) -> Outcome:
    """Follow the loader to libcuda: the driver's own, or one that hides it."""
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
    """Look for several copies of a library, of which the loader takes the first."""
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
    """Check CUDA_VISIBLE_DEVICES against the GPUs that are there."""
    value = look.symptoms.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None and not look.symptoms.live:
        return unknown("the environment of programs there is not known")
    if value is None:
        return fine("CUDA_VISIBLE_DEVICES is not set")
    asked = [part.strip() for part in value.split(",")]
    count = sum(1 for gpu in look.facts.gpus if gpu.uuid) or len(look.facts.gpus)
    uuids = [gpu.uuid for gpu in look.facts.gpus if gpu.uuid]
    shown = f"CUDA_VISIBLE_DEVICES={value!r}, {count} GPUs"
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
