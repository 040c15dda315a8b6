"""RDMA and GPUDirect on a host: limits, modules to load at boot, module options, cuFile's settings."""

from typing import Any, Dict, List, Sequence

from ..gpu_judge import gpudirect
from . import files, followers, process
from .failure import HostFailure
from .kernel_module import PARAMETERS as PARAMS
from .kernel_module import configuration
from .ledger import Ledger
from .machine import Machine

MODULES = "/proc/modules"


def configure(stack: str, modules: Sequence[str], p2pdma: bool, ledger: Ledger, machine: Machine) -> Dict[str, Any]:
    """Apply the settings; return {"changed", "pending", "reboot"}."""
    env = process.environment()
    configuration({}, modules)  # fails on invalid module names
    changed = []
    for path, text in gpudirect.files(stack, modules, p2pdma).items():
        if ledger.write(path, text) if text is not None else ledger.restore(path):
            changed.append(path)
    changed += _cufile(ledger, p2pdma)
    gone = gpudirect.OPTIONS in changed and not p2pdma
    kernels = machine.wanted_kernels([])  # their images contain NVMe's module
    images = [followers.BootImage(kernel, env, forgets=gone) for kernel in kernels]
    changed += followers.settle([*images, followers.LockedMemory(env)], ledger.check)
    pending = [] if ledger.check else _load(modules, env)
    if machine.simulated is not None:  # it has no kernel of its own
        pending = []
    if stack not in ("", "none") and not ledger.check:
        pending += [
            f"`systemctl restart {name}` lifts its limit of locked memory, and may stop its programs"
            for name in followers.with_old_limit(env)
        ]
    return {"changed": bool(changed), "pending": pending, "reboot": _waits() if p2pdma else []}


def _cufile(ledger: Ledger, p2pdma: bool) -> List[str]:
    if not p2pdma:
        return [gpudirect.CUFILE] if ledger.restore(gpudirect.CUFILE) else []
    text = gpudirect.switched_on(files.read_text(gpudirect.CUFILE))
    if text is None:
        raise HostFailure(
            "GS-440", "cuFile's settings cannot be read", gpudirect.CUFILE, "it is not the JSON that NVIDIA ships",
            'fix it, or write "use_pci_p2pdma": true into its "properties" yourself',
        )  # fmt: skip
    return [gpudirect.CUFILE] if ledger.write(gpudirect.CUFILE, text) else []


def _load(modules: Sequence[str], env: Dict[str, str]) -> List[str]:
    """Load missing modules; report those that the kernel refuses now, which are tried again at every boot."""
    pending = []
    for name in modules:
        if name in _loaded():
            continue
        _code, _out, error = process.output(["modprobe", name], env, 60)
        if name not in _loaded():
            said = error.strip().splitlines()
            pending.append(f"{name} is not loaded: {said[-1] if said else 'it waits for the next boot'}")
    return pending


def _loaded() -> List[str]:
    return [line.split(" ", 1)[0] for line in (files.read_text(MODULES) or "").splitlines()]


def _waits() -> List[str]:
    text = files.read_text(PARAMS)
    if text is None:
        return []  # the driver's role reports that it is not loaded
    registry = next((line for line in text.splitlines() if line.startswith("RegistryDwords:")), "")
    return gpudirect.waits((files.read_text(gpudirect.MULTIPATH) or "").strip(), registry)
