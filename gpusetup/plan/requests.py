"""Hosts and requests: from facts and settings to a request for the resolver, and from a request to a stand-in host."""

import re
from typing import Literal

import msgspec

from gpusetup.components.base import brought_driver, working_driver
from gpusetup.components.driver.modules import other_way
from gpusetup.components.parsing import file_source
from gpusetup.components.python.requirements import adopted_python, installed_version
from gpusetup.components.record import record_of
from gpusetup.components.vgpu import brings_guest_driver
from gpusetup.errors import shipped
from gpusetup.matrix.gpus import find_gpu, gpu_by_id
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.matrix.systems import by_id, codename_of
from gpusetup.model.facts import HostFacts, Python
from gpusetup.model.facts_machine import Gpu, Storage
from gpusetup.model.request import DEFAULT_COMPONENTS, DriverCandidate, LibraryCandidates, Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import exact_requirements

_RUNTIME_WHEELS = (
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu13",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime-cu11",
)


def request_for(
    facts: HostFacts,
    settings: Settings,
    candidates: tuple[DriverCandidate, ...] | None = None,
    libraries: tuple[LibraryCandidates, ...] = (),
    *,
    pythons: tuple[str, ...] | None = None,
) -> Request:
    """Return a host's request; hosts with equal requests get the same answer."""
    moves = other_way(facts, settings)
    driver = None if moves or (settings.upgrade and brought_driver(facts)) else working_driver(facts)
    adopted = adopted_python(facts, settings)
    arch: Literal["x86_64", "aarch64"] | None = (
        "aarch64" if facts.arch == "aarch64" else "x86_64" if facts.arch == "x86_64" else None
    )
    wishes = _requirements(settings, adopted)
    file = file_source(settings.source)
    if moves:
        wishes = _same_driver(wishes, facts, candidates)
    elif file is not None and file.version:
        wishes = _this_driver(wishes, file.version)
    return Request(
        requirements=wishes,
        gpus=tuple(sorted({gpu.pci_id for gpu in facts.gpus})),
        gpu_count=len(facts.gpus),
        os=facts.os.label,
        arch=arch,
        installed_driver=driver,
        installed_module=facts.driver.flavour if driver and facts.driver else None,
        recorded=() if settings.upgrade else on_record(facts),
        driver_candidates=candidates,
        library_candidates=libraries,
        wheels_only=_without_libraries(settings) or settings.cuda_from == "wheels",
        pythons=pythons,
        vgpu_guest=facts.vgpu_guest and not brings_guest_driver(settings),
        driver_elsewhere=None if facts.simulated else facts.virtualisation.driver_refused,
        native=settings.native,
        forward=settings.forward,
        allow_vulnerable=settings.allow_vulnerable,
        policy=settings.policy,
    )


def _without_libraries(settings: Settings) -> bool:
    file = file_source(settings.source)
    return settings.source == "distro" or (file is not None and file.kind == "runfile")


def on_record(facts: HostFacts) -> tuple[Requirement, ...]:
    """Return the versions of the last finished apply, except the driver: the working one counts, not the record."""
    lock = record_of(facts).lock
    wanted = exact_requirements(lock.stack) if lock.stack is not None and not lock.unread else ()
    return tuple(item for item in wanted if item.component != "driver")


def _this_driver(requirements: tuple[Requirement, ...], version: str) -> tuple[Requirement, ...]:
    """Return requirements with the driver of the named file, so that another working driver is not kept."""
    asked = requirements or tuple(Requirement(component=name) for name in DEFAULT_COMPONENTS)
    named = next((item for item in asked if item.component == "driver"), None)
    if named is not None and (named.specifier or named.latest):
        return requirements
    others = tuple(item for item in asked if item.component != "driver")
    return (*others, Requirement(component="driver", specifier=f"=={version}"))


def _same_driver(
    requirements: tuple[Requirement, ...], facts: HostFacts, candidates: tuple[DriverCandidate, ...] | None
) -> tuple[Requirement, ...]:
    """Return requirements with the installed driver version, if the new way of modules offers it."""
    version = working_driver(facts)
    if version is None or all(item.version != version for item in candidates or ()):
        return requirements
    return _this_driver(requirements, version)


