"""Reads facts from this machine, a capture, a probe's answer or a file, and names GPUs by their PCI ids."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from gpusetup.components.record import read_record
from gpusetup.content import host_code
from gpusetup.drive.inventory import check_host_name
from gpusetup.errors import BadInputError, wrong_field
from gpusetup.matrix.gpus import gpu_by_id
from gpusetup.matrix.load import Matrix
from gpusetup.model import Reading, must_be
from gpusetup.model.facts import LOCAL_NAME, SCHEMA, Facts, HostFacts, Unreadable
from gpusetup.model.facts_machine import Boot, Gpu

STATE_FILE = "/var/lib/gpusetup/state.json"


class Product(Struct, frozen=True, kw_only=True):
    """The matrix's data of a GPU; a field is None if products with the same id differ in it."""

    name: str
    arch: str | None
    compute_capability: str | None
    vgpu: bool = False
    """Whether only vGPUs in guests have this subsystem id."""


Lookup: TypeAlias = Callable[[str, str], Product | None]
"""Gets a PCI id and a subsystem id."""


def this_machine(lookup: Lookup | None = None, *, candidates: bool = True) -> HostFacts:
    """Return the facts of this machine."""
    here = host_code("gpu_probe.host").open_host("/")
    return from_probe(host_code("gpu_probe.facts").collect(here, None, candidates), LOCAL_NAME, lookup)


def this_boot() -> Boot:
    """Return the boot id and boot time of this machine."""
    return msgspec.convert(host_code("gpu_probe.system").boot(host_code("gpu_probe.host").open_host("/")), Boot)


def captured(root: Path, lookup: Lookup | None = None, *, name: str = LOCAL_NAME) -> HostFacts:
    """Return the facts of a folder: a capture, or any root file system."""
    return from_probe(host_code("gpu_probe.facts").collect(open_captured(root)), name, lookup)


def open_captured(root: Path) -> Any:
    """Open a capture or root file system as a host; raise if the folder is neither."""
    if not root.is_dir():
        raise BadInputError("GS-301", f"no captured machine at {root}: the folder does not exist", path=str(root))
    if not any((root / place).exists() for place in ("etc/os-release", "usr/lib/os-release", "sys", "proc")):
        raise BadInputError(
            "GS-301", f"{root} is not a captured machine: it has no os-release, no sys/ and no proc/", path=str(root)
        )
    try:
        return host_code("gpu_probe.host").open_host(str(root))
    except ValueError as error:
        raise BadInputError(
            "GS-302", f"the capture's observations cannot be read: {error}", path=str(root / "gpusetup-capture.json")
        ) from error


def capture_this_machine(folder: Path, lookup: Lookup | None = None, *, candidates: bool = True) -> HostFacts:
    """Return the facts of this machine, and write all that the probe read, redacted, as a miniature root."""
    _refuse_occupied(folder)
    capture = host_code("gpu_probe.capture")
    host = host_code("gpu_probe.host").Recorder()
    facts = from_probe(host_code("gpu_probe.facts").collect(host, None, candidates), LOCAL_NAME, lookup)
    write_capture(capture.pack(host), folder)
    return facts


def write_capture(data: dict[str, Any], folder: Path) -> None:
    """Write a recording probe's data as a miniature root."""
    _refuse_occupied(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        host_code("gpu_probe.capture").write(data, str(folder))
    except OSError as error:
        raise BadInputError(
            "GS-303", f"cannot write the capture: {error.strerror}", path=str(error.filename or folder)
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise BadInputError("GS-304", f"a host sent an invalid capture: {error}", path=str(folder)) from error


def _refuse_occupied(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError("GS-303", f"{folder} is not empty; a capture needs a folder of its own", path=str(folder))


def from_probe(answer: object, name: str, lookup: Lookup | None = None) -> HostFacts:
    """Return a probe's answer as facts, with names and properties of GPUs from the matrix."""
    try:
        host = _with_record(answer)
    except msgspec.ValidationError as error:
        message, path = wrong_field(error)
        raise BadInputError(
            "GS-304", f"the facts of {name} cannot be used: {message}", path=f"$.hosts[{name!r}]{path[1:]}"
        ) from error
    return name_gpus(host, lookup)


def read_facts(path: Path) -> Facts:
    """Read a document that `gpusetup facts --format json` wrote."""
    with Reading(path, ("GS-306", f"the facts in {path} cannot be used"), ("GS-305", "cannot read the facts")):
        document = msgspec.json.decode(path.read_bytes())
        must_be(document, path, ("a facts document", SCHEMA, "GS-306"))
        facts = _with_records(document)
    for name in (*facts.hosts, *facts.failures):
        if problem := check_host_name(name):
            text = f"the facts in {path} contain an invalid host name: {name!r}"
            raise BadInputError("GS-306", text, path=f"{path}:$.hosts", note=problem)
    return facts


def _with_record(answer: object) -> HostFacts:
    """Read one host; its record may be of another version of gpusetup."""
    if not isinstance(answer, dict) or answer.get("state") is None:
        return msgspec.convert(answer, HostFacts)
    state, reason = read_record(answer["state"])
    host = msgspec.convert({**answer, "state": None}, HostFacts)
    unreadable = (*host.unreadable, *([Unreadable(field="state", reason=f"{STATE_FILE}: {reason}")] if reason else []))
    return msgspec.structs.replace(host, state=state, unreadable=unreadable)


def _with_records(document: Any) -> Facts:
    """Read a document of hosts; errors name the field by its path."""
    hosts = document.get("hosts") if isinstance(document, dict) else None
    if not isinstance(hosts, dict):
        return msgspec.convert(document, Facts)
    without = {name: {**host, "state": None} if isinstance(host, dict) else host for name, host in hosts.items()}
    facts = msgspec.convert({**document, "hosts": without}, Facts)
    return msgspec.structs.replace(facts, hosts={name: _with_record(host) for name, host in hosts.items()})


def name_gpus(host: HostFacts, lookup: Lookup | None) -> HostFacts:
    """Return the host with named GPUs: from the lookup, else as nvidia-smi reports them."""
    named = tuple(_named(gpu, lookup(gpu.pci_id, gpu.subsystem) if lookup else None) for gpu in host.gpus)
    return msgspec.structs.replace(host, gpus=named)


def _named(gpu: Gpu, product: Product | None) -> Gpu:
    if product is None:
        if gpu.name is not None:
            return gpu
        return msgspec.structs.replace(gpu, name=gpu.reported_name, compute_capability=gpu.reported_capability)
    return msgspec.structs.replace(
        gpu,
        name=product.name,
        arch=product.arch,
        compute_capability=product.compute_capability or gpu.reported_capability,
        vgpu=True if gpu.vgpu is None and product.vgpu else gpu.vgpu,
    )


def matrix_lookup(matrix: Matrix) -> Lookup:
    """Return a lookup in a matrix."""

    def lookup(pci_id: str, subsystem: str) -> Product | None:
        found = gpu_by_id(matrix, pci_id, subsystem)
        if not found:
            return None
        arches, capabilities = {gpu.arch for gpu in found}, {gpu.cc for gpu in found}
        return Product(
            name=" or ".join(gpu.name for gpu in found),
            arch=arches.pop() if len(arches) == 1 else None,
            compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
            vgpu=subsystem in matrix.vgpu.guest_subsystems.get(pci_id, ()),
        )

    return lookup
