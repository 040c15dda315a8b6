"""Whether containers reach the GPU."""

from __future__ import annotations

from gpusetup.doctor.look import Look, Outcome, cause, fine, notice

__all__ = ["runtimes"]


def runtimes(look: Look) -> Outcome:
    """Look at the toolkit, the runtimes that are told of it, and whether CDI files name the driver that is there."""
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
        return notice(name, f"{', '.join(deaf)} is not told of the toolkit", f"toolkit {containers.toolkit}")
    return fine(f"{names}; toolkit {containers.toolkit}")
