"""GPU Operator values, node labels, a RuntimeClass, and a list of what host and operator would both do.

The operator's values apply to the whole cluster, so they disable a part only if every host already has it. Node labels
disable it on each such host.

A package for NodeWright (formerly NVIDIA Skyhook) or a DaemonSet brings nodes to a lock. NodeWright drains a node, runs
the package's steps and reboots. The package is a container image with `config.json`, the steps and a gpusetup bundle.
It changes only nodes labelled `gpusetup/lock` with the lock's digest, so that nobody changes a cluster by mistake.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpusetup import __version__
from gpusetup.components.record import record_of
from gpusetup.drive.causes import in_short
from gpusetup.model.facts import Containers, HostFacts, Service
from gpusetup.model.lock import Lock
from gpusetup_fleet.handover.files import rendered, yaml_text

_DEPLOY = "nvidia.com/gpu.deploy."
_RUNTIMES = ("containerd", "crio")
"""The container runtimes that kubelet uses."""
_HANDLER = "nvidia"


@dataclass(frozen=True, kw_only=True)
class Handover:
    """The content of the files, and notes for the administrator."""

    values: dict[str, Any]
    labels: dict[str, tuple[str, ...]]
    """By node."""
    toolkit: bool
    """Whether any host has the container toolkit, which a RuntimeClass needs."""
    twice: tuple[str, ...]
    """What host and operator would both do, and what prevents it."""
    warnings: tuple[str, ...]


def handover(hosts: Mapping[str, HostFacts]) -> Handover:
    """Return the operator's settings for these hosts, which are named like their nodes."""
    gpus = {name: facts for name, facts in hosts.items() if facts.gpus}
    driver = {name for name, facts in gpus.items() if (own := facts.driver) and (own.loaded or own.version)}
    toolkit = {name for name, facts in gpus.items() if _has_toolkit(facts.containers)}
    mig = {name for name, facts in gpus.items() if record_of(facts).mig.wanted}
    values: dict[str, Any] = {
        "driver": {"enabled": driver != set(gpus)},
        "toolkit": {"enabled": toolkit != set(gpus)},
        "mig": {"strategy": _strategy(gpus)},
    }
    if mig and mig == {name for name, facts in gpus.items() if any(gpu.mig for gpu in facts.gpus)}:
        values["migManager"] = {"enabled": False}
    version = _version(gpus)
    if values["driver"]["enabled"] and version:
        values["driver"]["version"] = version
    labels = {
        name: tuple(
            f"{_DEPLOY}{part}=false"
            for part, there in (("driver", driver), ("container-toolkit", toolkit), ("mig-manager", mig))
            if name in there
        )
        for name in gpus
    }
    return Handover(
        values=values,
        labels={name: found for name, found in labels.items() if found},
        toolkit=bool(toolkit),
        twice=tuple(_twice(gpus, driver, toolkit, mig)),
        warnings=tuple(_warnings(hosts, gpus, driver, toolkit)),
    )


def _has_toolkit(containers: Containers) -> bool:
    """Return whether the toolkit is installed and configured in one of kubelet's runtimes."""
    return bool(containers.toolkit) and any(name in containers.configured for name in _RUNTIMES)


def _version(gpus: Mapping[str, HostFacts]) -> str:
    """Return the installed driver version if all hosts agree: the operator must install the same."""
    found = {facts.driver.version for facts in gpus.values() if facts.driver is not None and facts.driver.version}
    return found.pop() or "" if len(found) == 1 else ""


def _strategy(gpus: Mapping[str, HostFacts]) -> str:
    """Return the MIG strategy: `single` if each host with MIG has one profile on all its GPUs, else `mixed`."""
    for facts in gpus.values():
        on = [gpu for gpu in facts.gpus if gpu.mig == "Enabled"]
        kinds = {device.profile for gpu in on if gpu.slices is not None for device in gpu.slices.devices}
        if on and (len(kinds) != 1 or len(on) != len(facts.gpus)):
            return "mixed"
    return "single"


def _twice(gpus: Mapping[str, HostFacts], driver: set[str], toolkit: set[str], mig: set[str]) -> Iterator[str]:
    if driver:
        off = "off in the values" if driver == set(gpus) else "off by the labels of these nodes"
        yield f"driver: {in_short(sorted(driver))} have one on the host; the operator's driver container is {off}"
    if toolkit:
        off = "off in the values" if toolkit == set(gpus) else "off by the labels of these nodes"
        yield f"container toolkit: {in_short(sorted(toolkit))} have it in containerd or CRI-O; the operator's is {off}"
        yield f"RuntimeClass {_HANDLER}: the operator makes its own; runtimeclass.yaml is for a cluster without it"
    if mig:
        yield f"MIG: gpusetup_mig cuts the GPUs of {in_short(sorted(mig))}; the operator's MIG manager is off there"
    watched = {name for name, facts in gpus.items() if _runs(facts.services, "dcgm")}
    if watched:
        yield (
            f"DCGM: nvidia-dcgm runs on {in_short(sorted(watched))}; two host engines do not share "
            "the profiling counters: stop it, or set dcgmExporter.enabled=false"
        )


def _runs(services: Mapping[str, Service], service: str) -> bool:
    return service in services and services[service].active == "active"


def _warnings(
    hosts: Mapping[str, HostFacts], gpus: Mapping[str, HostFacts], driver: set[str], toolkit: set[str]
) -> Iterator[str]:
    if not gpus:
        yield "no host has an NVIDIA GPU"
    elif len(gpus) < len(hosts):
        yield f"no NVIDIA GPU: {in_short(sorted(set(hosts) - set(gpus)))}"
    versions = {facts.driver.version for name, facts in gpus.items() if name in driver and facts.driver is not None}
    if len(versions) > 1:
        yield f"the drivers of these hosts differ: {', '.join(sorted(str(version) for version in versions))}"
    unloaded = {name for name in driver if (found := gpus[name].driver) is not None and found.loaded is None}
    if unloaded:
        yield f"the driver of {in_short(sorted(unloaded))} is installed and not loaded: reboot before the node joins"
    if driver and not toolkit:
        yield "no host has the container toolkit in containerd or CRI-O; gpusetup_containers=containerd brings it"


def kubernetes_files(found: Handover) -> dict[str, str]:
    """Return the files by name."""
    files = rendered("kubernetes", found=found, labels=sorted(found.labels.items()))
    unused = {
        name for name, used in (("label-nodes.sh", found.labels), ("runtimeclass.yaml", found.toolkit)) if not used
    }
    made = "# Written by gpusetup from the hosts' facts.\n"
    files["gpu-operator-values.yaml"] = yaml_text(found.values, made=made)
    return {name: text for name, text in files.items() if name not in unused}


def node_files(lock: Lock, text: str, first_stage: str) -> dict[str, str]:
    """Return the files that bring nodes to a lock, by name; `text` is the lock file's content."""
    files = rendered("node", version=__version__, label=lock.digest[:12], lock=text)
    return files | {"node/skyhook_dir/first-stage": first_stage}
