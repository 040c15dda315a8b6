# ruff: noqa: D102, SLF001 - the methods are named and explained by Ansible, and so is what they are given
"""Inside the Ansible process: write its callbacks as JSON lines, without output that a task hides (no_log).

Results of our own modules (`gpu_*`) are written whole; of others only whether they changed and why they failed.
"""

import importlib
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible import constants, context, release
from ansible.vars.plugins import get_vars_from_inventory_sources

from gpusetup.components.parsing import secrets_in, without_login, without_logins, without_secrets
from gpusetup.drive.inventory import check_address, check_host_name
from gpusetup.drive.inventory_memory import hand_over
from gpusetup.drive.module_cache import keep, place_of, take
from gpusetup.drive.parent import die_with_parent
from gpusetup.drive.secrets import ENVIRONMENT as SECRETS
from gpusetup.drive.secrets import tell_secrets
from gpusetup.drive.shards import NUMBER, WHICH, own_hosts

_OWN = "gpu_"
_PREFIXES = re.compile(
    r"^(?:Failed to connect to the host via ssh: )?"
    r"(?:Data could not be sent to remote host \S+\. Make sure this host can be reached over ssh:\s*)?(?:ssh: )?"
)
"""What Ansible and ssh print before the reason why a host is unreachable."""
_TEXT_LIMIT = 8000
_ANSIBLES_OWN, _AT_FIRST, _ON_HOSTS, _IN_A_LONG_STEP = 0.001, 0.002, 0.01, 0.05
_CONNECTION = ("ansible_host", "ansible_connection", "ansible_port")
_ASKED = "gpusetup_"
_ADDRESSES = {"gpusetup_proxy", "gpu_proxy", "gpusetup_source", "gpusetup_source_key", "gpusetup_extra_sources"}
_PASSWORDS = {
    "ansible_password", "ansible_ssh_pass", "ansible_ssh_password", "ansible_become_password", "ansible_become_pass",
    "ansible_sudo_pass",
}  # fmt: skip


