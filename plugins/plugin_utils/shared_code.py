"""Run modules from code that the host keeps: it is sent once per boot and version, so a task is only a kilobyte.

Ansible packs a module with all its imports and sends them with each task; the host compiles them each time. Here the
host also keeps what Ansible packs, so a task is just the few lines that start it, in place of Ansible's own program.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from typing import Any

from ansible import constants, release
from ansible.executor import module_common
from ansible.executor.interpreter_discovery import InterpreterDiscoveryRequiredError
from ansible.module_utils import basic
from ansible.module_utils.common import json as values
from ansible.plugins.action import ActionBase
from ansible_collections.gpusetup.stack.plugins.plugin_utils import programs

OURS = "gpusetup.stack"
STARTED = f"{OURS}.gpu_shared_code"
PLUGINS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def code() -> dict[str, bytes]:
    """Return the code of all modules: {path in the plugins folder: content}."""
    found = {}
    for part in ("modules", "module_utils"):
        for folder, _folders, names in os.walk(os.path.join(PLUGINS, part)):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as stream:
                        found[os.path.relpath(path, PLUGINS)] = stream.read()
    with open(str(basic.__file__), "rb") as stream:  # the host keeps Ansible's part too, which depends on its version
        found["ansible"] = f"{release.__version__} {hashlib.sha256(stream.read()).hexdigest()}".encode()
    return dict(sorted(found.items()))


def digest(files: dict[str, bytes]) -> str:
    """Return the digest that identifies the code; the host computes the same from what it receives."""
    total = hashlib.sha256()
    for name, content in files.items():
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


DIGEST = digest(code())

_START = """import sys
sys.path[:] = [path for path in sys.path if path not in ("", ".")]
import json, os, stat
folder={folder!r}
profile={profile!r}
module_fqn={name!r}
params={told!r}
def owned(path, others):
    seen = os.lstat(path)
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & others
def missing(wanted):
    if not owned(os.path.dirname(folder), 0o022) or os.path.lexists(folder) and not owned(folder, 0o077):
        return []
    found = [one for one in wanted if not os.path.isdir(os.path.join(folder, one))]
    if found or not owned(os.path.join(folder, wanted[0]), 0o077):
        return found
    sys.path.insert(0, os.path.join(folder, wanted[0], "base"))
    try:
        from ansible.module_utils import basic
    except (ImportError, SyntaxError):
        import shutil
        shutil.rmtree(os.path.join(folder, wanted[0]), ignore_errors=True)
        return wanted[:1]
def start():
    try:
        os.getcwd()
    except OSError:
        os.chdir("/")
    request = json.loads(params)["ANSIBLE_MODULE_ARGS"]
    try:
        lacking = missing([one for one in (request["code"], request["program"]) if one])
    except OSError:
        lacking = []
    if lacking is not None:
        return print(json.dumps(dict(changed=False, missing=lacking)))
    told = dict(_module_fqn=module_fqn, _modlib_path=sys.path[0])
    if profile:
        from ansible.module_utils._internal._ansiballz._loader import run_module
        run_module(json_params=params.encode(), profile=profile, extensions=dict(),
                   module_fqn=module_fqn, modlib_path=sys.path[0])
    import runpy
    from ansible.module_utils import basic
    basic._ANSIBLE_ARGS = params.encode()
    runpy.run_module(module_fqn, init_globals=told, run_name="__main__", alter_sys=True)
start()
"""
"""The program that runs on the host; it checks the owner of the folders as gpu_shared_code does."""
_FOLDER = "/run/gpusetup-code"


def _profile() -> str | None:
    """Return this Ansible's serialization profile ("" before 2.19); None if it starts modules in an unknown way."""
    try:
        from ansible.module_utils._internal._ansiballz._loader import run_module
    except ImportError:
        return None if "_BuiltModule" in vars(module_common) else ""
    known = {"json_params", "profile", "module_fqn", "modlib_path", "extensions", "init_globals"}
    return "legacy" if set(inspect.signature(run_module).parameters) == known else None


