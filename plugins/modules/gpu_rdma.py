#!/usr/bin/python
"""Ansible module: RDMA, and how adapters and drives reach a GPU's memory."""

DOCUMENTATION = r"""
module: gpu_rdma
short_description: Configure RDMA, GPUDirect RDMA and GPUDirect Storage
description:
  - Lifts the limit of locked memory, loads modules now and at every boot, and for PCI peer-to-peer DMA writes module
    options, rebuilds the initramfs and enables it in C(/etc/cufile.json).
  - A module that the kernel rejects is reported, but not a failure.
  - If nothing is requested, the earlier state is restored.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_rdma]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: The distribution's RDMA stack, with IP over InfiniBand
  gpusetup.stack.gpu_rdma:
    stack: inbox
    modules: [ib_ipoib]
"""

RETURN = r"""
pending:
  description: Modules that could not be loaded now, with the kernel's message.
  returned: always
  type: list
  elements: str
reboot:
  description: Why a reboot is needed; empty when none is.
  returned: always
  type: list
  elements: str
"""

import os
from typing import Any, Dict, List, Sequence

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, followers, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.kernel_module import PARAMETERS as PARAMS
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.kernel_module import configuration
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import gpudirect

MODULES = "/proc/modules"
BUILT_IN = "/lib/modules/{}/modules.builtin"


def configure(stack: str, modules: Sequence[str], p2pdma: bool, ledger: Ledger, machine: Machine) -> Dict[str, Any]:
    """Apply the settings; return {"changed", "pending", "reboot"}."""
    env = process.environment()
    configuration({}, modules)  # fails on invalid module names
    changed = ledger.arrange(gpudirect.files(stack, modules, p2pdma))
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
        return ledger.arrange({gpudirect.CUFILE: None})
    text = gpudirect.switched_on(files.read_text(gpudirect.CUFILE))
    if text is None:
        raise HostFailure(
            "GS-440", "cuFile's settings cannot be read", gpudirect.CUFILE, "it is not the JSON that NVIDIA ships",
            'fix it, or write "use_pci_p2pdma": true into its "properties" yourself',
        )  # fmt: skip
    return ledger.arrange({gpudirect.CUFILE: text})


def _load(modules: Sequence[str], env: Dict[str, str]) -> List[str]:
    """Load missing modules; report those that the kernel refuses now, which are tried again at every boot."""
    pending = []
    for name in modules:
        if _is_there(name):
            continue
        _code, _out, error = process.output(["modprobe", name], env, 60)
        if not _is_there(name):
            said = error.strip().splitlines()
            pending.append(f"{name} is not loaded: {said[-1] if said else 'it waits for the next boot'}")
    return pending


def _is_there(name: str) -> bool:
    """Return whether the running kernel has a module, loaded or built in; its name may have hyphens."""
    names = [line.split(" ", 1)[0] for line in (files.read_text(MODULES) or "").splitlines()]
    built_in = files.read_text(BUILT_IN.format(os.uname()[2])) or ""
    names += [os.path.basename(path).partition(".ko")[0] for path in built_in.splitlines()]
    return name.replace("-", "_") in {found.replace("-", "_") for found in names}


def _waits() -> List[str]:
    text = files.read_text(PARAMS)
    if text is None:
        return []  # the driver's role reports that it is not loaded
    registry = next((line for line in text.splitlines() if line.startswith("RegistryDwords:")), "")
    return gpudirect.waits((files.read_text(gpudirect.MULTIPATH) or "").strip(), registry)


SPEC = {
    "stack": params.choice("Whose RDMA stack the packages are of.", ["none", "inbox", "doca"], "none"),
    "modules": params.texts("Modules to load now and at every boot."),
    "p2pdma": params.flag("Whether NVMe drives are to reach GPU memory by PCI peer-to-peer DMA."),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        machine = Machine(request["simulated_root"])
        wanted = module.params
        result = configure(wanted["stack"], wanted["modules"], wanted["p2pdma"], ledger, machine)
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