def _requirements(settings: Settings, adopted: Python | None) -> tuple[Requirement, ...]:
    if adopted is None:
        return settings.requirements
    asked = settings.requirements or tuple(Requirement(component=name) for name in DEFAULT_COMPONENTS)
    pinned = []
    for requirement in asked:
        if requirement.component in {"cuda", "cudnn", "nccl"}:
            # In an adopted interpreter these are wheels, and the installed ones count.
            continue
        version = installed_version(adopted, requirement.component)
        if version is None or requirement.specifier:
            pinned.append(requirement)
        else:
            number, _, variant = version.partition("+")
            known = variant if requirement.component == "torch" and variant.startswith("cu") else ""
            pinned.append(Requirement(component=requirement.component, specifier=f"=={number}", variant=known))
    runtime = next((adopted.packages[name] for name in _RUNTIME_WHEELS if name in adopted.packages), None)
    if runtime is not None:
        minor = ".".join(runtime.split(".")[:2])
        pinned.append(Requirement(component="cuda", specifier=f"=={minor}.*"))
    if not any(item.component == "python" for item in pinned):
        pinned.append(Requirement(component="python", specifier=f"=={adopted.version}"))
    return tuple(pinned)


UNKNOWN_KERNEL = "unknown"
_DEBIAN_LIKE = ("debian", "ubuntu")
_SUSE_LIKE = ("sles", "opensuse")


def described_host(request: Request) -> HostFacts:
    """Return facts with the distribution and CPU of a request, and nothing else."""
    label = request.os or ""
    match = re.fullmatch(r"([a-z-]+)([\d.]*)", label)
    name, version = match.groups() if match else ("", "")
    family = "debian" if name in _DEBIAN_LIKE else "suse" if name.startswith(_SUSE_LIKE) else "redhat"
    codename = codename_of(by_id(load_matrix(), label))
    archive = [codename, f"{codename}-updates", f"{codename}-security"] if codename else []
    document = msgspec.json.decode(shipped("plan/data/described.json")) | {
        "os": {"id": name, "version_id": version, "codename": codename, "name": label, "family": family},
        "arch": request.arch or "x86_64",
        "kernel": {"running": UNKNOWN_KERNEL, "next": UNKNOWN_KERNEL, "next_basis": "not a host"},
        "packages": {
            "manager": {"debian": "apt", "suse": "zypper"}.get(family, "dnf"),
            "automatic_upgrades": {"enabled": False, "excludes_nvidia": False},
            "sources": [{"file": "", "uri": "", "suites": [suite], "components": ["main"]} for suite in archive],
        },
    }
    return msgspec.convert(document, HostFacts)


def as_delivered(host: HostFacts) -> HostFacts:
    """Return a host as before gpusetup: its hardware, kernel, Pythons, runtimes and somebody else's driver.

    Without what gpusetup installed, and without passing states: a full disk, a running program, a broken database.
    """
    bare = described_host(Request(os=host.os.label, arch="aarch64" if host.arch == "aarch64" else "x86_64"))
    kept = {
        name: getattr(host, name)
        for name in (
            "simulated", "os", "kernel", "gpus", "nvswitch", "secure_boot", "firmware", "virtualisation", "rdma",
            "containers", "display", "pythons", "interpreter",
        )
    }  # fmt: skip
    if not brought_driver(host):
        kept |= {"driver": host.driver, "smi": host.smi, "dkms": host.dkms}
        kept["services"] = {name: unit for name, unit in host.services.items() if name == "gridd"}
    if "python3-venv" in record_of(host).requested:  # which the distribution's Pythons did not have before
        kept["pythons"] = tuple(
            msgspec.structs.replace(one, ensurepip=one.ensurepip and not one.path.startswith("/usr/bin/"))
            for one in host.pythons
        )
    if host.storage is not None:
        kept["storage"] = Storage(p2pdma=host.storage.p2pdma)
    return msgspec.structs.replace(bare, **kept)


def with_gpus_of(facts: HostFacts, request: Request, matrix: Matrix) -> HostFacts:
    """Return a host without GPUs with those of a request: an image is made for them."""
    if facts.gpus:
        return facts
    gpus = tuple(_described_gpu(text, matrix) for text in request.gpus)
    return msgspec.structs.replace(facts, gpus=gpus)


def _described_gpu(text: str, matrix: Matrix) -> Gpu:
    names = find_gpu(matrix, text).names
    product = next(gpu for gpu in matrix.gpus.gpus if gpu.name in names)
    pci_id = text if gpu_by_id(matrix, text) else next(iter(product.ids), text)
    return Gpu(
        address="", pci_id=pci_id, subsystem="", kind="0302", name=product.name, arch=product.arch,
        compute_capability=product.cc, bound=None,
    )  # fmt: skip
