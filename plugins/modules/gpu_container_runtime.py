#!/usr/bin/python
"""Ansible module: container runtimes that know the GPU."""

DOCUMENTATION = r"""
module: gpu_container_runtime
short_description: Configure container runtimes with the NVIDIA container toolkit
description:
  - Lets C(nvidia-ctk) edit a copy of the runtimes' configuration, writes the result, and keeps the earlier files for
    removal. A configuration that it does not change counts as unchanged.
  - containerd and docker themselves check the result. Where a drop-in would make containerd lose settings, the same
    lines are added to its main file, each of them marked.
  - A runtime is restarted only on request or while no container runs in it, because a restart can stop containers.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_container_runtime]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: GPUs in docker
  gpusetup.stack.gpu_container_runtime:
    runtimes: [docker]
    restart: idle
"""

RETURN = r"""
pending:
  description: Running runtimes that must be restarted to use their configuration.
  returned: always
  type: list
  elements: str
saved:
  description: Restored settings that had been edited after gpusetup wrote them; for each, where the edited file is
    kept.
  returned: always
  type: dict
"""

import glob
import os
import re
import shutil
import tempfile
from typing import Any, Dict, List, Optional

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    cdi,
    container_runtimes,
    files,
    followers,
    params,
    process,
    systemd,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers

DAEMONS = {"docker": "dockerd", "containerd": "containerd", "crio": "crio", "podman": "podman"}
_CDI_SINCE = 25
"""The first docker that supports CDI; before 28.3 it must be enabled."""


