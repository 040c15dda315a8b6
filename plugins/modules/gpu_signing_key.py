#!/usr/bin/python
"""Ansible module: the key that signs kernel modules under Secure Boot."""

DOCUMENTATION = r"""
module: gpu_signing_key
short_description: Choose the key that signs modules built on this host, and ask the firmware to trust it
description:
  - C(configure) makes DKMS sign with a site's own key; without one, DKMS goes on with the key that it makes for itself.
  - C(enroll) stages the enrolment of the key that DKMS signs with, when Secure Boot is on and the firmware does not
    know it. A person at the console confirms it at the next boot by a one-time password, which is kept in a file for
    root alone, never printed or logged. An enrolment that was not confirmed is gone after that boot; the next call
    stages it again.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_signing_key]
attributes:
  check_mode:
    description: Tells what would change.
    support: full
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Sign with the site's key
  gpusetup.stack.gpu_signing_key:
    mode: configure
    key: /etc/pki/site/module.key
    certificate: /etc/pki/site/module.der
"""

RETURN = r"""
state:
  description: Of an enrolment, C(needless), C(enrolled) or C(staged).
  returned: when enrolling
  type: str
"""

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, process, signing
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine

SPEC = {
    "mode": params.choice("What to do.", ["configure", "enroll"]),
    "key": params.text("Path of the site's private key on the host; empty is DKMS's own.", no_log=False),
    "certificate": params.text("Path of its certificate in DER form."),
    "enroll": params.flag(
        "The key will be enrolled; otherwise C(configure) refuses a key that the kernel does not trust."
    ),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        if request["mode"] == "configure":
            wanted = signing.configuration(request["key"], request["certificate"]) if request["key"] else None
            if wanted:
                machine = Machine(request["simulated_root"])
                signing.refuse_old_dkms(machine, request["certificate"])
                if not request["enroll"]:
                    signing.refuse_unknown(machine, request["certificate"])
            changed = (
                ledger.write(signing.CONFIGURATION, wanted) if wanted else ledger.give_up_file(signing.CONFIGURATION)
            )
            module.exit_json(changed=changed, diff=ledger.diffs)
        enrolment = signing.Enrolment(Machine(request["simulated_root"]), process.environment(), module.check_mode)
        changed, state = enrolment.stage()
    module.exit_json(changed=changed, state=state)


if __name__ == "__main__":
    main()
