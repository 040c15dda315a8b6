"""python -m tests.lab: the lab's hosts from the command line."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.lab.places import CHECKOUT, LabError

INVENTORY = CHECKOUT / "inventory" / "lab.ini"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Throw-away hosts with simulated GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("up", "build what the inventory names and is not there"),
        ("down", "take the inventory's hosts down; --all: every lab host"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--inventory", type=Path, default=INVENTORY, help="default: inventory/lab.ini")
        command.add_argument("--host", action="append", default=[], help="only this host (repeatable)")
        if name == "down":
            command.add_argument("--all", action="store_true")
    commands.add_parser("status", help="the hosts there are")
    ssh = commands.add_parser("ssh", aliases=["exec"], help="a shell on a host, or one command")
    ssh.add_argument("host")
    ssh.add_argument("argv", nargs=argparse.REMAINDER)
    power = commands.add_parser("power", help="cut, on, reboot, unplug or plug a host")
    power.add_argument("action", choices=["cut", "on", "reboot", "unplug", "plug"])
    power.add_argument("host")
    platforms = commands.add_parser(
        "platforms", help="for molecule: a list of platforms on stdin; says how to reach them"
    )
    platforms.add_argument("action", choices=["up", "down"])
    arguments = parser.parse_args()
    try:
        return COMMANDS[arguments.command](arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 5


def _up(arguments: argparse.Namespace) -> int:
    from tests.lab import fleet

    started = time.monotonic()
    specs = fleet.specs_of(arguments.inventory)
    hosts = fleet.up([spec for spec in specs if not arguments.host or spec.name in arguments.host])
    for host in hosts:
        print(f"{host.name}  {host.address}  {host.spec.flavour}  {host.spec.machine}")
    count = f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}"
    print(f"{count} up in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    from tests.lab import fleet
    from tests.lab.host import Host

    if arguments.all:
        names = [spec.name for spec in Host.all_specs()]
    else:
        names = arguments.host or [spec.name for spec in fleet.specs_of(arguments.inventory)]
    fleet.down(names)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from tests.lab.host import Host

    for spec in Host.all_specs():
        state = "running" if Host(spec).running else "off"
        print(f"{spec.name:24} {spec.address:14} {state:8} {spec.flavour:18} {spec.machine}")
    return 0


def _ssh(arguments: argparse.Namespace) -> int:
    from tests.lab.host import Host

    argv = Host.existing(arguments.host).ssh_argv()
    os.execvp(argv[0], [*argv, *arguments.argv])


def _power(arguments: argparse.Namespace) -> int:
    from tests.lab.host import Host

    host = Host.existing(arguments.host)
    {
        "cut": host.power_cut, "on": host.power_on, "reboot": host.reboot,
        "unplug": host.cut_network, "plug": host.restore_network,
    }[arguments.action]()  # fmt: skip
    return 0


def _platforms(arguments: argparse.Namespace) -> int:
    from tests.lab import fleet
    from tests.lab.places import MOLECULE, SSH_KEY
    from tests.lab.repository import build

    wanted = json.load(sys.stdin)
    if arguments.action == "down":
        fleet.down([platform["name"] for platform in wanted])
        return 0
    MOLECULE.write_text(json.dumps(asdict(build.ready())))
    hosts = fleet.up([fleet.spec_of(platform["name"], platform) for platform in wanted])
    reach = {"user": "root", "port": 22, "identity_file": str(SSH_KEY)}
    print(json.dumps([{"instance": host.name, "address": host.address, **reach} for host in hosts]))
    return 0


COMMANDS = {
    "platforms": _platforms, "up": _up, "down": _down, "status": _status, "ssh": _ssh, "exec": _ssh, "power": _power,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
