"""Systemd timers that run a gpusetup command regularly: for this machine as root, for a fleet as the user.

On a machine that an apply changed, root's timer is part of its record: `drift` reports changes to it, and `remove`
removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.cli import output
from gpusetup.cli.options import not_together
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError, Exit, PreflightError, reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Mapping, Sequence

    from gpusetup.model.documents import Timer

OFF = "never"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a timer runs."""

    does: str
    """Its description; `{what}` is this machine or the inventory."""
    kind: str = ""
    """Suffix of the timer's name, for commands with several timers on a machine."""
    codes: str = ""
    """Lines of the unit about exit codes."""
    environment: tuple[tuple[str, str], ...] = ()
    longest: str = "1h"
    spread: str = "10min"
    """The greatest random delay, so that machines do not all run at once."""

    @property
    def service_codes(self) -> str:
        """The lines of `codes`, with `--user` for a user's systemd."""
        return self.codes.format(user="" if os.geteuid() == 0 else "--user ")


_KEPT = (
    "GPUSETUP_STATE",
    "GPUSETUP_MATRIX",
    "GPUSETUP_CONTENT",
    "ANSIBLE_CONFIG",
    "SSH_AUTH_SOCK",
    "LANG",
    "KUBECONFIG",
)
"""Environment variables that the timer keeps; none holds a password."""


def add_argument(parser: argparse._ActionsContainer) -> None:
    """Add `--timer`."""
    parser.add_argument(
        "--timer",
        metavar="WHEN",
        help="run regularly with a systemd timer (daily, hourly, 'Mon..Fri 06:30'); never: remove it",
    )


def answer(arguments: argparse.Namespace, task: Task, environment: Mapping[str, str]) -> Exit:
    """Install or remove the timer, and say so."""
    if arguments.format not in ("text", "json"):
        raise not_together("--timer", f"--format {arguments.format}", "it tells of a timer as text or JSON")
    command = command_of(arguments)
    name = name_of(arguments, task.kind)
    from gpusetup.model.documents import Timer

    if arguments.timer == OFF:
        found = Timer(timer=name, state="removed" if _remove(name, environment) else "none")
    else:
        _install(arguments, task, name, command, environment)
        runs = " ".join(quoted(word) for word in command)
        found = Timer(timer=name, state="installed", when=arguments.timer, runs=runs)
    out = arguments.out if getattr(arguments, "answers", False) else None
    return output.answer(arguments.format, found, _timer_text(found), out)


def _timer_text(found: Timer) -> str:
    user, name = "" if os.geteuid() == 0 else "--user ", found.timer
    return {
        "installed": f"{name}.timer runs {found.when}; what it found: "
        f"journalctl {user}-u {name}, systemctl {user}--failed\n",
        "removed": f"removed {name}.timer\n",
        "none": "no such timer\n",
    }[found.state]


_OWN = ("timer", "hooks", "format", "debug", "quiet", "ansible_arguments")
"""Options that are about this call, not about what a timer or a script repeats."""
_REACH = ("inventory", "limit", "forks", "user", "private_key", "vault_password_file", "extra_vars")


def typed(arguments: argparse.Namespace, only: Container[str] = ()) -> list[str]:
    """Return what was typed after the command, for a timer or a script to repeat, with absolute paths."""
    from gpusetup.cli.main import command_parser

    words, places = [], []
    left = (*_OWN, "out") if getattr(arguments, "answers", False) else _OWN  # else it is the folder of a mirror
    for one in command_parser(arguments.command).arguments:
        value = getattr(arguments, one.dest, None)
        if value is None or value == one.default or one.dest in left or (only and one.dest not in only):
            continue
        for item in value if isinstance(value, list) else [value]:
            text = f"{item:g}" if isinstance(item, float) else str(item)
            if one.metavar in ("FILE", "DIR") or (one.dest == "inventory" and Path(text).exists()):
                text = str(Path(text).absolute())
            if text.startswith("@") and one.dest == "extra_vars":
                text = f"@{Path(text[1:]).absolute()}"
            option = "".join(one.option_strings[:1])
            if not option:
                places.append(text)
            elif item is True:
                words.append(option)
            else:
                words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words + places


def command_of(arguments: argparse.Namespace) -> list[str]:
    """Return the timer's command; refuse options that would ask for input, and values that units must not contain."""
    options = (("-K", "ask_become_pass"), ("--ask-vault-pass", "ask_vault_pass"))
    asked = [option for option, name in options if getattr(arguments, name, False)]
    if asked:
        raise BadInputError(
            "GS-807",
            f"a timer cannot ask for input: {', '.join(asked)}",
            path=asked[0],
            hint="allow passwordless sudo, or use --vault-password-file",
        )
    passed = getattr(arguments, "ansible_arguments", [])
    handed_on = [word for word in passed if word.startswith(("-e", "--extra"))]
    if not all(item.startswith("@") for item in (*getattr(arguments, "extra_vars", ()), *handed_on)):
        raise BadInputError(
            "GS-807",
            "everyone on this machine can read a timer's unit, so it must not contain values of --extra-vars",
            path="--extra-vars",
            hint="keep it in the inventory or a vault, or name a file: --extra-vars @FILE",
        )
    words = [sys.executable, "-m", "gpusetup", *arguments.command.split(), *typed(arguments)]
    return [*words, *(["--", *passed] if passed else [])]


