#!/usr/bin/python
"""Ansible module: look before touching."""

DOCUMENTATION = r"""
module: gpu_preview
short_description: Simulate a package transaction against repositories that are not configured yet
description:
  - Fetches the metadata of the wanted repositories, with signature checking, into a throw-away folder; nothing of the
    host's own package manager state is touched.
  - Looks the exact candidates up, simulates the exact transaction, and checks what else would stop it (half installed
    packages, locks, headers for the kernel that will run, space, transitional packages, conflicting sources, foreign
    holds).
  - Never changes anything, and problems of the host are returned as findings, not as failures; O(refuse=true) turns
    findings of level C(refuse) into a failure.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_preview]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look before touching
  gpusetup.stack.gpu_preview:
    manager: apt
    packages:
      - {name: nvidia-driver, version: "535.309.01-*"}
    sources: "{{ gpu_repo_sources }}"
  register: gpu_preview
"""

RETURN = r"""
findings:
  description: What was noticed, each with C(level) (refuse, warn, info), C(id), C(text), C(hint), C(reference).
  returned: always
  type: list
  elements: dict
refused:
  description: Whether a finding forbids the transaction.
  returned: always
  type: bool
transaction:
  description: C(install), C(upgrade), C(downgrade), C(remove), C(download_bytes), C(disk_bytes); null when nothing is
    to do.
  returned: always
  type: dict
candidates:
  description: Versions offered for each wanted package, newest first, with their origin.
  returned: always
  type: dict
fetched:
  description: Folder with the package lists, which deletes itself after some minutes.
  returned: with O(keep), when repositories were asked and nothing was refused
  type: str
resolved:
  description: The exact version of each wanted package.
  returned: when a transaction is needed
  type: dict
kernels:
  description: For each kernel whether headers are there or arrive and whether a module is built.
  returned: always
  type: list
  elements: dict
space:
  description: Per file system, bytes needed and free.
  returned: when a transaction is needed
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import failure, params, preview

SPEC = {
    **params.TRANSACTION,
    **params.SOURCES,
    "refuse": params.flag("Fail when there is a finding of level C(refuse)."),
    "timeout": params.number("Seconds that the repositories have to answer.", 300),
    "monitoring": params.table(
        "The wanted exporter, with the options of M(gpusetup.stack.gpu_monitoring); its port and secrets are checked.",
        default={},
    ),
    "desktops": params.table("The wanted desktops, with the options of M(gpusetup.stack.gpu_desktops).", default={}),
    "space_mb": params.table("Megabytes that must stay free, by path.", default={}),
    "python": params.text("Interpreter that must be there."),
    "candidates": params.texts(
        "Patterns of names; answered in C(candidates) with every version that the wanted repositories offer."
    ),
    "fetched": params.text(
        "C(fetched) of an earlier answer. Its package lists are taken over instead of fetched, if the "
        "repositories are the same."
    ),
    "keep": params.flag("Keep the package lists for what follows, another look or the transaction."),
    "older": params.flag("Take repositories whose signed lists are older than those that this host has used."),
    "runfile": params.text("Path of a C(.run) installer that the driver is to come from; it is proven, and not run."),
    "runfile_sha256": params.text("Digest that this file must have."),
}


def main() -> None:
    module = AnsibleModule(argument_spec=params.spec(SPEC), supports_check_mode=True)
    answer = preview.Preview(params.plain(module)).run()
    refused = [item for item in answer["findings"] if item["level"] == "refuse"]
    if module.params["refuse"] and refused:
        text = "; ".join(item["text"] for item in refused)
        hints = "; ".join(sorted({item["hint"] for item in refused if item["hint"]}))
        stop = failure.HostFailure(
            refused[0]["reference"] or "GS-474", "refused before any change: " + text, hint=hints
        )
        answer.pop("candidates")
        params.end(module, stop, changed=False, **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
