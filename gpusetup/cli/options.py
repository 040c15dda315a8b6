"""Arguments that several commands share."""
# ruff: noqa: PTH100, PTH116, PTH118 - importing pathlib slows lookups

from __future__ import annotations

import errno
import os
import re
import stat
from itertools import islice
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpusetup.cli.grammar import Parser
    from gpusetup.rollout.options import Freeing

ARCHES = ("x86_64", "aarch64")
_NEEDS = r"with ((?:--[a-z-]+(?: stress)?(?:, | or )?)+): "
"""The start of an option's help that says beside which other options alone it has an effect."""
_REACH = (
    "--limit", "--forks", "--user", "--private-key",
    "--ask-become-pass", "--ask-vault-pass", "--vault-password-file", "--extra-vars", "-- ARGS",
)  # fmt: skip
"""The options to reach hosts with Ansible; the first four mean other hosts than this machine."""
_WITHOUT_ANSIBLE = ("facts", "verify", "watch")
"""Commands that look at this machine without Ansible."""
_LONGEST = 10**9
"""In bytes. gpusetup reads files whole."""
_DESTS = {"REQ": "requirements", "--from": "facts"}
_ARCHES_SAID = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64", "sbsa": "aarch64"}


def arch_name(text: str) -> str:
    """Return the kernel's name of a CPU architecture, also for names such as `amd64` and `arm64`."""
    lowered = text.lower()
    return _ARCHES_SAID.get(lowered, lowered)


def not_together(first: str, second: str, why: str) -> BadInputError:
    """Return the error for two options of which one would be ignored."""
    return BadInputError(
        "GS-137", f"{first} cannot be used with {second}: {why}", path=second, hint=f"leave out {second}"
    )


def refuse_beside(arguments: argparse.Namespace, first: str, why: str, *others: str) -> None:
    """Refuse those of the other options that are given: they would have no effect beside the first."""
    for option in others:
        if getattr(arguments, _DESTS.get(option) or option.lstrip("-").replace("-", "_")):
            raise not_together(first, option, why)


def check_numbers(arguments: argparse.Namespace, *names: str, least: int = 0) -> None:
    """Refuse numbers that are below `least`, infinite or none."""
    for name in names:
        value, option = getattr(arguments, name), f"--{name.replace('_', '-')}"
        if value is not None and not least <= value < float("inf"):
            raise BadInputError("GS-140", f"{option} must be {least} or more, not {value:g}", path=option)


def refuse_idle(arguments: argparse.Namespace, parser: Parser) -> None:
    """Refuse an option that would have no effect: without what its help names (`with --OTHER: …`), or a host's login.

    An option to reach hosts needs hosts: without an inventory a command is about this machine.
    """
    known = {option: one for one in parser.arguments for option in one.option_strings}
    given = [name for name, one in known.items() if getattr(arguments, one.dest, one.default) != one.default]
    given += ["-- ARGS"] if getattr(arguments, "ansible_arguments", ()) else []
    words = {*given, f"--level {getattr(arguments, 'level', '')}"}
    for name in given:
        told = re.match(_NEEDS, known[name].help or "") if name in known else None
        needed = re.split(", | or ", told[1]) if told else []
        if needed and not words & set(needed):
            raise BadInputError(
                "GS-137", f"{name} has no effect without {' or '.join(needed)}", path=name,
                hint=f"add {needed[0]}, or leave out {name}",
            )  # fmt: skip
        if name in _REACH[: None if arguments.command in _WITHOUT_ANSIBLE else 4] and not arguments.inventory:
            raise BadInputError(
                "GS-137", f"{name} has no effect without an inventory", path=name,
                hint=f"name an inventory, or leave out {name}: without one, this machine is meant",
            )  # fmt: skip


def _refuse_unwritable(name: str, option: str, *, folder: bool) -> None:
    """Refuse a file or folder that cannot be written; its folders need not exist yet."""
    from pathlib import Path

    out = Path(name).absolute()
    there = next(place for place in (out, *out.parents) if place.exists())
    whole = there == out and not folder
    wrong = errno.EISDIR if whole and out.is_dir() else errno.ENOTDIR if not whole and not there.is_dir() else 0
    if wrong or not os.access(there, os.W_OK):
        raise BadInputError(
            "GS-103", f"cannot write {name}: {os.strerror(wrong or errno.EACCES)}", path=name,
            hint=f"give another {'folder' if folder else 'file'} with {option}",
        )  # fmt: skip