def _written(arguments: dict[str, Any], profile: str) -> str:
    told = {"ANSIBLE_MODULE_ARGS": arguments}
    if not profile:
        return json.dumps(told, cls=values.AnsibleJSONEncoder, vault_to_text=True)
    return json.dumps(told, cls=values.get_module_encoder(profile, values.Direction.CONTROLLER_TO_MODULE))


class SharedCode(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """An action that runs the module of the same name."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    @staticmethod
    def keeps_nothing(arguments: dict[str, Any]) -> bool:
        """Return whether the host certainly lacks the code, so that it is sent without being asked for."""
        del arguments
        return False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module with the task's arguments."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self.ask(dict(self._task.args), task_vars))
        return result

    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, program: str = "") -> dict[str, Any]:
        """Run the module from the host's code and send what the host lacks; if it cannot keep code, send the module."""
        name = self._task.action.rpartition(".")[2]
        later = bool(self._task.async_val) and not self._connection.has_native_async
        kept = {"program": program.encode()} if program else {}
        wanted = {"code": DIGEST, "program": digest(kept) if program else ""}
        sent = {DIGEST: programs.archive(code())} if self.keeps_nothing(arguments) else {}
        for _attempt in () if later else range(2):
            request = {"module": name, "arguments": arguments, "sent": sent, **wanted}
            answer: dict[str, Any] = self._execute_module(STARTED, request, task_vars=task_vars)
            if "missing" not in answer:
                return answer
            sent = {one: programs.archive(code() if one == DIGEST else kept) for one in answer["missing"]}
            if not sent:
                break
        whole = {**arguments, "program": program} if program else arguments
        return dict(self._execute_module(f"{OURS}.{name}", whole, task_vars=task_vars, wrap_async=later))

    def _configure_module(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> Any:
        """Return what `_execute_module` sends: if possible only the lines that start the host's code."""
        started = self._start(module_args, task_vars) if module_name == STARTED and not module_args["sent"] else None
        return started or super()._configure_module(module_name, module_args, task_vars)

    def _start(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> Any:
        """Return these lines in this Ansible's form; None if Python must be discovered or the setup is unusual."""
        profile, ways = _profile(), vars(module_common)
        if (
            profile is None
            or self._task.delegate_to
            or not self._is_pipelining_enabled("new")
            or any(os.path.isdir(folder) for folder in constants.DEFAULT_MODULE_UTILS_PATH or ())
            or constants.config.get_config_value("PYTHON_MODULE_RLIMIT_NOFILE", variables=task_vars)
        ):
            return None
        local = bool(getattr(self._connection, "_remote_is_local", False))
        try:
            first, _ = ways["_get_shebang"]("/usr/bin/python", task_vars, self._templar, remote_is_local=local)
        except InterpreterDiscoveryRequiredError:
            return None
        name = f"ansible_collections.{OURS}.plugins.modules.gpu_shared_code"
        told = _written(arguments, profile)
        text = _START.format(folder=_FOLDER, profile=profile, name=name, told=told).encode()
        path = os.path.join(PLUGINS, "modules", "gpu_shared_code.py")
        if not profile:
            return "new", first, text, path
        built = {"module_style": "new", "shebang": first, "b_module_data": text, "serialization_profile": profile}
        return ways["_BuiltModule"](**built), path


class WithProgram(SharedCode):
    """An action that passes a program to its module as the argument O(program)."""

    ENTRIES: tuple[str, ...] = ()
    """The role's files where the program starts; empty means all of them."""

    def ask(self, arguments: dict[str, Any], task_vars: dict[str, Any] | None, program: str = "") -> dict[str, Any]:
        """Run the module of the action's name with the program of the role of that name."""
        role = self._task.action.rpartition(".")[2]
        result = super().ask(arguments, task_vars, program or programs.packed(role, *self.ENTRIES))
        result.get("invocation", {}).get("module_args", {}).pop("program", None)
        return result
