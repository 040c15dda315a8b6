"""A systemd timer that asks for drift now and then: of this machine as root, of a fleet as the user who reaches it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError, PreflightError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

__all__ = ["command_of", "install", "name_of", "quoted", "remove", "unit_folder", "units"]

OFF = "never"
_SERVICE = """[Unit]
Description=gpusetup: check {what} for drift
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
{environment}ExecStart={command}
# Exit 9, something differs, is a failed unit: `systemctl {user}--failed` and any alert on failed units show it.
Nice=10
TimeoutStartSec=1h
"""
_TIMER = """[Unit]
Description=gpusetup: check {what} for drift

[Timer]
OnCalendar={calendar}
RandomizedDelaySec=10min
Persistent=true

[Install]
WantedBy=timers.target
"""
_KEPT = ("GPUSETUP_STATE", "GPUSETUP_MATRIX", "GPUSETUP_CONTENT", "ANSIBLE_CONFIG", "SSH_AUTH_SOCK", "LANG")
"""What a command on the terminal would have had too; passwords are nowhere among it."""


def command_of(arguments: argparse.Namespace) -> list[str]:
    """Return the same question with absolute names; what would need somebody at a terminal is refused."""
    asked = [
        name
        for name, value in (("-K", arguments.ask_become_pass), ("--ask-vault-pass", arguments.ask_vault_pass))
        if value
    ]
    if asked:
        raise BadInputError(
            "GS-807",
            f"a timer cannot ask for input: {', '.join(asked)}",
            path=asked[0],
            hint="allow passwordless sudo, or use --vault-password-file",
        )
    words = [sys.executable, "-m", "gpusetup", "drift"]
    for option, value in (
        ("--limit", arguments.limit),
        ("--forks", arguments.forks),
        ("--user", arguments.user),
        ("--private-key", _absolute(arguments.private_key)),
        ("--vault-password-file", _absolute(arguments.vault_password_file)),
    ):
        if value is not None:
            words += [option, str(value)]
    handed_on = [word for word in arguments.ansible_arguments if word.startswith(("-e", "--extra"))]
    for item in (*arguments.extra_vars, *handed_on):
        if not item.startswith("@"):
            raise BadInputError(
                "GS-807",
                "everyone on this machine can read a timer's unit, so it must not contain values of --extra-vars",
                path="--extra-vars",
                hint="keep it in the inventory or a vault, or name a file: --extra-vars @FILE",
            )
        words += ["--extra-vars", f"@{_absolute(item[1:])}"]
    if arguments.inventory is not None:
        words.append(str(_absolute(arguments.inventory)))
    return [*words, *(["--", *arguments.ansible_arguments] if arguments.ansible_arguments else [])]


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def name_of(command: Sequence[str], inventory: str | None) -> str:
    """Return the timer's name: one for this machine, one per question about an inventory."""
    if inventory is None:
        return "gpusetup-drift"
    return "gpusetup-drift-" + hashlib.sha256("\0".join(command[3:]).encode()).hexdigest()[:8]


def units(command: Sequence[str], calendar: str, what: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the text of the service and of the timer."""
    kept = [f"{name}={environment[name]}" for name in _KEPT if environment.get(name)]
    if os.geteuid() == 0:
        kept.append(f"HOME={environment.get('HOME', '/root')}")
    service = _SERVICE.format(
        what=_plain(what),
        command=" ".join(quoted(word) for word in command),
        environment="".join(f"Environment={_setting(item)}\n" for item in kept),
        user="" if os.geteuid() == 0 else "--user ",
    )
    return service, _TIMER.format(what=_plain(what), calendar=calendar)


def quoted(word: str) -> str:
    """Return a word of a command as systemd reads it back: quotes, backslashes, specifiers, variables mean nothing."""
    return _setting(word).replace("$", "$$")


def _setting(word: str) -> str:
    """Return a word as systemd reads it back where variables mean nothing anyway."""
    if re.search(r"[\x00-\x1f\x7f]", word):
        raise BadInputError("GS-807", f"a unit file cannot hold {word!r}", path=word, hint="rename it")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _plain(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", " ", text).replace("%", "%%")


def unit_folder(environment: Mapping[str, str]) -> Path:
    """Return where this user's units live."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system")
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return Path(home) / "systemd" / "user"


def install(arguments: argparse.Namespace, environment: Mapping[str, str]) -> str:
    """Write and start the timer; return its name."""
    calendar = arguments.timer
    command = command_of(arguments)
    name = name_of(command, arguments.inventory)
    if re.search(r"[\x00-\x1f\x7f]", calendar) or _run(("systemd-analyze", "calendar", "--", calendar), environment):
        raise BadInputError(
            "GS-807",
            f"{calendar!r} is not a time that systemd understands",
            path="--timer",
            hint="daily, hourly, or such as 'Mon..Fri 06:30'; man 7 systemd.time",
        )
    what = "this machine" if arguments.inventory is None else Path(arguments.inventory).name
    folder = unit_folder(environment)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in zip(("service", "timer"), units(command, calendar, what, environment), strict=True):
        new = folder / f".{name}.{suffix}.new"
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)
        new.replace(folder / f"{name}.{suffix}")
    _systemctl(("daemon-reload",), environment)
    _systemctl(("enable", f"{name}.timer"), environment)
    _systemctl(("restart", f"{name}.timer"), environment)
    return name


def remove(arguments: argparse.Namespace, environment: Mapping[str, str]) -> str:
    """Stop and remove the timer of the same question; return its name, nothing when there was none."""
    name = name_of(command_of(arguments), arguments.inventory)
    paths = [unit_folder(environment) / f"{name}.{suffix}" for suffix in ("timer", "service")]
    if not any(path.exists() for path in paths):
        return ""
    _systemctl(("disable", "--now", f"{name}.timer"), environment)
    for path in paths:
        path.unlink(missing_ok=True)
    _systemctl(("daemon-reload",), environment)
    return name


def _systemctl(words: Sequence[str], environment: Mapping[str, str]) -> None:
    scope = () if os.geteuid() == 0 else ("--user",)
    problem = _run(("systemctl", *scope, *words), environment)
    if problem:
        raise PreflightError(
            "GS-808",
            f"systemd rejected the timer: systemctl {' '.join((*scope, *words))}",
            note=problem,
            hint="is systemd running here? cron can run the same command: gpusetup drift",
        )


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why a command failed, nothing when it did not."""
    from gpusetup.drive.runner import run

    try:
        done = run(argv, env=environment, deadline=60)
    except (OSError, BadInputError) as error:
        return str(error)
    return "" if done.ok else (done.err or done.out).strip()[-600:] or f"exit {done.code}"
