"""Verify hosts regularly; take bad machines out of service and return good ones.

--timer installs a systemd timer. --quarantine drains a bad machine in Slurm or Kubernetes and returns it after good
verifications in a row; --on-bad and --on-good run your commands. --hooks writes the files that Slurm and Kubernetes
call. Without --timer and --hooks it verifies once, and acts. Without INVENTORY: this machine. Exit code 8 when a
check failed.

examples:
  gpusetup fleet health --timer hourly
  gpusetup fleet health --timer 'Sun 04:00' --level full
  gpusetup fleet health --quarantine slurm --hooks slurm
  gpusetup fleet health --timer '*:0/5' --on-bad '/usr/local/bin/page {node} {reason}'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli import options, timers, verify, verify_quarantine

if TYPE_CHECKING:
    import argparse

    from gpusetup.errors import Exit

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    options.add_engine(parser)
    group = parser.add_argument_group("schedule")
    timers.add_argument(group)
    verify_quarantine.add_arguments(parser.add_argument_group("out of service and back"))
    parser.add_argument_group("files for schedulers").add_argument(
        "--hooks", choices=("slurm", "kubernetes", timers.SHOW, timers.OFF),
        help="write what Slurm and Kubernetes call, with these options; show: list it; never: remove it",
    )  # fmt: skip
    verify.add_checks(parser, level="quick")
    options.add_output(parser, formats=verify.FORMATS)
    parser.set_defaults(**verify.ONCE)


def run(arguments: argparse.Namespace) -> Exit:
    """Install, show or remove the timer or the hooks; else verify once and act."""
    verify_quarantine.check(arguments)
    if arguments.hooks is not None:
        from gpusetup.cli.verify_hooks import hooks

        return hooks(arguments)
    if arguments.timer is not None:
        from gpusetup.cli.verify_timer import timed

        return timed(arguments)
    return verify.verified(arguments)
