#!/usr/bin/python
"""Ansible module and program: tell what a host is, as far as a GPU stack cares. One round trip, nothing is changed."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: gpu_facts
short_description: Tell what a host is, as far as an NVIDIA GPU stack cares
description:
  - Reads GPUs on PCI (no driver needed), NVSwitch, operating system, kernels, Secure Boot, nouveau, drivers of every origin,
    CUDA, cuDNN, NCCL, containers, packages, candidates in the configured repositories, disks, Python and virtualisation.
  - Changes nothing; runs in check mode as always. Each external command has a deadline, so a broken driver cannot hang it.
  - What could not be read is listed with the reason in C(unreadable).
options:
  simulated_root:
    description:
      - A folder on the host that holds a captured machine. PCI devices, virtualisation, firmware and the kernel to build for
        are taken from it, everything else from the host itself; the answer then says C(simulated=true).
    type: path
  candidates:
    description: Also ask the package manager's local indexes for the packages that it could install.
    type: bool
    default: true
  record:
    description: Also return a redacted capture of the host (see C(capture)).
    type: bool
    default: false
  symptoms:
    description:
      - Also return what C(gpusetup doctor) asks beside the facts (the kernel's messages, logs of module builds, device files,
        the loader's choices, Python environments, the environment's GPU part), without passwords, tokens and keys.
    type: bool
    default: false
  pythons:
    description: Interpreters outside the usual places to look at too.
    type: list
    elements: path
author: The gpusetup authors
"""

EXAMPLES = r"""
- name: Look at the host
  gpu_facts:
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
  description: What a diagnosis asks of the host beside its facts.
  returned: when symptoms is true
  type: dict
"""

import json
import os
import sys

try:
    from ansible.module_utils import gpu_probe
    from ansible.module_utils.gpu_probe import capture as gpu_capture, symptoms as gpu_symptoms
except ImportError:
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "module_utils"))
    import gpu_probe
    from gpu_probe import capture as gpu_capture, symptoms as gpu_symptoms


def look(root="/", simulated_root=None, candidates=True, record=False, pythons=(), symptoms=False):
    """Return (facts, capture or None, symptoms or None) of a machine, a folder that stands in for one, or a simulated host."""
    host = gpu_probe.Recorder() if record else gpu_probe.open_host(root)
    simulated = gpu_probe.FolderHost(simulated_root) if simulated_root else None
    facts = gpu_probe.collect(host, simulated, candidates, pythons)
    seen = gpu_symptoms.collect(host, facts, gpu_symptoms.surroundings(host)) if symptoms else None
    return facts, gpu_capture.pack(host) if record else None, seen


def run_module():
    """Answer Ansible."""
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(
        argument_spec={
            "simulated_root": {"type": "path"},
            "candidates": {"type": "bool", "default": True},
            "record": {"type": "bool", "default": False},
            "symptoms": {"type": "bool", "default": False},
            "pythons": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    simulated_root = module.params["simulated_root"] or None
    if simulated_root and not os.path.isdir(os.path.join(simulated_root, "sys")):
        module.fail_json(msg="simulated_root {} holds no captured machine (it has no folder sys)".format(simulated_root))
    if simulated_root and module.params["record"]:
        module.fail_json(msg="a simulated host cannot be captured: its devices are a capture already")
    given = dict((name, module.params[name]) for name in ("candidates", "record", "pythons", "symptoms"))
    facts, capture, symptoms = look("/", simulated_root, **given)
    result = {"changed": False, "facts": facts}
    if capture is not None:
        result["capture"] = capture
    if symptoms is not None:
        result["symptoms"] = symptoms
    module.exit_json(**result)


def run_program(arguments):
    """Print the facts as JSON: gpu_facts.py [--root DIR] [--simulated-root DIR] [--no-candidates]."""
    import argparse

    parser = argparse.ArgumentParser(description="Print what this host, or a folder that stands in for one, is.")
    parser.add_argument("--root", default="/", help="a folder that holds a captured machine")
    parser.add_argument("--simulated-root", default=None, help="take the machine from this capture, the rest from the host")
    parser.add_argument("--no-candidates", action="store_true", help="do not ask the package manager what it could install")
    options = parser.parse_args(arguments)
    if not os.path.isdir(options.root):
        parser.error("no such folder: " + options.root)
    facts, _capture, _symptoms = look(options.root, options.simulated_root, not options.no_candidates)
    print(json.dumps(facts, indent=2, sort_keys=True))


if __name__ == "__main__":
    # Ansible runs a module as part of its package; a person runs the file.
    if __package__:
        run_module()
    else:
        run_program(sys.argv[1:])
