"""What is wanted of all hosts, as the command line says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from gpusetup.rollout.options import Wishes

__all__ = ["add_reboot", "add_way_back", "add_wishes", "wishes_of"]


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """Add what is said for all hosts on the command line; inventory and gpusetup.toml win over it."""
    group = parser.add_argument_group("requirements (an inventory's gpusetup_ variables and gpusetup.toml win)")
    group.add_argument("--want", "-w", action="append", default=[], metavar="REQ", help="torch==2.6.*, 'cuda>=12.4', …")
    group.add_argument("--source", metavar="WHERE", help="nvidia, distro, the URL of a mirror or the path of a bundle")
    add_reboot(group)
    group.add_argument("--upgrade", action="store_true", help="choose new versions; do not keep the recorded ones")
    group.add_argument("--replace", action="store_true", help="remove a driver from another source, .run included")
    add_way_back(group)


def add_reboot(group: argparse._ArgumentGroup) -> None:
    """Add who may reboot: the one wish that no inventory makes less careful."""
    group.add_argument(
        "--reboot",
        choices=("never", "when-needed", "schedule"),
        help="the more careful of this and the inventory wins; this machine: never",
    )


def add_way_back(group: argparse._ArgumentGroup) -> None:
    """Add whether hosts may change that could not go back."""
    group.add_argument(
        "--no-way-back",
        action="store_true",
        help="change a host even if its installed packages could not be had again",
    )


def wishes_of(arguments: argparse.Namespace) -> Wishes:
    """Return what `add_wishes` describes."""
    from gpusetup.resolve.requests import parse_requirements
    from gpusetup.rollout.options import Wishes

    return Wishes(
        requirements=parse_requirements(list(arguments.want)),
        source=arguments.source,
        reboot=arguments.reboot,
        replace=arguments.replace,
        no_way_back=arguments.no_way_back,
        upgrade=arguments.upgrade,
    )
