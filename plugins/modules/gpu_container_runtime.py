#!/usr/bin/python
"""Ansible module: container runtimes that know the GPU."""

DOCUMENTATION = r"""
module: gpu_container_runtime
short_description: Configure container runtimes with the NVIDIA container toolkit
description:
  - Lets C(nvidia-ctk) edit a copy of the configuration of the runtimes, writes what it made of it, and keeps what was
    there before for removal. A configuration that it leaves as it is counts as unchanged.
  - Runtimes are restarted only when asked, because that stops containers.
options:
  runtimes:
    description: Runtimes to configure; podman needs only the CDI specification.
    type: list
    elements: str
    default: []
    choices: [docker, containerd, crio, podman]
  cdi:
    description: Keep the CDI specification up to date at every boot, and write it now when there is none and the driver
      is loaded.
    type: bool
    default: true
  restart:
    description: Restart a running runtime whose configuration changed since it was started.
    type: bool
    default: false
extends_documentation_fragment:
  - gpusetup.stack.host
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: GPUs in docker
  gpusetup.stack.gpu_container_runtime:
    runtimes: [docker]
    restart: true
"""

RETURN = r"""
pending:
  description: Running runtimes that must be restarted to use their configuration.
  returned: always
  type: list
  elements: str
"""

import os
import re
import shutil
import tempfile
import time
from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import failure, files, params, process, services
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import LiveHost, containers

REFRESH = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
CDI = "/etc/cdi/nvidia.yaml"
DRIVER = "/dev/nvidiactl"


def configured(runtime: str, tool: str, env: Dict[str, str]) -> Dict[str, bytes]:
    """Return {path: content} of what nvidia-ctk makes of a runtime's settings, told by what it makes of a copy of them.

    From 1.18 on it writes a drop-in, at a place of its own unless it is told another one, and lets containerd's
    settings import it. Its --dry-run is no way to know: some versions write the importing file all the same.
    """
    paths = containers.SETTINGS[runtime]
    _code, usage, _error = process.output([tool, "runtime", "configure", "--help"], env)
    drop_in = paths[1] if len(paths) > 1 else ""
    folder = tempfile.mkdtemp(prefix="gpusetup-")  # nobody else may enter: settings can hold passwords
    # The copy imports drop-ins from beside itself, as the real settings do from beside themselves.
    here, there = (os.path.dirname(root + (drop_in or paths[0])).encode() + b"/" for root in ("", folder))
    try:
        for path in paths:
            os.makedirs(os.path.dirname(folder + path), exist_ok=True)
            content = files.read_bytes(path)
            if content is not None:
                files.write_atomically(folder + path, content.replace(here, there), 0o600, lasting=False)
        argv = [tool, "runtime", "configure", "--runtime=" + runtime]
        if drop_in and "--drop-in-config" in usage:
            argv += ["--config=" + folder + paths[0], "--drop-in-config=" + folder + drop_in]
        else:  # it changes the file that it is given: CRI-O's drop-in can be that, containerd's would not be imported
            argv += ["--config=" + folder + (drop_in if runtime == "crio" else paths[0])]
        code, out, error = process.output(argv, env)
        if code:
            raise HostFailure(
                "GS-490", f"nvidia-ctk could not configure {runtime}", paths[0], (error or out).strip()[-500:],
                "read that file: is it valid? Nothing of it was changed",
            )  # fmt: skip
        made = {path: files.read_bytes(folder + path) for path in paths}
        return {path: content.replace(there, here) for path, content in made.items() if content}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def behind(runtime: str, ledger: Ledger, changed: bool, env: Dict[str, str]) -> bool:
    """Say whether a runtime has run since before its settings were changed, by this apply or an earlier one."""
    argv = ["systemctl", "show", "--property=ActiveState,ActiveEnterTimestampMonotonic", runtime + ".service"]
    _code, text, _error = process.output(argv, env, 30)
    fields = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    if fields.get("ActiveState") != "active":
        return False
    since = time.time() - time.monotonic() + int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    ours = [path for path in containers.SETTINGS[runtime] if path in ledger.state["files"] and os.path.exists(path)]
    return changed or any(os.stat(path).st_mtime > since for path in ours)


def restart(runtime: str, env: Dict[str, str]) -> None:
    """Restart a runtime, and say so when it does not come back."""
    code, _out, error = process.output(["systemctl", "restart", runtime], env, 120)
    if code:
        _code, journal, _error = process.output(
            ["journalctl", "-u", runtime, "-n", "15", "--no-pager", "-o", "cat"], env, 20
        )
        raise HostFailure(
            "GS-490", f"{runtime} did not start with its new configuration", error.strip(), journal.strip()[-900:],
            "journalctl -u " + runtime,
        )  # fmt: skip


def describe_devices(ledger: Ledger, tool: str, env: Dict[str, str], check: bool) -> bool:
    """Keep the CDI specification up to date, and write it now where it can be; return whether something changed."""
    seen = services.look(REFRESH, env)
    units = [unit for unit in REFRESH if seen[unit]["exists"]]
    # The service ends when it is done: it is enabled, and never found running.
    changed = [services.bring_up(ledger, [unit], unit.endswith(".path"), env, check) for unit in units]
    if containers.specifications(LiveHost()) or not os.path.exists(DRIVER):
        return any(changed)
    if check:
        return True
    argv = ["systemctl", "start", REFRESH[1]] if REFRESH[1] in units else [tool, "cdi", "generate"]
    code, out, error = process.output(argv, env)
    if code:
        raise HostFailure("GS-490", "nvidia-ctk could not write the CDI specification", CDI, error.strip()[-500:])
    if REFRESH[1] not in units:
        ledger.write(CDI, out)
    return True


def configure(asked: Dict[str, Any], ledger: Ledger, env: Dict[str, str], check: bool) -> Dict[str, Any]:
    """Do what was asked for; return {"changed", "pending"}."""
    tool = process.which("nvidia-ctk", env)
    if tool is None and check:  # it comes with the packages, which a check does not install
        return {"changed": bool(asked["runtimes"] or asked["cdi"]), "pending": []}
    if tool is None:
        hint = "is nvidia-container-toolkit in gpu_container_packages?"
        raise HostFailure("GS-490", "nvidia-ctk is not there", hint=hint)
    changed = False
    pending: List[str] = []
    for runtime in [name for name in asked["runtimes"] if name in containers.SETTINGS]:
        wrote = [ledger.write(path, content) for path, content in sorted(configured(runtime, tool, env).items())]
        changed = changed or any(wrote)
        if behind(runtime, ledger, any(wrote), env):
            pending.append(runtime)
    if asked["cdi"] or "podman" in asked["runtimes"]:
        changed = describe_devices(ledger, tool, env, check) or changed
    ledger.save()
    if asked["restart"] and not check:
        changed = changed or bool(pending)
        while pending:
            restart(pending[0], env)
            del pending[0]
    return {"changed": changed, "pending": pending}


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec=params.spec(
            runtimes={
                "type": "list",
                "elements": "str",
                "default": [],
                "choices": ["docker", "containerd", "crio", "podman"],
            },
            cdi={"type": "bool", "default": True},
            restart={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    request = params.owned(module)
    try:
        ledger = Ledger(request["state_dir"], module.check_mode)
        result = configure(module.params, ledger, process.environment(), module.check_mode)
    except (failure.HostFailure, OSError) as stop:
        params.end(module, stop)
    module.exit_json(diff=ledger.diffs, **result)


if __name__ == "__main__":
    main()