class EventWriter:
    """The `v2_*` methods that Ansible calls; a mixin for its CallbackBase."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        path = os.environ.get("GPUSETUP_EVENTS")
        self.disabled = not path
        if path and not die_with_parent():
            raise SystemExit(130)
        self._may_ask_less = getattr(constants, "DEFAULT_INTERNAL_POLL_INTERVAL", None) == _ANSIBLES_OWN
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else -1
        self._started: dict[tuple[str, str], float] = {}
        self._playbook = ""
        self._packed: Path | None = None
        self._secrets: set[str] = set()
        self._wishes: dict[str, dict[str, Any]] = {}
        self._shard = {"shard": int(os.environ[NUMBER])} if NUMBER in os.environ else {}

    # --- the playbook -------------------------------------------------------------------------------------------

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = Path(playbook._file_name).stem
        overriding = getattr(constants, "DEFAULT_MODULE_UTILS_PATH", None) or ()
        self._packed = place_of(os.environ, Path(release.__file__), release.__version__, overriding)
        if self._packed is not None:
            take(self._packed, Path(constants.DEFAULT_LOCAL_TMP))
        with suppress(ImportError):  # a playbook without our collection; preloading saves reading the code per task
            importlib.import_module("ansible_collections.gpusetup.stack.plugins.plugin_utils.shared_code")
        self._write("start", playbook=self._playbook)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        manager = play.get_variable_manager()
        inventory = manager._inventory
        if why := hand_over(inventory._inventory, os.environ):
            self._write("inventory", read_again=why)
        all_hosts = inventory.get_hosts(play.hosts, order=play.order)
        own = own_hosts(all_hosts, os.environ)
        # Given these lists, Ansible does not list all hosts again for each host.
        names, all_names = [host.name for host in own], [host.name for host in all_hosts]
        hosts, kept = {}, []
        for host in own:
            variables = manager.get_vars(play=play, host=host, _hosts=names, _hosts_all=all_names)
            hosts[host.name], secrets = _host_document(manager, variables, host)
            if rivals := self._rivals(manager, host, variables):
                hosts[host.name]["rivals"] = rivals
            self._learn(secrets)
            if not hosts[host.name]["refused"]:
                kept.append(host)
        rest = {"rest": all_names[len(own) :]} if WHICH not in os.environ and len(own) < len(all_hosts) else {}
        self._write("hosts", play=play.get_name(), hosts=hosts, forks=context.CLIARGS.get("forks"), **rest)
        if len(kept) < len(all_hosts):
            _leave_out(inventory, kept)

    def _rivals(self, manager: Any, host: Any, variables: Any) -> dict[str, list[str]]:
        """Return the wishes about which groups of equal rank differ, with the groups: first the one that counts.

        Ansible takes the group that is last by name, without a word.
        """
        levels: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
        for group in sorted(host.groups, key=lambda one: one.name):
            for name, value in self._wishes_of(manager, group).items():
                level = levels.setdefault((group.depth, group.priority), {})
                level.setdefault(name, {})[_text(group.name)] = value
        found = {}
        for _, level in sorted(levels.items()):  # a higher level decides
            for name, values in level.items():
                counts = [group for group, value in values.items() if value == variables.get(name)]
                others = [group for group in values if group not in counts]
                found[name] = [counts[-1], *others] if counts and others and name not in host.vars else []
        return {name: groups for name, groups in found.items() if groups}

    def _wishes_of(self, manager: Any, group: Any) -> dict[str, Any]:
        """Return the variables for gpusetup of a group: those in the inventory, then those of its files."""
        if group.name not in self._wishes:
            inventory = manager._inventory
            files = get_vars_from_inventory_sources(manager._loader, inventory._sources, [group], "all")
            told = {**group.vars, **files}
            self._wishes[group.name] = {name: told[name] for name in told if name.startswith(_ASKED)}
        return self._wishes[group.name]

    def v2_playbook_on_task_start(self, task: Any, is_conditional: Any = False) -> None:  # noqa: ARG002 - Ansible's
        self._write("task", task=_text(task._uuid), **_task_document(task))
        self._look_for_results_every(_ON_HOSTS if _own(task) else _AT_FIRST)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._write("task", task=_text(task._uuid), handler=True, **_task_document(task))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if self._packed is not None:
            keep(self._packed, Path(constants.DEFAULT_LOCAL_TMP))
        self._write("end", stats={host: stats.summarize(host) for host in sorted(stats.processed)})

    # --- one host -----------------------------------------------------------------------------------------------

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._started[host.get_name(), task._uuid] = time.monotonic()
        self._write("begin", host=host.get_name(), task=_text(task._uuid), name=_name(task))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._result("changed" if result.is_changed() else "ok", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._result("skipped", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._result("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._result("unreachable", result)

    def v2_runner_on_async_poll(self, result: Any) -> None:
        self._result("poll", result, ends=False)

    def v2_runner_retry(self, result: Any) -> None:
        self._result("retry", result, ends=False)
        self._look_for_results_every(_IN_A_LONG_STEP)

    def _look_for_results_every(self, seconds: float) -> None:
        """Poll less often than Ansible's thousand times a second, unless the site's ansible.cfg sets the interval."""
        if self._may_ask_less:
            constants.DEFAULT_INTERNAL_POLL_INTERVAL = seconds

    # --- writing ------------------------------------------------------------------------------------------------

    def _result(self, event: str, result: Any, *, ends: bool = True) -> None:
        host = getattr(result, "host", None) or result._host  # before ansible-core 2.19
        task = getattr(result, "task", None) or result._task
        data = getattr(result, "result", None) or result._result
        key = (host.get_name(), task._uuid)
        began = self._started.pop(key, None) if ends else self._started.get(key)
        fields: dict[str, Any] = {"host": host.get_name(), "task": _text(task._uuid), "name": _name(task)}
        if began is not None:
            fields["seconds"] = round(time.monotonic() - began, 3)
        if task.no_log or data.get("_ansible_no_log"):
            fields["hidden"] = True
            self._write(event, **fields)
            return
        if event in {"failed", "ignored", "unreachable"}:
            fields["message"] = _failure_text(data).removeprefix("Task failed: ")
        if event == "unreachable":
            fields["message"] = _PREFIXES.sub("", fields["message"]) or "the SSH connection broke off"
        if _own(task):
            fields["data"] = {
                name: value for name, value in data.items() if name not in _NOISE and not name.startswith("_ansible")
            }
        if "gpu_failure" in data:
            fields["failure"] = data["gpu_failure"]
        self._write(event, **fields)

    def _write(self, event: str, **fields: Any) -> None:
        if "message" in fields:
            fields["message"] = without_secrets(fields["message"], self._secrets)
        line = json.dumps({"event": event, "time": round(time.time(), 3), **self._shard, **fields}, default=_text)
        # A password without `@` stays in results: removing it from other words would change facts.
        logins = {json.dumps(secret)[1:-1] for secret in self._secrets if secret.endswith("@")}
        os.write(self._file, without_secrets(line, logins).encode() + b"\n")

    def _learn(self, secrets: set[str]) -> None:
        tell_secrets(os.environ.get(SECRETS), secrets - self._secrets)
        self._secrets |= secrets


_NOISE = frozenset({"invocation", "exception", "warnings", "deprecations", "stdout_lines", "stderr_lines"})


def _text(value: Any) -> str:
    return str(value)


def _name(task: Any) -> str:
    """Return a task's name without Ansible's prefixes: the role, and the check of arguments."""
    own = _text(task.get_name()).rpartition(" : ")[2]
    return own.partition(" - ")[2] or own if own.startswith("Validating arguments against") else own


def _own(task: Any) -> bool:
    return _bare(task.action).startswith(_OWN)


def _bare(name: Any) -> str:
    return str(name).rpartition(".")[2]


def _task_document(task: Any) -> dict[str, Any]:
    role = getattr(task, "_role", None)
    return {"name": _name(task), "action": _bare(task.action), "role": _bare(role.get_name()) if role else ""}


_KILLED = (
    "something on the host killed the program of this step: the kernel does when memory runs out "
    "(journalctl -k | grep -i 'out of memory'); the same command goes on from there"
)


_NO_ANSWER = "No start of json char found"


def _failure_text(data: dict[str, Any]) -> str:
    """Return why a task failed: the module's message, of a loop those of the failed items."""
    items = [item for item in data.get("results") or [] if isinstance(item, dict) and item.get("failed")]
    if items:
        return "\n".join(dict.fromkeys(_failure_text(item) for item in items))[:_TEXT_LIMIT]
    if _text(data.get("module_stderr") or "").strip().endswith("Killed"):
        return _KILLED
    said, printed = data.get("module_stderr"), data.get("module_stdout")
    message = data.get("msg")
    if (said or printed) and _NO_ANSWER in _text(message or ""):  # a login or sudo that failed says why itself
        message = None if said else printed
    parts = [message, said, data.get("stderr"), data.get("reason")]
    texts = [_text(part).strip() for part in parts if part]
    return (
        "\n".join(dict.fromkeys(text for text in texts if text))[:_TEXT_LIMIT] or "it failed without an error message"
    )


