"""The command table: a command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit

__all__ = ["COMMANDS", "Command", "load_command"]


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
    "matrix import": ("matrix_import", "take a newer matrix in, proven first"),
    "resolve": ("resolve", "one complete stack, with the reason for every choice"),
    "why": ("why", "why a component or version is chosen"),
    "why-not": ("why_not", "which rules forbid a version"),
    "facts": ("facts", "show hosts: GPUs, driver, kernel, nouveau, packages"),
    "plan": ("plan", "show what apply would do, per host; changes nothing"),
    "apply": ("apply", "bring hosts to one proven stack; safe to repeat"),
    "verify": ("verify", "prove on the GPU that the stack works"),
    "rollback": ("rollback", "go back to the last verified state"),
    "remove": ("remove", "restore hosts to the state before the first apply"),
    "history": ("history", "what the verifications of a host found over time"),
    "known-hosts": ("known_hosts", "gather and prove the SSH host keys of an inventory"),
    "audit": ("audit", "who changed what on which host, in a log that proves itself"),
    "drift": ("drift", "what changed since the last apply, and how to fix it"),
    "lock": ("lock", "the resolved stack as a lock, Ansible variables or pip requirements"),
    "compare": ("compare", "what sets hosts of one kind apart: versions, firmware, links, settings, figures"),
    "watch": ("watch", "what the GPUs of hosts do at this moment"),
    "monitoring": ("monitoring", "rules for Prometheus with their tests, dashboards, an Alertmanager example"),
    "handover": ("handover", "what another engine needs, so that nothing is done twice"),
    "doctor": ("doctor", "find the cause and the fix for an error message or a sick host"),
    "bundle": ("bundle", "a folder from which hosts without a network are set up, every file by its digest"),
    "mirror": ("mirror", "what the matrix knows of NVIDIA's repositories, kept fresh for hosts of a site"),
    "bundle pack": ("bundle_pack", "a bundle as one file, or in parts"),
    "bundle unpack": ("bundle_unpack", "a packed bundle as a folder again, every file compared"),
    "bundle serve": ("bundle_serve", "a bundle for hosts that fetch, over HTTP or TLS"),
    "pull": ("pull", "have this host ask for its lock, apply it within the fleet's budget and report"),
    "collect": ("collect", "take the reports of hosts that pull, and hand them their locks"),
    "collect token": ("collect_token", "the token with which a host reports, or a reader reads"),
    "collect offer": ("collect_offer", "sign a lock for the hosts of a class"),
    "cloud-init": ("cloud_init", "user-data for a machine that sets itself up"),
    "bootstrap": ("bootstrap", "what such a machine runs by itself at each boot"),
    "status": ("status", "show the bootstrap progress of this machine"),
    "content": ("content", "show where the playbooks and roles are"),
    "schema": ("schema", "the JSON Schema of a document that gpusetup prints"),
    "completion": ("completion", "what a shell needs to complete gpusetup's words"),
}


def load_command(name: str) -> Command:
    """Import the module behind a command."""
    module, _ = COMMANDS[name]
    return cast("Command", importlib.import_module(f"gpusetup.cli.{module}"))
