#!/usr/bin/python
"""Ansible module: the licence of a vGPU guest."""

DOCUMENTATION = r"""
module: gpu_licence
short_description: License a vGPU guest with a token
description:
  - Installs the client configuration token and the feature for NVIDIA's licence daemon, restarts the daemon when they
    changed, and waits until nvidia-smi reports that a licence is granted.
  - What was there before is recorded, so that removal and rollback restore it. The token is readable by root alone
    and appears in no log, diff or record.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_licence]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: License the vGPU
  gpusetup.stack.gpu_licence:
    token: "{{ lookup('ansible.builtin.file', 'client_configuration_token.tok', rstrip=false) }}"
"""

RETURN = r"""
states:
  description: The licence state of each GPU as nvidia-smi reports it.
  returned: always
  type: list
  elements: str
others:
  description: Other tokens, which another program or a person installed.
  returned: always
  type: list
  elements: str
"""

import os
import re
import time
from typing import Dict, List

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    followers,
    params,
    process,
    services,
    systemd,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.files import Content, read_text
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.licence import FEATURES, SETTINGS, TOKENS
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.licence import TOKEN as _NAME

UNIT = "nvidia-gridd.service"
TOKEN = f"{TOKENS}/{_NAME}"
_FEATURE = re.compile(r"^[#;\s]*FeatureType\s*=.*$", re.MULTILINE)
_LEGACY = re.compile(r"^(\s*(?:Backup)?Server(?:Address|Port)\s*=.*)$", re.MULTILINE)
_STATUS = re.compile(r"License Status\s*: (.*\S)")
_POLL = 2.0


def settings(text: str, feature: int) -> str:
    """Return the daemon's settings with the feature type; legacy servers are commented out for the token's own."""
    line = f"FeatureType={feature}"
    text = _LEGACY.sub(r"# taken out by gpusetup, a token names the server: \1", text)
    if _FEATURE.search(text):
        first = _FEATURE.sub(line, text, count=1)
        head, _, rest = first.partition(line)
        return head + line + re.sub(r"(?m)^\s*FeatureType\s*=.*\n?", "", rest)
    return (text if not text or text.endswith("\n") else text + "\n") + line + "\n"


def write(ledger: Ledger, token: Content, feature: int) -> bool:
    changed = ledger.write(TOKEN, token, 0o600)
    return ledger.write(SETTINGS, settings(read_text(SETTINGS) or "", feature)) or changed


def give_up(ledger: Ledger, env: Dict[str, str], start: bool) -> bool:
    """Delete the token and restore the settings; return whether that changed anything."""
    changed = [path for path in (TOKEN, SETTINGS) if ledger.restore(path)]
    if start and is_behind(env):
        systemd.restart(UNIT, env, "GS-430")
    return bool(changed)


def is_behind(env: Dict[str, str]) -> bool:
    return followers.Restart(UNIT, (TOKEN, SETTINGS), env).due()


def others() -> List[str]:
    """Return tokens that somebody else put there: of several the daemon takes an arbitrary one."""
    names = os.listdir(TOKENS) if os.path.isdir(TOKENS) else []
    return sorted(f"{TOKENS}/{name}" for name in names if name.endswith(".tok") and f"{TOKENS}/{name}" != TOKEN)


def license_now(ledger: Ledger, env: Dict[str, str], seconds: float) -> List[str]:
    """Have the daemon request its licence; if none is granted, restore and use the earlier token and settings."""
    try:
        systemd.restart(UNIT, env, "GS-430")
        return wait(env, seconds)
    except HostFailure:
        for path in (TOKEN, SETTINGS):
            ledger.restore(path, "previous")
        if is_behind(env):
            systemd.restart(UNIT, env, "GS-430")
        raise


def state(env: Dict[str, str]) -> List[str]:
    """Return each GPU's licence status by nvidia-smi, empty if it reports none."""
    code, text, _error = process.output(["nvidia-smi", "-q"], env, 30)
    return _STATUS.findall(text) if code == 0 else []


def granted(states: List[str]) -> bool:
    return bool(states) and all(text.startswith("Licensed") for text in states)


def wait(env: Dict[str, str], seconds: float) -> List[str]:
    """Return the status once a licence is granted; fail after `seconds`."""
    end = time.monotonic() + seconds
    states = state(env)
    while not granted(states):
        if time.monotonic() > end:
            raise HostFailure(
                "GS-431",
                f"the licence server granted no licence within {seconds:.0f} s; the former token and settings are back",
                "; ".join(f"License Status: {text}" for text in states) or "nvidia-smi reports no licence",
                systemd.last_words(UNIT, env),
                "check that this host reaches the server, the token is in date and gpusetup_vgpu_feature names a "
                f"licence of the server; journalctl -u {UNIT}",
            )
        time.sleep(_POLL)
        states = state(env)
    return states


def refuse_without_daemon(env: Dict[str, str]) -> None:
    if not services.look([UNIT], env)[UNIT]["exists"]:
        raise HostFailure(
            "GS-434",
            f"there is no {UNIT}: the driver here is not a vGPU guest driver",
            hint="install the vGPU guest driver first, or unset gpusetup_vgpu_token",
        )


SPEC = {
    "token": params.text("The token itself; needed to license.", None, no_log=True),
    "state": params.choice(
        "C(absent) removes our token and restores the daemon's settings.", ["present", "absent"], "present"
    ),
    "feature": params.choice(
        "What to license. C(vgpu) leaves the kind of licence to the vGPU's profile.", list(FEATURES), "vgpu"
    ),
    "wait": params.number("Seconds to wait for the licence.", 60),
    "start": params.flag(
        "Restart the daemon now; false leaves that to the next boot (the driver is not loaded yet).", True
    ),
}


def main() -> None:
    module, request = params.opened(SPEC, required_if=[("state", "present", ["token"])])
    check, start = module.check_mode, module.params["start"]
    with params.failing(module):
        env = process.environment()
        ledger = Ledger(request["state_dir"], check)
        if module.params["state"] == "absent":
            changed = give_up(ledger, env, start and not check)
            module.exit_json(changed=changed, diff=ledger.diffs, states=[], others=others())
        if not check:
            refuse_without_daemon(env)
        changed = write(ledger, module.params["token"], FEATURES[module.params["feature"]])
        states = state(env)
        if start and not check and (is_behind(env) or not granted(states)):
            states = license_now(ledger, env, module.params["wait"])
            changed = True
    module.exit_json(changed=changed, diff=ledger.diffs, states=states, others=others())


if __name__ == "__main__":
    main()
