"""The command table: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit

__all__ = ["ALIASES", "COMMANDS", "GROUPS", "WITHOUT_OWN", "Command", "below", "first_words", "load_command"]


class Command(Protocol):
    """What a command's module offers: its arguments, and running it. Its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, arguments: argparse.Namespace) -> Exit:
        """Do it, print the answer, return the exit code."""


COMMANDS: dict[str, tuple[str, str]] = {
    "matrix": ("matrix", "look up the compatibility matrix"),
    "matrix diff": ("matrix_diff", "what two matrices say differently"),
    "matrix history": ("matrix_history", "what each matrix on this machine brought for a component"),
    "matrix eol": ("matrix_eol", "until when the drivers of hosts are supported"),
    "matrix export": ("matrix_export", "the matrix in one file, signed"),
    "matrix import": ("matrix_import", "use a newer matrix, after its signature is checked"),
    "resolve": ("resolve", "one complete stack, with the reason for every choice"),
    "resolve why": ("why", "why a component or version is chosen"),
    "resolve why-not": ("why_not", "which rules forbid a version"),
    "lock": ("lock", "the resolved stack as a lock, Ansible variables or pip requirements"),
    "facts": ("facts", "show hosts: GPUs, driver, kernel, nouveau, packages"),
    "plan": ("plan", "show what apply would do, per host; changes nothing"),
    "apply": ("apply", "bring hosts to one proven stack; safe to repeat"),
    "verify": ("verify", "prove on the GPU that the stack works"),
    "drift": ("drift", "what changed since the last apply, and how to fix it"),
    "doctor": ("doctor", "find the cause and the fix for an error message or a sick host"),
    "rollback": ("rollback", "go back to the last verified state"),
    "remove": ("remove", "restore hosts to the state before the first apply"),
    "watch": ("watch", "what the GPUs of hosts do at this moment"),
    "cloud-init": ("cloud_init", "user-data for a machine that sets itself up"),
    "cloud-init status": ("status", "how far the setup of this machine is"),
    "cloud-init bootstrap": ("bootstrap", "what such a machine runs at each boot"),
    "bundle": ("bundle", "one folder with everything for hosts without a network"),
    "bundle pack": ("bundle_pack", "a bundle as one file, or in parts"),
    "bundle unpack": ("bundle_unpack", "a packed bundle as a folder again, every file compared"),
    "bundle serve": ("bundle_serve", "a bundle for hosts that fetch, over HTTP or TLS"),
    "bundle mirror": ("mirror", "a mirror of NVIDIA's repositories with what the matrix knows"),
    "fleet health": ("health", "verify regularly; take bad machines out of service and back"),
    "fleet history": ("history", "what the verifications of a host found over time"),
    "fleet compare": ("compare", "what differs between hosts of one kind: versions, firmware, links, figures"),
    "fleet pull": ("pull", "have this host fetch its lock, apply it within the fleet's budget and report"),
    "fleet collect": ("collect", "receive the reports of hosts that pull, and give them their locks"),
    "fleet token": ("collect_token", "the token with which a host reports, or a reader reads"),
    "fleet forget": ("collect_forget", "have a collector forget a host that is gone"),
    "fleet offer": ("collect_offer", "sign a lock for the hosts of a class"),
    "fleet audit": ("audit", "who changed what on which host, in a log that proves itself"),
    "fleet known-hosts": ("known_hosts", "gather and prove the SSH host keys of an inventory"),
    "export monitoring": ("monitoring", "Prometheus rules with tests, dashboards, an Alertmanager example"),
    "export handover": ("handover", "files for Kubernetes, AWX or Slurm, so that nothing is done twice"),
    "export schema": ("schema", "the JSON Schema of a document that gpusetup prints"),
    "export completion": ("completion", "completion for a shell"),
    "export content": ("content", "where the playbooks and roles are"),
}
"""A command's whole name, which one or two words are → its module and its summary."""
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
    module, _ = COMMANDS[name]
    return cast("Command", importlib.import_module(f"gpusetup.cli.{module}"))
