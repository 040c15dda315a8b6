"""Run a container that looks for the GPUs, from an image of this host's files.

The image holds `ls` and the libraries of nvidia-smi, nothing from a network; nvidia-smi itself is injected with the
devices, as in any container. Image and container are removed afterwards.
"""

import os
import re
import shutil
import tarfile
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import child

if TYPE_CHECKING:
    from child import Answer

DEADLINE = 60
_LIBRARY = re.compile(r"(/\S+) \(0x[0-9a-f]+\)")
_LIBRARIES = "LD_LIBRARY_PATH=/usr/lib64:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu"
_BY_CDI = ("cdi", ["--device", "nvidia.com/gpu=all"])
_BY_RUNTIME = (
    "runtime",
    ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all", "-e", "NVIDIA_DRIVER_CAPABILITIES=utility"],
)
WAYS: Dict[str, List[Tuple[str, List[str]]]] = {"podman": [_BY_CDI], "docker": [_BY_CDI, _BY_RUNTIME]}
"""How a container can request GPUs; the first way that works counts. docker supports CDI since 25."""


def to_try(facts: Dict[str, Any]) -> List[str]:
    """Return the runtimes to try: installed and configured ones, if the host's record includes containers."""
    lock = (facts.get("state") or {}).get("lock") or {}
    packages = (lock.get("wanted") or {}).get("packages") or {}
    if not packages.get("containers"):
        return []
    found = facts.get("containers") or {}
    configured, there = found.get("configured") or (), found.get("runtimes") or ()
    return [name for name in WAYS if name in configured and name in there]


def look(runtime: str, folder: str) -> Dict[str, Any]:
    """Return what a container of this runtime sees: {"way", "devices", "smi", "error", "message"}."""
    made = os.path.join(folder, runtime + "-image.tar")
    programs = image(made)
    answer = child.run([runtime, "import", made], DEADLINE)
    told = answer["stdout"].split()
    if answer["error"] or answer["rc"] or not told:
        return _failed("import", answer)
    try:
        for way, words in WAYS[runtime]:
            name, start = f"{os.path.basename(folder)}-{way}", [*words, told[-1]]
            answer = _run(runtime, name + "-ls", [*start, programs["ls"], "-1", "/dev"])
            if answer["rc"] == 0:
                devices = sorted(name for name in answer["stdout"].split() if re.fullmatch(r"nvidia\d+", name))
                found: Dict[str, Any] = {"way": way, "devices": devices, "smi": None, "error": None}
                return dict(found, **_smi(runtime, name + "-smi", start, programs))
        return _failed("run", answer)
    finally:
        child.run([runtime, "rmi", "-f", told[-1]], DEADLINE)


def _smi(runtime: str, name: str, start: List[str], programs: Dict[str, str]) -> Dict[str, Any]:
    """Return how many GPUs nvidia-smi lists in the container; nothing if the host's nvidia-smi is a script."""
    if "nvidia-smi" not in programs:
        return {}
    answer = _run(runtime, name, [*start, programs["nvidia-smi"], "-L"])
    if answer["error"] or answer["rc"]:
        return _failed("nvidia-smi", answer)
    return {"smi": len(re.findall(r"^GPU \d+:", answer["stdout"], re.MULTILINE))}


def _run(runtime: str, name: str, start: List[str]) -> "Answer":
    # The host's network, because an own network needs more from the host than GPUs do.
    more = ["--security-opt", "label=disable"] if runtime == "podman" else []
    argv = [runtime, "run", "--rm", "--name", name, "--network", "host", "-e", _LIBRARIES, *more, *start]
    answer = child.run(argv, DEADLINE)
    if answer["error"]:  # only the client was killed
        child.run([runtime, "rm", "-f", name], DEADLINE)
    return answer


def _failed(step: str, answer: "Answer") -> Dict[str, Any]:
    message = (answer["stderr"] or answer["stdout"]).strip()[-600:] or child.ending(answer["rc"])
    return {"error": step, "message": message}


def image(path: str) -> Dict[str, str]:
    """Write the image's only layer; return the paths of its programs."""
    programs = {"ls": shutil.which("ls") or "/bin/ls"}
    smi = shutil.which("nvidia-smi")
    if smi and _elf(smi):
        programs["nvidia-smi"] = smi
    with tarfile.open(path, "w") as layer:
        libraries = [library for program in programs.values() for library in _linked(program)]
        for place in dict.fromkeys([programs["ls"], *libraries]):
            layer.add(os.path.realpath(place), arcname=place.lstrip("/"), recursive=False)
        for name in ("dev", "proc", "sys", "etc", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(folder)
    return programs


def _elf(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _linked(program: str) -> List[str]:
    """Return the libraries that the loader takes for a program, and the loader itself."""
    return _LIBRARY.findall(child.run(["ldd", program], 30)["stdout"])
