"""Build the facts of a host: one document from all parts of the probe."""

import threading
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import (
    candidates,
    containers,
    drivers,
    kernels,
    libraries,
    licence,
    packages,
    pci,
    rdma,
    record,
    services,
    sessions,
    smi,
    system,
    virtualisation,
)
from .host import LiveHost


def collect(
    host: LiveHost,
    simulated: Optional[LiveHost] = None,
    with_candidates: bool = True,
    pythons: Sequence[str] = (),
    state_file: str = record.STATE_FILE,
) -> Dict[str, Any]:
    """Return the facts of a host as plain data.

    `simulated` is a captured machine (a FolderHost) whose PCI devices, virtualisation and firmware stand in for this
    host's own, and which says what kernel runs; everything else still comes from the host.
    """
    machine = simulated or host
    os_release = system.os_release(host)
    arch = system.machine(host)
    triplet = "aarch64-linux-gnu" if arch == "aarch64" else "x86_64-linux-gnu"
    document = kernels.driver_state(host, simulated)
    kernel, loaded = document["kernel"], document["modules"]
    waiting = _Waiting()
    recorded = record.read(host, state_file)
    installed = packages.collect(host, os_release["family"], record.names(recorded))
    if with_candidates:
        waiting.start("candidates", lambda: candidates.collect(host, installed["manager"], kernel["next"]))
        waiting.start("work", lambda: sessions.work(host))
    waiting.start("nouveau", lambda: drivers.nouveau(host, kernel, loaded))
    # A simulated machine's driver is in no list of the kernel; recorded MIG layouts show that nvidia-smi answers.
    nvidia_loaded = "nvidia" in loaded or host.exists("/dev/dxg") or bool((recorded or {}).get("mig"))
    waiting.start("smi", lambda: smi.collect(host, nvidia_loaded))
    devices = pci.collect(machine)
    several = len(devices["gpus"]) > 1
    waiting.start("nvlinks", lambda: smi.nvlinks(host, nvidia_loaded) if several else {})
    switch = pci.nvswitch(machine, devices["nvswitches"])
    managers = switch["managers"] if switch else ()
    waiting.start("rdma", lambda: rdma.collect(host, machine, managers))
    waiting.start("services", lambda: services.collect(host, record.units(recorded)))
    kind = virtualisation.collect(machine)
    waiting.start("cloud", lambda: virtualisation.metadata(machine, kind["cloud"]))
    more = {
        "os": os_release,
        "arch": arch,
        "boot": system.boot(host),
        "virtualisation": kind,
        "settings": pci.settings(machine),
        "nvswitch": switch,
        "storage": rdma.storage(host),
        "driver": drivers.collect(host, kernel, installed["installed"], triplet),
        "dkms": drivers.dkms(host),
        "cuda": libraries.cuda(host),
        "cudnn": libraries.cudnn(host, installed["installed"], triplet),
        "nccl": libraries.nccl(host, installed["installed"], triplet),
        "containers": containers.collect(host, installed["installed"]),
        "licence": licence.collect(host),
        "display": sessions.display(machine, devices["gpus"], devices["other_displays"], kind["laptop"]),
        "pythons": system.pythons(host, pythons),
        "interpreter": system.running_interpreter(host),
        "disks": system.disks(host),
        "state": recorded,
        "packages": {
            "manager": installed["manager"],
            "installed": {
                name: item["version"] for name, item in installed["installed"].items() if item["state"] == "installed"
            },
            "held": installed["held"],
            "problems": installed["problems"],
            "lock": host.observe("package_lock", packages.lock_holder),
            "automatic_upgrades": packages.automatic_upgrades(host),
            "sources": packages.sources(host),
            "disabled": packages.disabled_sources(host),
        },
    }
    document.update(more)
    answers = waiting.join()
    document["packages"]["candidates"] = answers.get("candidates")
    document["work"] = answers.get("work", [])
    document["nouveau"] = answers["nouveau"]
    document["services"] = answers["services"]
    document["rdma"] = answers["rdma"]
    document["virtualisation"].update(answers["cloud"])
    document["smi"] = answers["smi"]
    document["gpus"] = [
        dict(gpu, way=pci.way_to(machine, gpu["address"]), nvlinks=answers["nvlinks"].get(gpu["uuid"]))
        for gpu in _with_smi(devices["gpus"], answers["smi"])
    ]
    if answers["smi"]:
        answers["smi"].pop("gpus")
    reasons = dict(host.unreadable, **(simulated.unreadable if simulated is not None else {}))
    document["unreadable"] = [{"field": field, "reason": reason} for field, reason in sorted(reasons.items())]
    return document


def _with_smi(gpus: List[Dict[str, Any]], told: Optional[Dict[str, Any]]) -> List[Dict[str, Any]]:
    names = "uuid reported_name memory_mib driver_version persistence mig mig_pending slices reported_capability fabric"
    empty = dict.fromkeys((*names.split(), "vbios", "inforom", "ecc", "power_limit"))
    by_address = told["gpus"] if told else {}
    return [dict(gpu, **by_address.get(gpu["address"], empty)) for gpu in gpus]


class _Waiting:
    """Runs parts of the probe that wait for other processes in parallel."""

    def __init__(self) -> None:
        self.threads: List[threading.Thread] = []
        self.answers: Dict[str, Any] = {}
        self.failures: List[Exception] = []

    def start(self, name: str, look: Callable[..., Any]) -> None:
        def answer() -> None:
            try:
                self.answers[name] = look()
            except Exception as error:  # noqa: BLE001 - handed on by join
                self.failures.append(error)

        thread = threading.Thread(target=answer, name=name)
        thread.daemon = True
        thread.start()
        self.threads.append(thread)

    def join(self) -> Dict[str, Any]:
        """Wait for all threads and return their answers; raise the first failure."""
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return self.answers