class Copy:
    """A copy of a runtime's settings in a temporary folder, for nvidia-ctk to edit."""

    def __init__(self, folder: str, paths: List[str]) -> None:
        self.folder, self.paths = folder, paths
        self.drop_in = paths[1] if len(paths) > 1 else ""
        # The copy imports the drop-ins next to it, as the real settings import those next to them.
        here, there = (os.path.dirname(root + (self.drop_in or paths[0])) + "/" for root in ("", folder))
        self.here, self.there = here.encode(), there.encode()
        for path in paths:
            os.makedirs(os.path.dirname(folder + path), exist_ok=True)
        beside = glob.glob(os.path.join(os.path.dirname(self.drop_in), "*.toml")) if self.drop_in else []
        for path in [*paths, *(path for path in beside if path not in paths)]:
            content = files.read_bytes(path)
            if content is not None:
                self.put(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Write a file of the copy, with its paths changed to the copy's."""
        raw = content.replace(self.here, self.there)
        files.write_atomically(self.folder + path, raw, 0o600, lasting=False)

    def made(self, path: str) -> Optional[bytes]:
        """Return the copy's content with the paths of the real settings, None when missing or empty."""
        content = files.read_bytes(self.folder + path)
        return content.replace(self.there, self.here) if content else None

    def drop(self) -> None:
        if os.path.exists(self.folder + self.drop_in):
            os.unlink(self.folder + self.drop_in)


def configured(runtime: str, tool: str, env: Dict[str, str]) -> Dict[str, Optional[bytes]]:
    """Return {path: content} of a runtime's settings after nvidia-ctk edited a copy; None: the file is not needed.

    From 1.18 on it writes a drop-in, by default at a place of its own, and makes containerd's settings import it. Its
    --dry-run cannot be used: some versions write the importing file all the same.
    """
    folder = tempfile.mkdtemp(prefix="gpusetup-")  # nobody else may enter: settings can hold passwords
    try:
        copy = Copy(folder, list(containers.SETTINGS[runtime]))
        _code, usage, _error = process.output([tool, "runtime", "configure", "--help"], env)
        argv = [tool, "runtime", "configure", "--runtime=" + runtime]
        if runtime == "containerd":
            return _containerd(copy, argv, usage, env)
        if copy.drop_in and "--drop-in-config" in usage:
            argv += ["--config=" + folder + copy.paths[0], "--drop-in-config=" + folder + copy.drop_in]
        else:  # it edits the file that it is given, which can be CRI-O's drop-in
            argv += ["--config=" + folder + (copy.drop_in or copy.paths[0])]
        if runtime == "docker" and "cdi.enabled" in usage and _docker(env) >= _CDI_SINCE:
            argv.append("--cdi.enabled")
        _run(argv, runtime, copy.paths[0], env)
        if runtime == "docker":
            _validate(copy, env)
        return {path: copy.made(path) for path in copy.paths if copy.made(path)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(argv: List[str], runtime: str, path: str, env: Dict[str, str]) -> None:
    code, out, error = process.output(argv, env)
    if code:
        raise HostFailure(
            "GS-490", f"nvidia-ctk could not configure {runtime}", path, (error or out).strip()[-500:],
            "check that file for errors; gpusetup did not change it",
        )  # fmt: skip


def _containerd(copy: Copy, argv: List[str], usage: str, env: Dict[str, str]) -> Dict[str, Optional[bytes]]:
    """Use nvidia-ctk's files if containerd still reads all earlier settings with them; else extend the main file."""
    main, drop_in = copy.paths
    program = process.which("containerd", env) or "containerd"
    text = container_runtimes.without_ours((files.read_bytes(main) or b"").decode("utf-8", "surrogateescape"))

    def read(content: str) -> container_runtimes.Settings:
        copy.put(main, content.encode("utf-8", "surrogateescape"))
        return container_runtimes.read_by(program, copy.folder + main, env)

    copy.drop()
    before = read(text)
    drops_in = "--drop-in-config" in usage
    # containerd supports CDI since 1.7, and some versions need it enabled; a setting in the file itself is kept.
    if "cdi.enabled" in usage and container_runtimes.CDI in {key for _table, key in before}:
        argv += (
            ["--cdi.enabled"]
            if container_runtimes.CDI not in {key for _table, key in container_runtimes.parsed(text)}
            else []
        )
    wish = ["--config=" + copy.folder + main] + (["--drop-in-config=" + copy.folder + drop_in] if drops_in else [])
    _run(argv + wish, "containerd", main, env)
    made, dropped = copy.made(main), copy.made(drop_in)
    after = container_runtimes.read_by(program, copy.folder + main, env)
    if container_runtimes.knows_nvidia(after) and not container_runtimes.lost(before, after):
        return {path: content for path, content in ((main, made), (drop_in, dropped)) if content}
    copy.drop()
    said = container_runtimes.parsed(((dropped if drops_in else made) or made or b"").decode("utf-8", "replace"))
    content = container_runtimes.stated(text, container_runtimes.of_nvidia(said), read)
    return {main: content.encode("utf-8", "surrogateescape"), drop_in: None}


def _docker(env: Dict[str, str]) -> int:
    _code, text, _error = process.output(["dockerd", "--version"], env, 30)
    found = re.search(r"version (\d+)\.", text)
    return int(found.group(1)) if found else 0


def _validate(copy: Copy, env: Dict[str, str]) -> None:
    """Let docker check its new settings; docker before 23 cannot."""
    _code, usage, _error = process.output(["dockerd", "--help"], env, 30)
    if "--validate" not in usage:
        return
    path = copy.paths[0]
    code, out, error = process.output(["dockerd", "--validate", "--config-file=" + copy.folder + path], env, 60)
    if code:
        raise HostFailure(
            "GS-490", "docker does not take its settings with NVIDIA's runtime", path, (error or out).strip()[-500:],
            "check that file for errors; gpusetup did not change it",
        )  # fmt: skip


def behind(runtime: str, ledger: Ledger, env: Dict[str, str]) -> bool:
    """Return whether a runtime was started before its settings were changed by this apply or an earlier one."""
    ours = [path for path in containers.SETTINGS[runtime] if path in ledger.state["files"]]
    return followers.Restart(runtime + ".service", ours, env).due()


def runs(runtime: str, env: Dict[str, str]) -> bool:
    return systemd.active_since(runtime + ".service", env) is not None


def unwanted_runtimes(asked: List[str], ledger: Ledger) -> List[str]:
    """Return the runtimes that an earlier apply configured and that are no longer requested."""
    ours = ledger.state["files"]
    return [name for name, paths in containers.SETTINGS.items() if name not in asked and any(p in ours for p in paths)]


def refuse_absent(names: List[str], env: Dict[str, str]) -> None:
    """Raise if a runtime is not installed, before anything is written."""
    lacking = [name for name in names if process.which(DAEMONS[name], env) is None]
    if lacking:
        raise HostFailure(
            "GS-490", "{} is not installed here".format(" and ".join(lacking)),
            "gpusetup configures container runtimes, it does not install them",
            hint="install it, or remove it from gpusetup_containers (gpu_container_runtimes)",
        )  # fmt: skip


def configure(asked: Dict[str, Any], ledger: Ledger, env: Dict[str, str], check: bool) -> Dict[str, Any]:
    """Configure the requested runtimes and CDI; return {"changed", "pending"}."""
    refuse_absent(asked["runtimes"], env)
    changed = False
    pending: List[str] = []
    gone = unwanted_runtimes(asked["runtimes"], ledger)
    for runtime in gone:
        wrote = ledger.arrange(dict.fromkeys(containers.SETTINGS[runtime]))
        changed = changed or bool(wrote)
        if wrote and runs(runtime, env):
            pending.append(runtime)
    if not asked["runtimes"] and (gone or not asked["cdi"]):
        changed = cdi.give_up(ledger, env) or changed
        return _restarted(asked, ledger, env, {"changed": changed, "pending": pending}, gone)
    tool = process.which("nvidia-ctk", env)
    if tool is None and check:  # it comes with packages, which check mode does not install
        return {"changed": bool(asked["runtimes"] or asked["cdi"]), "pending": []}
    if tool is None:
        hint = "is nvidia-container-toolkit in gpu_container_packages?"
        raise HostFailure("GS-490", "nvidia-ctk is missing", hint=hint)
    wishes = {name: configured(name, tool, env) for name in asked["runtimes"] if name in containers.SETTINGS}
    for runtime, wish in wishes.items():  # write only after nvidia-ctk has succeeded for all of them
        wrote = ledger.arrange(wish)
        changed = changed or bool(wrote)
        if behind(runtime, ledger, env) or (wrote and check and runs(runtime, env)):
            pending.append(runtime)
    if asked["cdi"] or "podman" in asked["runtimes"]:
        changed = cdi.keep_described(ledger, tool, env, check) or changed
    return _restarted(asked, ledger, env, {"changed": changed, "pending": pending}, gone)


def _restarted(
    asked: Dict[str, Any], ledger: Ledger, env: Dict[str, str], result: Dict[str, Any], gone: List[str]
) -> Dict[str, Any]:
    """Restart the runtimes that may be restarted now; the others stay pending."""
    if ledger.check:
        return result
    policy = asked["restart"]
    for runtime in list(result["pending"]):
        if policy == "always" or (policy == "idle" and container_runtimes.running(runtime, env) == 0):
            result["changed"] = True
            container_runtimes.restart(runtime, env, knows_nvidia=runtime not in gone)
            result["pending"].remove(runtime)
    return result


SPEC = {
    "runtimes": params.texts(
        "Runtimes to configure; podman needs only the CDI specification. The settings of a runtime that "
        "an earlier call configured and that is no longer listed are restored.",
        choices=["docker", "containerd", "crio", "podman"],
    ),
    "cdi": params.flag(
        "Keep the CDI specification up to date at every boot, and write it now when there is none and the"
        " driver is loaded. If this is false and I(runtimes) is empty, units that an earlier call enabled get their"
        " earlier state back.",
        True,
    ),
    "restart": params.choice(
        "When to restart a running runtime whose configuration changed since it was started. C(idle) "
        "means only while no container runs in it.",
        ["never", "idle", "always"],
        "idle",
    ),
}


def main() -> None:
    module, request = params.opened(SPEC)
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        result = configure(module.params, ledger, process.environment(), module.check_mode)
    warnings = [
        f"{path} was changed after gpusetup wrote it; that version is {place}"
        for path, place in sorted(ledger.saved.items())
    ]
    module.exit_json(diff=ledger.diffs, saved=ledger.saved, warnings=warnings, **result)


if __name__ == "__main__":
    main()
