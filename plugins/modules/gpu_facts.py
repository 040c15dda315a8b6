#!/usr/bin/python
"""Ansible module: collect the facts of a host that matter to a GPU stack. One round trip, nothing is changed."""

DOCUMENTATION = r"""
module: gpu_facts
short_description: Collect the facts of a host that matter to an NVIDIA GPU stack
description:
  - Reads GPUs on PCI (no driver needed), NVSwitch, operating system, kernels, Secure Boot, nouveau, drivers of every
    origin, CUDA, cuDNN, NCCL, containers, packages, candidates in the configured repositories, disks, Python and
    virtualisation.
  - Changes nothing; runs in check mode as always. Each external command has a deadline, so a broken driver cannot hang
    it.
  - What could not be read is listed with the reason in C(unreadable).
extends_documentation_fragment: gpusetup.stack.options.gpu_facts
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look at the host
  gpusetup.stack.gpu_facts:
  register: __gpu_facts
"""

RETURN = r"""
facts:
  description: The host's facts, as in the document gpusetup/facts/1 under C(hosts.NAME).
  returned: always
  type: dict
capture:
  description: Files, links and observations of a redacted miniature root; bytes are base64.
  returned: when record is true
  type: dict
symptoms:
  description: What a diagnosis needs besides the facts.
  returned: when symptoms is true
  type: dict
"""

import os
from typing import Any, Dict, List, Optional, Tuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import capture as gpu_capture
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import facts as gpu_facts
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import symptoms as gpu_symptoms
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost, LiveHost, Recorder


def look(
    simulated_root: Optional[str], candidates: bool, record: bool, pythons: List[str], symptoms: bool
) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]], Optional[Dict[str, Any]]]:
    """Return (facts, capture or None, symptoms or None) of this host, or of one whose devices come from a capture."""
    host = Recorder() if record else LiveHost()
    simulated = FolderHost(simulated_root) if simulated_root else None
    facts = gpu_facts.collect(host, simulated, candidates, pythons)
    seen = gpu_symptoms.collect(host, facts, gpu_symptoms.surroundings(host)) if symptoms else None
    return facts, gpu_capture.pack(host) if isinstance(host, Recorder) else None, seen


SPEC = {
    "simulated_root": params.text(
        "A folder on the host that holds a captured machine. PCI devices, virtualisation, firmware and "
        "the kernel to build for are taken from it, everything else from the host itself; the answer then"
        " says C(simulated=true).",
        None,
        type="path",
    ),
    "candidates": params.flag(
        "Also ask the package manager's local indexes for the packages that it could install.", True
    ),
    "record": params.flag("Also return a redacted capture of the host (see C(capture))."),
    "symptoms": params.flag(
        "Also return what C(gpusetup doctor) asks beside the facts (the kernel's messages, logs of module"
        " builds, device files, the loader's choices, Python environments, the environment's GPU part), "
        "without passwords, tokens and keys."
    ),
    "pythons": params.texts("Interpreters outside the usual places to look at too.", elements="path"),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC, host=False), supports_check_mode=True)
    simulated_root = module.params["simulated_root"] or None
    if simulated_root and not os.path.isdir(os.path.join(simulated_root, "sys")):
        module.fail_json(msg=f"simulated_root {simulated_root} holds no captured machine (it has no folder sys)")
    if simulated_root and module.params["record"]:
        module.fail_json(msg="a simulated host cannot be captured: its devices are a capture already")
    given = {name: module.params[name] for name in ("candidates", "record", "pythons", "symptoms")}
    facts, capture, symptoms = look(simulated_root, **given)
    result = {"changed": False, "facts": facts}
    if capture is not None:
        result["capture"] = capture
    if symptoms is not None:
        result["symptoms"] = symptoms
    module.exit_json(**result)


if __name__ == "__main__":
    main()