def name_of(arguments: argparse.Namespace, kind: str) -> str:
    """Return the timer's name: one for this machine, one per set of hosts and ways to reach them."""
    name = f"gpusetup-{arguments.command.split()[-1]}" + (f"-{kind}" if kind else "")
    if getattr(arguments, "inventory", None) is None:
        return name
    reached = (arguments.command, *typed(arguments, _REACH), *arguments.ansible_arguments)
    return f"{name}-" + hashlib.sha256("\0".join(reached).encode()).hexdigest()[:8]


def units(
    task: Task, command: Sequence[str], calendar: str, what: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the text of the service and of the timer, by suffix."""
    kept = [f"{name}={environment[name]}" for name in _KEPT if environment.get(name)]
    kept += [f"{name}={value}" for name, value in task.environment]
    if os.geteuid() == 0:
        kept.append(f"HOME={environment.get('HOME', '/root')}")
    does = _plain(task.does.replace("{what}", what))
    data = Path(__file__).with_name("data")
    service = (
        data.joinpath("command.service")
        .read_text(encoding="utf-8")
        .format(
            does=does,
            command=" ".join(quoted(word) for word in command),
            environment="".join(f"Environment={_setting(item)}\n" for item in kept),
            codes=task.service_codes,
            longest=task.longest,
        )
    )
    timer = data.joinpath("command.timer").read_text(encoding="utf-8")
    return {"service": service, "timer": timer.format(does=does, calendar=calendar, spread=task.spread)}


def quoted(word: str) -> str:
    """Quote a word of a command for systemd: quotes, backslashes, specifiers and variables are escaped."""
    return _setting(word).replace("$", "$$")


def _setting(word: str) -> str:
    """Quote a word for a setting in which systemd expands no variables."""
    if re.search(r"[\x00-\x1f\x7f]", word):
        raise BadInputError("GS-807", f"a unit file cannot hold {word!r}", path=word, hint="rename it")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _plain(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", " ", text).replace("%", "%%")


def unit_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of this user's units."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system")
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return Path(home) / "systemd" / "user"


def _install(
    arguments: argparse.Namespace, task: Task, name: str, command: Sequence[str], environment: Mapping[str, str]
) -> None:
    calendar = arguments.timer
    if re.search(r"[\x00-\x1f\x7f]", calendar) or _run(("systemd-analyze", "calendar", "--", calendar), environment):
        raise BadInputError(
            "GS-807",
            f"{calendar!r} is not a time that systemd understands",
            path="--timer",
            hint="daily, hourly, or such as 'Mon..Fri 06:30'; man 7 systemd.time",
        )
    inventory = getattr(arguments, "inventory", None)
    what = "this machine" if inventory is None else Path(inventory).name
    folder = unit_folder(environment)
    ledger = record(inventory)
    again = shlex.join(["gpusetup", *command[3:], "--timer", calendar])
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in units(task, command, calendar, what, environment).items():
        path = folder / f"{name}.{suffix}"
        if ledger is not None:
            ledger.write(str(path), text)
            ledger.mend_by(str(path), again)
        else:
            write_whole(path, text.encode())
    if ledger is not None:
        ledger.note_timer(f"{name}.timer")
    _systemctl(("daemon-reload",), environment)
    _systemctl(("enable", f"{name}.timer"), environment)
    _systemctl(("restart", f"{name}.timer"), environment)


def _remove(name: str, environment: Mapping[str, str]) -> bool:
    paths = [unit_folder(environment) / f"{name}.{suffix}" for suffix in ("timer", "service")]
    ledger = record(None)
    known = ledger is not None and any(str(path) in ledger.state["files"] for path in paths)
    if not known and not any(path.exists() for path in paths):
        return False
    if paths[0].exists():
        _systemctl(("disable", "--now", f"{name}.timer"), environment)
    for path in paths:
        if ledger is not None and str(path) in ledger.state["files"]:
            ledger.restore(str(path))
        path.unlink(missing_ok=True)
    if ledger is not None:
        ledger.forget_timer(f"{name}.timer")
    _systemctl(("daemon-reload",), environment)
    return True


_STATE = Path("/var/lib/gpusetup")


def record(inventory: str | None) -> Any:
    """Return this machine's record for a timer without an inventory, or None if no apply left one or without root."""
    if inventory is not None or os.geteuid() != 0 or not (_STATE / "state.json").exists():
        return None
    from gpusetup.content import host_code

    return host_code("gpu_host.ledger").Ledger(str(_STATE))


def _systemctl(words: Sequence[str], environment: Mapping[str, str]) -> None:
    scope = () if os.geteuid() == 0 else ("--user",)
    problem = _run(("systemctl", *scope, *words), environment)
    if problem:
        raise PreflightError(
            "GS-808", f"systemd rejected the timer: systemctl {' '.join((*scope, *words))}", note=problem
        )


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command; return why it failed, or an empty string."""
    from gpusetup.drive.runner import run

    try:
        done = run(argv, env=environment, deadline=60)
    except (OSError, BadInputError) as error:
        return reason(error)
    return "" if done.ok else (done.err or done.out).strip()[-600:] or f"exit {done.code}"
