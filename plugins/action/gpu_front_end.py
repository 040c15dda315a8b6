"""Run a gpusetup command on the node of this job and report the outcome for each host: for AWX, which runs playbooks.

The connection options are those of this ansible-playbook; variables come from the inventory and from survey answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

OPTIONS = {
    "facts": (),
    "plan": (),
    "apply": ("batch", "max_fail", "max_fail_domain", "drain", "drain_wait", "busy_wait", "verify"),
    "verify": ("level", "gpus", "minutes"),
    "rollback": ("batch", "max_fail", "max_fail_domain", "to"),
    "verdict": (),
}
"""The options of each command; `verdict` runs nothing: it reports how the workflow's earlier jobs ended."""
GOOD = frozenset({"seen", "change", "done", "unchanged", "nothing-to-do", "pending-reboot", "pass", "warn", "skip"})
GO_BACK = frozenset({"failed", "verify-failed", "fail"})
"""States of hosts that were changed and have failed: a rollback within a workflow is for these."""
VERDICTS = re.compile(r"gpu_(?:facts|plan|apply|verify|rollback)_([0-9]+)")
PLANNED = re.compile(r"gpu_planned_([0-9]+)")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NOT_INSIDE = re.compile(
    r"ANSIBLE_(?:HOST_KEY_CHECKING|STDOUT_CALLBACK|CALLBACK_PLUGINS|CACHE_PLUGIN.*)|ORIGINAL_STDOUT_CALLBACK"
    r"|AWX_ISOLATED_DATA_DIR|RUNNER_.*|JOB_ID|INVENTORY_ID"
)
"""Variables that ansible-runner sets for its own Ansible; by default it disables the checking of host keys."""
GRACE = 30


def trouble(host: dict[str, Any]) -> str:
    """Return why a host stopped, in one line."""
    parts = []
    for told in [host.get("failure") or {}, *(host.get("refusals") or [])]:
        parts += [str(told[key]) for key in ("message", "note", "hint") if told.get(key)]
    bad = [check for check in host.get("checks") or [] if check.get("verdict") == "fail"]
    parts += ["{}: {}".format(check["id"], check["text"]) for check in bad]
    return "; ".join(dict.fromkeys(parts))