def check_arguments(arguments: argparse.Namespace, parser: Parser) -> None:
    """Refuse, before any work, no forks, and a file or folder that is an address, too long, or not to be written.

    Refuse also to read devices and named pipes, except ones already open: reading them could block forever.
    """
    if "forks" in arguments:
        check_numbers(arguments, "forks", least=1)
    for one in parser.arguments:
        named = getattr(arguments, one.dest, None) if one.metavar in ("FILE", "DIR") else None
        for name in named if isinstance(named, list) else [named or ""]:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name):
                kind = "file" if one.metavar == "FILE" else "folder"
                raise BadInputError(
                    "GS-105", f"{name} is an address, not a {kind} of this machine",
                    path="".join(one.option_strings[:1]) or str(one.metavar),
                    hint="read: download it first, and name the file; write: name a file, and upload it afterwards",
                )  # fmt: skip
    if getattr(arguments, "answers", False) and arguments.out == "-":
        arguments.out = None  # standard output, as for other programs
    written = {"out", "csv", "html", "observations", "lease_out", "bundle", "textfile"}
    written |= {"lock"} if arguments.command == "resolve" else set()
    for one in parser.arguments:
        if one.dest in written and (name := getattr(arguments, one.dest)) not in (None, "-"):
            _refuse_unwritable(name, one.option_strings[0], folder=one.metavar == "DIR")
    unread = {*written, "ansible_arguments"}
    if arguments.command == "doctor" and len(arguments.inventory) > 1:
        unread.add("inventory")  # the words of a message, which may name a device
    read = [(option, value) for option, value in vars(arguments).items() if option not in unread]
    words = [(option, name) for option, value in read for name in (value if isinstance(value, list) else [value])]
    for option, name in ((option, name) for option, name in words if name and isinstance(name, str)):
        try:
            found = os.stat(name)
        except (OSError, ValueError) as error:  # also a message that is too long for a file's name
            if getattr(error, "errno", 0) == errno.ELOOP:
                raise
            continue
        mode = found.st_mode
        if stat.S_ISREG(mode) and found.st_size > _LONGEST:
            raise BadInputError(
                "GS-105", f"{name} has {found.st_size / 1e9:.1f} GB, and gpusetup reads files of up to 1 GB", path=name,
                hint="of a log give the last part: tail -c 100M",
            )  # fmt: skip
        if os.path.abspath(name).startswith(("/dev/std", "/dev/fd/", "/proc/")) or stat.S_ISREG(mode):
            continue
        if stat.S_ISDIR(mode) and option not in ("check", "folder", "inventory"):  # no other is read as a whole
            continue
        inside = (os.path.join(at, file) for at, _, files in islice(os.walk(name), 1000) for file in files)
        if pipe := next(filter(_is_pipe, inside), None) if stat.S_ISDIR(mode) else name:
            raise BadInputError(
                "GS-139", f"{pipe} is not a file: reading it could wait for ever", path=name,
                hint=f"name /dev/stdin in its place, and add: < {name}" if pipe == name else "move it elsewhere",
            )  # fmt: skip


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:  # a file that this user may not even look at is none that a command reads
        return False


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json")) -> None:
    """Add `--format` and `--out`."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=formats, default=formats[0], help="default: %(default)s")
    group.add_argument("--out", metavar="FILE", help="write the answer to FILE")
    parser.set_defaults(answers=True)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add `--format` alone, for commands whose `--out` is not the file of the answer."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")


def add_requirements(parser: argparse.ArgumentParser) -> None:
    """Add the positional REQ arguments."""
    parser.add_argument(
        "requirements",
        nargs="*",
        metavar="REQ",
        help="a component, with or without a version: torch==2.6.*, 'cuda>=12.4', driver==580.*, cudnn, nccl, cupy, "
        "jax, python==3.11, torch==2.7.1+cu128, vllm, …",
    )


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a machine and the rules of compatibility."""
    group = parser.add_argument_group("machine")
    gpus = group.add_mutually_exclusive_group()
    gpus.add_argument(
        "--gpu", action="append", default=[], metavar="NAME", help="GPU, repeatable: h100, 'rtx 4090', 10de:2335, sm_90"
    )
    gpus.add_argument("--on", metavar="TYPE", help="machine type of a cloud, such as p5.48xlarge")
    group.add_argument("--os", metavar="ID", help="distribution: ubuntu24.04, 'RHEL 9', bookworm, amzn2023, …")
    group.add_argument("--arch", type=arch_name, choices=ARCHES, help="CPU architecture")
    group.add_argument("--driver", metavar="VERSION", help="the installed driver; it is kept")
    group.add_argument("--python", metavar="X.Y", help="for this Python; the same as python==X.Y")
    group.add_argument("--from", dest="facts", metavar="FILE", help="facts of hosts, or uv.lock, pyproject.toml, …")
    rules = parser.add_argument_group("compatibility")
    rules.add_argument("--native", action="store_true", help="no minor-version compatibility")
    rules.add_argument(
        "--allow-builds", action="store_true", help="also packages without a wheel, which are built on the host"
    )
    rules.add_argument("--forward", action="store_true", help="allow forward compatibility (cuda-compat packages)")
    add_vulnerable(rules)


