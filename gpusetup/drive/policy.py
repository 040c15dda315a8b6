"""Who may change hosts from this machine: root's file of users, commands, inventories and groups.

It is checked before gpusetup contacts a host or asks for a password. It binds users of gpusetup on this machine only:
with the hosts' SSH key and sudo there they need no gpusetup.
"""

import grp
import os
import pwd
import re
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from gpusetup.drive.argv import Reach
from gpusetup.drive.audit import add, line_of, who
from gpusetup.drive.rundir import state_home
from gpusetup.errors import GpuSetupError, PreflightError, wrong_field
from gpusetup.model import UNDECODED, toml

PLACE = Path("/etc/gpusetup/policy.toml")
THIS_MACHINE = "localhost"
"""Name of the default inventory."""
_TERM = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(\[[0-9:-]+\])?")
_OURS = re.compile(r"gpusetup_[a-z0-9_]+=[^\s{}]*")
"""A value of `-e` that cannot name other hosts or run programs here."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    who: tuple[str, ...]
    """User names, `@group`, `*`."""
    commands: tuple[str, ...] = ("*",)
    inventories: tuple[str, ...] = ("*",)
    """Absolute paths, with `*`; `localhost` is this machine."""
    groups: tuple[str, ...] = ("*",)
    """Groups that `--limit` may name."""


class _Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    allow: tuple[_Rule, ...] = ()


def permitted(command: str, reach: Reach, environment: Mapping[str, str], place: Path | None = None) -> None:
    """Return if the policy allows this; else log the refusal and raise it. Without a policy everything is allowed."""
    place = PLACE if place is None else place
    try:
        policy = _read(place)
        if policy is not None:
            _judge(policy, command, reach, place)
    except GpuSetupError as refusal:
        note = f"{refusal.reference}: {refusal.message}"
        add(state_home(environment), line_of("refused", command, inventory=reach.inventory or "", note=note))
        raise


def _read(place: Path) -> _Policy | None:
    """Return the policy, or None if there is none; raise if others than root can write it."""
    try:
        with place.open("rb") as file:
            for found in (os.fstat(file.fileno()), place.parent.stat()):
                if found.st_uid != 0 or found.st_mode & 0o022:
                    raise PreflightError(
                        "GS-943", f"users other than root may write {place}, so gpusetup changes no host",
                        path=str(place), hint=f"as root: chown root: {place.parent} {place}; chmod go-w the same",
                    )  # fmt: skip
            return msgspec.convert(toml(file.read().decode()), _Policy)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PreflightError(
            "GS-943", f"cannot read who may change hosts: {error.strerror}", path=str(place),
            hint=f"sudo chmod a+r {place}",
        ) from error  # fmt: skip
    except UNDECODED as error:
        text, where = wrong_field(error)
        raise PreflightError(
            "GS-943", f"this is not a valid policy: {text}", path=f"{place}:{where}", note="until then nothing changes",
            hint="docs/guides/trust.md has an example; root can fix it",
        ) from error  # fmt: skip


def _judge(policy: _Policy, command: str, reach: Reach, place: Path) -> None:
    person, names = _person()
    mine = [rule for rule in policy.allow if names & set(rule.who)]
    able = [rule for rule in mine if {command, "*"} & set(rule.commands)]
    here = [rule for rule in able if _inventory(rule, reach.inventory)]
    if any(_hosts(rule, reach) for rule in here):
        return
    if here:
        groups = " or ".join(f"--limit {group}" for rule in here for group in rule.groups if group != "*")
        groups += ("; " if groups else "") + "no -e but gpusetup_NAME=VALUE, no vault password file, nothing behind --"
        said = f"--limit {reach.limit}" if reach.limit else "all hosts"
        message, hint = f"{person} may not {command} {said} of {reach.inventory or THIS_MACHINE}", groups
    elif able:
        message = f"{person} may not {command} {reach.inventory or THIS_MACHINE}"
        hint = f"one of: {', '.join(sorted({name for rule in able for name in rule.inventories}))}"
    else:
        message = f"{person} may not {command} hosts from here"
        others = {name for rule in policy.allow if {command, "*"} & set(rule.commands) for name in rule.who}
        hint = f"ask one of: {', '.join(sorted(others))}" if others else "no one may; root can change that"
    raise PreflightError(
        "GS-944", message, path=str(place), note="gpusetup contacted no host; everyone may run plan and verify",
        hint=hint,
    )  # fmt: skip


def _person() -> tuple[str, set[str]]:
    """Return the user, and the names by which rules can match.

    The login user counts, as the kernel keeps it through su and sudo; without a login (a timer, a service) the user of
    the process. Only root's SUDO_USER is believed: others can set that variable.
    """
    known = who()
    name = known.login or (known.sudo if os.getuid() == 0 else "") or str(os.getuid())
    with suppress(KeyError):
        name = pwd.getpwuid(int(name)).pw_name if name.isdigit() else name
    names = {name, "*"}
    with suppress(KeyError):
        groups = os.getgrouplist(name, pwd.getpwnam(name).pw_gid)
        for group in groups:
            with suppress(KeyError):
                names.add(f"@{grp.getgrgid(group).gr_name}")
    return name, names


def _inventory(rule: _Rule, inventory: str | None) -> bool:
    if "*" in rule.inventories:
        return True
    if inventory is None or "," in inventory:
        return inventory is None and THIS_MACHINE in rule.inventories
    return any(fnmatchcase(str(Path(inventory).resolve()), pattern) for pattern in rule.inventories)


def _hosts(rule: _Rule, reach: Reach) -> bool:
    """Return whether a limit names hosts of the rule's groups only: each term that adds hosts must be a group."""
    if {"*"} == set(rule.groups) == set(rule.inventories):
        return True
    # All other arguments of Ansible can name other hosts, or programs to start.
    if reach.passthrough or reach.vault_password_file or not all(_OURS.fullmatch(word) for word in reach.extra_vars):
        return False
    if "*" in rule.groups:
        return True
    terms = [term.strip() for term in re.split(r"[,:](?![^\[]*\])", reach.limit or "") if term.strip()]
    adding = [term for term in terms if term[0] not in "!&"]
    return bool(adding) and all(_TERM.fullmatch(term) and term.partition("[")[0] in rule.groups for term in adding)