def _host_document(manager: Any, variables: Any, host: Any) -> tuple[dict[str, Any], set[str]]:
    """Return a host's connection, its variables for gpusetup, and its secrets; no other variables are read."""
    wanted = {name: variables[name] for name in variables if name.startswith(_ASKED) or name in _CONNECTION}
    hidden = {name: variables[name] for name in variables if name in _PASSWORDS | _ADDRESSES}
    asked: dict[str, Any] = {}
    secrets: set[str] = set()
    problem = ""
    refused = check_host_name(host.name)
    if wanted or hidden:
        from ansible.template import Templar

        templar = Templar(loader=manager._loader, variables=variables)
        for name, value in (hidden | wanted).items():
            try:
                read = templar.template(value)
            except Exception as error:  # noqa: BLE001 - an unfinished template is the user's, and is named
                problem = without_logins(f"{name}: {error}") if name in wanted else problem
                continue
            if name in _PASSWORDS:
                secrets |= {str(read)} if read else set()
            elif name in _ADDRESSES:
                secrets |= set(secrets_in(read)) if read != without_login(read, proxy=name.endswith("proxy")) else set()
            if name in wanted:
                asked[name] = without_login(read, proxy=name == f"{_ASKED}proxy") if name in _ADDRESSES else read
    if not refused and "ansible_host" in asked and (reason := check_address(str(asked["ansible_host"]))):
        refused = f"its ansible_host is {asked['ansible_host']!r}: {reason}"
    document = {
        "refused": refused,
        "groups": sorted(_text(group.name) for group in host.groups if group.name not in {"all", "ungrouped"}),
        "connection": {name: asked.pop(name) for name in _CONNECTION if name in asked},
        "variables": asked,
        **({"problem": problem} if problem else {}),
        **({"roles": True} if any(name.startswith(_OWN) for name in variables) else {}),
    }
    return document, secrets


def _leave_out(inventory: Any, kept: list[Any]) -> None:
    """Restrict the play to these hosts: a name that begins with a dash would be an option of ssh."""
    if not kept:
        raise SystemExit(4)
    inventory.restrict_to_hosts(kept)
