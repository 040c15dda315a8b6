"""Open a drive session from the command line: inventory, reach, passwords, run directory."""

import argparse
import getpass
import os
import sys

from gpusetup.cli.output import aside, warn
from gpusetup.content import collections_path
from gpusetup.drive.argv import Reach
from gpusetup.drive.playbook import Session
from gpusetup.drive.policy import permitted
from gpusetup.drive.progress import watch
from gpusetup.drive.rundir import new_run, state_home
from gpusetup.drive.secrets import keep_to_myself
from gpusetup.errors import BadInputError
from gpusetup.facts import fleet
from gpusetup.facts.collect import Lookup, matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model import visible
from gpusetup.model.facts import Facts
from gpusetup.rollout.batches import unfinished


def open_session(arguments: argparse.Namespace) -> Session:
    """Return the session for the arguments of `options.add_inventory`; ask for passwords before any work."""
    reach = Reach(
        inventory=arguments.inventory,
        limit=arguments.limit,
        forks=arguments.forks,
        user=arguments.user,
        private_key=arguments.private_key,
        vault_password_file=arguments.vault_password_file,
        extra_vars=tuple(arguments.extra_vars),
        passthrough=tuple(arguments.ansible_arguments),
    )
    if (limit := arguments.limit or "").count("[") != limit.count("]"):
        what = f"a bracket in --limit {limit} is not closed: Ansible would drop the rest, and may take every host"
        raise BadInputError("GS-407", what, path="--limit", hint="as in --limit 'gpu0*' or --limit '~gpu0[1-8]'")
    if _changes(arguments):
        permitted(arguments.command, reach, os.environ)
    if arguments.ask_become_pass or arguments.ask_vault_pass:
        keep_to_myself()
    become = _ask("sudo password: ") if arguments.ask_become_pass else None
    vault = _ask("vault password: ") if arguments.ask_vault_pass else None
    session = Session(
        run=new_run(state_home(os.environ), spared=unfinished),
        collections=collections_path(),
        reach=reach,
        environment=dict(os.environ),
        become_password=become,
        vault_password=vault,
        command=arguments.command,
        warn=warn,
    )
    session.expect_playbooks()
    return session


def names_of_gpus() -> Lookup:
    """Return the matrix's lookup of GPU names."""
    return matrix_lookup(matrix())


def facts_of_hosts(arguments: argparse.Namespace) -> Facts:
    """Collect facts of the hosts on the command line, without querying package repositories."""
    with watch(aside(), phase="facts") as observer:
        return fleet.look(open_session(arguments), names_of_gpus(), candidates=False, observer=observer).facts


def _changes(arguments: argparse.Namespace) -> bool:
    """Return whether this command may change hosts; everybody may run those that only look."""
    looks = any(getattr(arguments, name, False) for name in ("check", "list", "dry_run"))
    changes = arguments.command in ("apply", "remove", "rollback") or bool(getattr(arguments, "apply", False))
    return changes and not looks


def _ask(prompt: str) -> str:
    """Ask on the terminal, or read a line of standard input if it is not a terminal."""
    if sys.stdin is None or sys.stdin.closed:
        raise BadInputError("GS-104", f"cannot ask for the {prompt.rstrip(': ')}", hint="run the command in a terminal")
    if not sys.stdin.isatty():
        try:
            return sys.stdin.readline().rstrip("\n")
        except UnicodeDecodeError as error:
            told = f"the {prompt.rstrip(': ')} on standard input is not text in UTF-8"
            raise BadInputError("GS-104", told, path="standard input") from error
    return getpass.getpass(prompt)


def agreed(arguments: argparse.Namespace, shown: str, question: str) -> bool:
    """Ask for confirmation; return False without a terminal, or if the answer is not text."""
    if arguments.format != "text" or not (sys.stdin and sys.stdin.isatty()):
        return False
    print(visible(shown, "\n"), file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
