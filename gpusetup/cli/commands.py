"""The command table: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit


class Command(Protocol):
    """What a command's module offers: its arguments, and running it. Its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, arguments: argparse.Namespace) -> Exit:
        """Do it, print the answer, return the exit code."""


COMMANDS: dict[str, tuple[str, str]] = {
    "matrix": ("matrix", "look up the compatibility matrix"),
    "matrix diff": ("matrix_releases:diff", "compare two matrices, record by record"),
    "matrix history": ("matrix_releases:history", "show how a component changed between matrix versions"),
    "matrix eol": ("matrix_eol", "show end-of-support dates of the hosts' drivers"),
    "matrix export": ("matrix_releases:export", "export the matrix as one signed file"),
    "matrix import": ("matrix_releases:import", "import a newer matrix after checking its signature"),
    "resolve": ("resolve", "choose one complete stack, with the reason for every choice"),
    "resolve why": ("why", "explain why a component or version is chosen"),
    "resolve why-not": ("why:why_not", "list the rules that forbid a version"),
    "lock": ("lock", "write a stack as a lock, Ansible variables or pip requirements"),
    "facts": ("facts", "show hosts: GPUs, driver, kernel, nouveau, packages"),
    "plan": ("plan", "show what apply would do, per host; changes nothing"),
    "apply": ("apply", "bring hosts to one proven stack; safe to repeat"),
    "verify": ("verify", "prove on the GPU that the stack works"),
    "drift": ("drift", "show what changed since the last apply, and how to fix it"),
    "doctor": ("doctor", "find the cause and the fix for an error message or a sick host"),
    "rollback": ("rollback", "go back to the last verified state"),
    "remove": ("remove", "restore hosts to the state before the first apply"),
    "watch": ("watch", "show all GPUs live: use, memory, power, heat, programs"),
    "cloud-init": ("cloud_init", "write user-data for a machine that sets itself up"),
    "cloud-init status": ("bootstrap:status", "show how far the setup of this machine is"),
    "cloud-init bootstrap": ("bootstrap", "set up this machine; the service calls it at each boot"),
    "bundle": ("bundle", "make one folder with everything for hosts without a network"),
    "bundle pack": ("bundle_files:pack", "pack a bundle into one file, or in parts"),
    "bundle unpack": ("bundle_files:unpack", "unpack a packed bundle and compare every file"),
    "bundle serve": ("bundle_files:serve", "serve a bundle over HTTP or TLS"),
    "bundle mirror": ("mirror", "mirror NVIDIA's repositories, signed with your key"),
    "fleet health": ("health", "verify regularly; take bad machines out of service and back"),
    "fleet history": ("history", "show a host's verifications over time"),
    "fleet compare": ("compare", "compare hosts of one kind: versions, firmware, links, figures"),
    "fleet pull": ("pull", "get this host's lock, apply it within the fleet's budget, report"),
    "fleet collect": ("collect", "serve locks to hosts that pull, and collect their reports"),
    "fleet token": ("collect:token", "make the token of a host or a reader"),
    "fleet forget": ("collect:forget", "remove a host from a collector"),
    "fleet offer": ("collect:offer", "sign a lock for the hosts of a class"),
    "fleet audit": ("audit", "show who changed which host, from a tamper-evident log"),
    "fleet known-hosts": ("known_hosts", "gather and confirm the SSH host keys of an inventory"),
    "export monitoring": ("monitoring", "write Prometheus rules with tests, dashboards, an Alertmanager example"),
    "export handover": ("handover", "write files for Kubernetes, AWX or Slurm"),
    "export schema": ("schema:schema", "print the JSON Schema of a document"),
    "export completion": ("completion", "print completion for a shell"),
    "export content": ("schema:content", "print where the playbooks and roles are"),
}
"""A command's whole name, which one or two words are → its module and its summary.

Behind a colon stands the command's word in a module with several: `run_WORD`, whose docstring is the help, and
`add_WORD_arguments`.
"""
WITHOUT_OWN = {
    "fleet": "many hosts over time: health, reports, locks, keys, audit",
    "export": "files and paths for other programs",
}
"""Words that are no command themselves, only the first word of some."""
ALIASES = {"why": "resolve why", "why-not": "resolve why-not"}
"""Short names that people type and pages show."""
GROUPS = {
    "choose a stack": ("matrix", "resolve", "lock"),
    "hosts": ("facts", "plan", "apply", "verify", "drift", "doctor", "rollback", "remove", "watch"),
    "machine images": ("cloud-init",),
    "sites": ("bundle", "fleet"),
    "other programs": ("export",),
}
"""The first words, as `gpusetup --help` shows them."""


def first_words() -> dict[str, str]:
    """Return each first word with its summary, in the order of the groups."""
    return {word: WITHOUT_OWN.get(word) or COMMANDS[word][1] for words in GROUPS.values() for word in words}


def below(word: str) -> list[str]:
    """Return the second words that a first one has."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{word} ")]


def load_command(name: str) -> Command:
    """Import the module behind a command."""
    place, _, word = COMMANDS[name][0].partition(":")
    module = importlib.import_module(f"gpusetup.cli.{place}")
    if not word:
        return cast("Command", module)
    run, arguments = getattr(module, f"run_{word}"), getattr(module, f"add_{word}_arguments")
    return cast(
        "Command", SimpleNamespace(__doc__=run.__doc__.replace("\n    ", "\n"), add_arguments=arguments, run=run)
    )