def verdicts(command: str, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {"state", "changed", "message", "ok"} for each host; the message is one line for people."""
    found = {}
    hosts = document.get("hosts") or {}
    for name, host in hosts.items():
        changed, message = False, ""
        if command == "facts":
            state = "seen"
            message = "{}, {}".format(
                (host.get("os") or {}).get("label") or (host.get("os") or {}).get("id"),
                ", ".join(sorted({str(gpu.get("name") or gpu.get("pci_id")) for gpu in host.get("gpus") or []}))
                or "no NVIDIA GPU",
            )
        elif command == "verify":
            told = document["summary"][name]
            state = told["verdict"]
            message = trouble({"checks": host}) or str(told.get("problem") or "")
        else:
            state, changed = host["state"], bool(host.get("changed"))
            done = "; ".join(action["what"] for action in host.get("actions") or []) if state in GOOD else ""
            message = trouble(host) or done or str(host.get("verified") or "")
        found[name] = {"state": state, "changed": changed, "message": message[:1000]}
    for name, failure in (document.get("failures") or {}).items():
        state = "unreachable" if failure.get("exit") == 6 else "refused"
        found[name] = {"state": state, "changed": False, "message": str(failure.get("message"))[:1000]}
    return {name: {**told, "ok": told["state"] in GOOD} for name, told in found.items()}


def packed(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that changes something; equal plans of several hosts are stored once."""
    plans: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    hosts: dict[str, int] = {}
    for name, host in plan["hosts"].items():
        if host["state"] == "change":
            text = json.dumps(host, sort_keys=True)
            if text not in places:
                places[text] = len(plans)
                plans.append(host)
            hosts[name] = places[text]
    return {**plan, "plans": plans, "hosts": hosts}


def unpacked(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plan of earlier jobs, merged from all slices."""
    hosts = {}
    for part in parts:
        hosts.update({name: part["plans"][number] for name, number in part["hosts"].items()})
    return {**{key: value for key, value in parts[-1].items() if key != "plans"}, "hosts": hosts}


def handed(variables: dict[str, Any], names: re.Pattern[str]) -> list[dict[str, Any]]:
    """Return the matching artifacts of the workflow's earlier jobs, the oldest job first."""
    found = [(int(match.group(1)), variables[name]) for name in variables for match in [names.fullmatch(name)] if match]
    return [value for _job, value in sorted(found, key=lambda item: item[0]) if isinstance(value, dict)]


def reach(arguments: dict[str, Any]) -> list[str]:
    """Return this ansible-playbook's connection options as arguments of gpusetup."""
    inventory, *more = arguments.get("inventory") or [""]
    argv = [inventory, "--forks={}".format(arguments.get("forks") or 25)]
    for option, key in (("--user", "remote_user"), ("--private-key", "private_key_file")):
        if arguments.get(key):
            argv.append(f"{option}={arguments[key]}")
    further = [f"--inventory={source}" for source in more]
    for option, key in (("--ssh-common-args", "ssh_common_args"), ("--ssh-extra-args", "ssh_extra_args")):
        if arguments.get(key):
            further.append(f"{option}={arguments[key]}")
    if arguments.get("become_method") not in (None, constants.DEFAULT_BECOME_METHOD):
        further.append("--become-method={}".format(arguments["become_method"]))
    if arguments.get("become_user"):
        further.append("--become-user={}".format(arguments["become_user"]))
    return [*argv, *(["--", *further] if further else [])]


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """The plugin."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the command; a failed host is part of the result, not a failure of this task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        command = str(self._task.args.get("command"))
        if command not in OPTIONS:
            raise AnsibleActionFail("command is one of: " + ", ".join(OPTIONS))
        job = str(variables.get("awx_job_id") or variables.get("tower_job_id") or 0)
        before: dict[str, Any] = {}
        for told in handed(variables, VERDICTS):
            before.update(told)
        here = list(variables.get("ansible_play_hosts_all") or [])
        plan = self._plan(command, variables)
        only = None
        if plan is not None:
            only = [name for name in here if name in plan["hosts"]]
        elif command == "rollback" and before:
            only = [name for name in here if before.get(name, {}).get("state") in GO_BACK]
        if command == "verdict" or only == []:
            return {**result, "hosts": {name: before.get(name) or dict(NOT_THERE) for name in here}, "artifacts": {}}
        with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
            document = self._run(command, folder, plan, only)
        found = verdicts(command, document)
        artifacts = {f"gpu_{command}_{job}": found}
        if command == "plan":
            artifacts["gpu_planned_" + job] = packed(document)
        rest = before if only is not None else {}
        hosts = {
            name: found.get(name) or rest.get(name) or dict(NOT_THERE) for name in {**dict.fromkeys(here), **found}
        }
        return {**result, "changed": False, "hosts": hosts, "artifacts": artifacts}

    def _plan(self, command: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """Return the plan of earlier jobs if this one is to carry it out."""
        parts = handed(variables, PLANNED) if command == "apply" else []
        if command == "apply" and self._task.args.get("planned") and not parts:
            raise AnsibleActionFail("no plan reached this job: the workflow's job before the approval makes it")
        return unpacked(parts) if parts else None

    def _run(self, command: str, folder: str, plan: dict[str, Any] | None, only: list[str] | None) -> dict[str, Any]:
        """Run gpusetup, limited to the hosts in `only` if given, and return its document."""
        answer = os.path.join(folder, "answer.json")
        first, *rest = reach(context.CLIARGS)
        argv = [sys.executable, "-m", "gpusetup", command, first, "--format=json", "--out=" + answer]
        limit = context.CLIARGS.get("subset")
        if only is not None:
            odd = [name for name in only if not PLAIN_NAME.fullmatch(name)]
            if odd:
                raise AnsibleActionFail("a host's name could be read as a pattern: {}".format(", ".join(odd)))
            limit = "@" + self._file(folder, "limit", "\n".join(only) + "\n")
        if limit:
            argv.append(f"--limit={limit}")
        if plan is not None:
            argv.append("--plan=" + self._file(folder, "plan.json", json.dumps(plan)))
        argv += self._options(command)
        said = {
            name: value
            for name, value in load_extra_vars(self._loader).items()
            if name.startswith("gpusetup_") and value not in ("", None, [])
        }
        if said:
            argv.append("--extra-vars=@" + self._file(folder, "answers.json", json.dumps(said, default=str)))
        secrets = self._secrets()
        argv += [option for option, _secret in secrets]
        if os.path.isfile("known_hosts"):  # a job runs in its project's folder
            shutil.copy("known_hosts", folder)
        environment = {name: value for name, value in os.environ.items() if not NOT_INSIDE.fullmatch(name)}
        environment["GPUSETUP_STATE"] = folder
        printed = os.path.join(folder, "printed")
        code = follow([*argv, *rest], environment, "".join(secret + "\n" for _option, secret in secrets), printed)
        return self._read(answer if os.path.exists(answer) else printed, code)

    def _options(self, command: str) -> list[str]:
        given = {
            name: value for name, value in (self._task.args.get("options") or {}).items() if value not in ("", None)
        }
        odd = sorted(set(given) - {name for names in OPTIONS.values() for name in names})
        if odd:
            raise AnsibleActionFail("no command takes {}".format(", ".join(odd)))
        argv = ["--{}={}".format(name.replace("_", "-"), given[name]) for name in OPTIONS[command] if name in given]
        return [*argv, *(["--check"] if command == "apply" and self._task.check_mode else [])]

    def _secrets(self) -> list[tuple[str, str]]:
        """Return this job's passwords, in the order in which gpusetup asks for them."""
        if self._play_context.password:
            raise AnsibleActionFail(
                "gpusetup logs in with a key: give the machine credential an SSH key in place of the password"
            )
        found = [("--ask-become-pass", self._play_context.become_pass)] if self._play_context.become_pass else []
        vault = list(getattr(self._loader._vault, "secrets", None) or [])  # noqa: SLF001 - there is no other way
        if len(vault) > 1:
            raise AnsibleActionFail("gpusetup opens one vault: give this job a single vault credential")
        return [
            *found,
            *(("--ask-vault-pass", secret.bytes.decode("utf-8", "surrogateescape")) for _name, secret in vault),
        ]

    @staticmethod
    def _file(folder: str, name: str, text: str) -> str:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    @staticmethod
    def _read(path: str, code: int) -> dict[str, Any]:
        try:
            with open(path, encoding="utf-8") as file:
                document: dict[str, Any] = json.load(file)
        except ValueError:
            missing = f"gpusetup ended with exit {code}: is it installed for {sys.executable}?"
            raise AnsibleActionFail(missing) from None
        error = document.get("error")
        if error:
            told = [str(error[key]) for key in ("message", "path", "context", "hint") if error.get(key)]
            raise AnsibleActionFail("{}: {}".format(error["reference"], "; ".join(told)))
        return document


NOT_THERE = {"state": "unknown", "ok": False, "changed": False, "message": "gpusetup reported nothing about this host"}


def follow(argv: list[str], environment: dict[str, str], secrets: str, printed: str) -> int:
    """Run gpusetup, show its progress as the job's output, and return its exit code."""
    with open(printed, "w", encoding="utf-8") as answers, subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=answers, stderr=subprocess.PIPE,
        encoding="utf-8", errors="surrogateescape",
    ) as process:  # fmt: skip
        try:
            if process.stdin is None or process.stderr is None:
                return 1
            process.stdin.write(secrets)
            process.stdin.close()
            for line in process.stderr:
                Display().display("  " + line.rstrip())
            return process.wait()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