def add_vulnerable(group: argparse._ArgumentGroup) -> None:
    """Add `--allow-vulnerable`."""
    group.add_argument(
        "--allow-vulnerable",
        action="store_true",
        help="do not prefer drivers without a known vulnerability (CVSS 7.0 and above)",
    )


def add_newer(parser: argparse.ArgumentParser) -> None:
    """Add `--newer`."""
    parser.add_argument(
        "--newer",
        action="store_true",
        help="ask PyPI and NVIDIA's list of drivers about releases newer than the matrix",
    )


def add_inventory(parser: argparse.ArgumentParser, without: str = "this machine") -> argparse.Action:
    """Add INVENTORY and the options that Ansible needs to reach its hosts; `without` is what stands for one."""
    add_reach(parser)
    told = f"anything that ansible-playbook -i takes; without it: {without}"
    return parser.add_argument("inventory", nargs="?", metavar="INVENTORY", help=told)


def add_reach(parser: argparse.ArgumentParser) -> None:
    """Add the options that Ansible needs to reach hosts."""
    group = parser.add_argument_group("hosts (passed to Ansible; -- ARGS at the end passes on anything else)")
    group.add_argument("--limit", "-l", metavar="PATTERN", help="only these hosts or groups")
    group.add_argument("--forks", "-f", type=int, metavar="N", help="number of hosts to work on at once")
    group.add_argument("--user", "-u", metavar="NAME", help="log in as this user")
    group.add_argument("--private-key", metavar="FILE", help="key to log in with")
    group.add_argument("--ask-become-pass", "-K", action="store_true", help="ask for the sudo password")
    group.add_argument("--ask-vault-pass", action="store_true", help="ask for the vault password")
    group.add_argument("--vault-password-file", metavar="FILE", help="file that holds the vault password")
    group.add_argument("--extra-vars", "-e", action="append", default=[], metavar="VARS", help="as in Ansible")
    parser.set_defaults(ansible_arguments=[])


def add_draining(parser: argparse.ArgumentParser, needs: str = "") -> None:
    """Add the options for draining hosts before they change; `needs` begins their help."""
    group = parser.add_argument_group("running work on the hosts (gpusetup waits for it, never stops it)")
    group.add_argument(
        "--drain",
        metavar="HOW",
        default="",
        help=f"{needs}slurm, kubernetes, or a command with {{node}} in it: exit 0 done, 75 busy",
    )
    group.add_argument(
        "--undrain",
        metavar="COMMAND",
        default="",
        help="with --drain: the command that returns {node} to service, if --drain is a command",
    )
    group.add_argument(
        "--drain-via", metavar="WORDS", default="", help="with --drain: prefix for the scheduler's commands: 'ssh head'"
    )
    group.add_argument(
        "--drain-wait", metavar="MINUTES", type=float, default=60.0,
        help="with --drain: wait this long for running jobs, then leave the host unchanged; default: %(default)g",
    )  # fmt: skip
    group.add_argument(
        "--busy-wait", metavar="MINUTES", type=float, default=0.0,
        help=f"{needs}wait this long for programs on a GPU whose driver changes; default: %(default)g",
    )  # fmt: skip


def freeing(arguments: argparse.Namespace) -> Freeing:
    """Return the arguments of `add_draining`."""
    from gpusetup.rollout.options import Freeing

    check_numbers(arguments, "drain_wait", "busy_wait")
    return Freeing(
        drain=arguments.drain, undrain=arguments.undrain, via=arguments.drain_via,
        drain_minutes=arguments.drain_wait, busy_minutes=arguments.busy_wait,
    )  # fmt: skip
