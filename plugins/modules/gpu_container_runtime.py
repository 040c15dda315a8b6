#!/usr/bin/python
"""Ansible module: container runtimes that know the GPU."""

DOCUMENTATION = r"""
module: gpu_container_runtime
short_description: Configure container runtimes with the NVIDIA container toolkit
description:
  - Lets C(nvidia-ctk) edit the configuration of the runtimes and keeps what was there before for removal. A configuration that it
    leaves as it is counts as unchanged.
  - Runtimes are restarted only when asked, because that stops containers.
options:
  runtimes:
    description: Runtimes to configure; podman needs only the CDI specification.
    type: list
    elements: str
    default: []
    choices: [docker, containerd, crio, podman]
  cdi:
    description: Keep the CDI specification up to date at every boot, and write it now when the driver is loaded.
    type: bool
    default: true
  restart:
    description: Restart a runtime whose configuration changed.
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
  description: Runtimes that must be restarted to use the new configuration.
  returned: always
  type: list
  elements: str
"""

import os
import shutil
import tempfile
from typing import Dict, List, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import failure, files, params, process, services
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

CONFIG = {
    "docker": "/etc/docker/daemon.json",
    "containerd": "/etc/containerd/config.toml",
    "crio": "/etc/crio/conf.d/99-nvidia.conf",
}
REFRESH = "nvidia-cdi-refresh.path"
CDI = "/etc/cdi/nvidia.yaml"


def configured(runtime: str, env: Dict[str, str]) -> Optional[bytes]:
    """Return the content that nvidia-ctk gives a runtime's configuration, made in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="gpusetup-")
    try:
        path = os.path.join(folder, os.path.basename(CONFIG[runtime]))
        if os.path.exists(CONFIG[runtime]):
            shutil.copy2(CONFIG[runtime], path)
        argv = ["nvidia-ctk", "runtime", "configure", "--runtime=" + runtime, "--config=" + path]
        code, out, error = process.output(argv, env)
        if code:
            raise HostFailure(
                "GS-490",
                f"nvidia-ctk could not configure {runtime}",
                CONFIG[runtime],
                (error or out).strip()[-500:],
            )
        return files.read_bytes(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    changed = False
    pending: List[str] = []
    try:
        ledger, env = Ledger(request["state_dir"], module.check_mode), process.environment()
        tool = shutil.which("nvidia-ctk", path=env["PATH"])
        if tool is None and not module.check_mode:
            raise HostFailure(
                "GS-490", "nvidia-ctk is not there", hint="is nvidia-container-toolkit in gpu_container_packages?"
            )
        for runtime in [name for name in module.params["runtimes"] if name in CONFIG] if tool else []:
            content = configured(runtime, env)
            if content is not None and ledger.write(CONFIG[runtime], content):
                changed = True
                pending.append(runtime)
        if module.params["cdi"] and tool:
            unit = services.look([REFRESH], env)[REFRESH]
            if unit["exists"]:
                changed = services.bring_up(ledger, [REFRESH], True, env, module.check_mode) or changed
            elif os.path.exists("/dev/nvidiactl") and not os.path.exists(CDI):
                changed = True
                if not module.check_mode:
                    code, out, error = process.output([tool, "cdi", "generate"], env)
                    if code:
                        raise HostFailure(
                            "GS-490", "nvidia-ctk could not write the CDI specification", CDI, error.strip()[-500:]
                        )
                    ledger.write(CDI, out)
        for runtime in list(pending) if module.params["restart"] and not module.check_mode else []:
            if services.look([runtime + ".service"], env)[runtime + ".service"]["active"]:
                process.output(["systemctl", "restart", runtime], env, 120)
            pending.remove(runtime)
        ledger.save()
    except (failure.HostFailure, OSError) as stop:
        failure.end(module, stop)
    module.exit_json(changed=changed, pending=pending, diff=ledger.diffs)


if __name__ == "__main__":
    main()
