"""Gather the SSH host keys of an inventory before the first connection, and keep confirmed ones.

gpusetup asks a hundred hosts at a time and keeps a key if it is on your list (--trusted), which did not come over
this network. Without a list it shows the fingerprints and keeps nothing. It never keeps a changed key without a list.
Later runs read the kept keys beside ~/.ssh/known_hosts; host-key checking stays on.

examples:
  gpusetup fleet known-hosts inventory.ini                       what hosts show; keeps nothing
  gpusetup fleet known-hosts inventory.ini --trusted known.txt   fingerprints, known_hosts lines or SSHFP records
  gpusetup fleet known-hosts inventory.ini --trusted consoles/   console output, a file for each host
  gpusetup fleet known-hosts --ca hosts-ca.pub --for '*.gpu.example'   trust keys that this CA signed
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.cli.grammar import tables
from gpusetup.errors import BadInputError, Exit, gravest

if TYPE_CHECKING:
    import argparse

    from gpusetup_fleet.model.fleet import HostKeys, KnownHosts
    from gpusetup_fleet.ssh import Key, Place

_EXITS = {
    "unconfirmed": Exit.PENDING, "changed": Exit.REFUSED, "another-key": Exit.REFUSED, "unreachable": Exit.UNREACHABLE,
}  # fmt: skip
_WORDS: dict[str, str] = tables()["host keys"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser, "--ca with --for")
    group = parser.add_argument_group("keys")
    group.add_argument("--trusted", metavar="PLACE", help="your list: a file or folder of fingerprints")
    group.add_argument(
        "--accept", action="store_true", help="keep what unknown hosts show, unproven; never a changed key"
    )
    group.add_argument("--ca", metavar="FILE", help="with --for: public key of a CA that signs host keys")
    group.add_argument("--for", dest="patterns", metavar="PATTERNS", help="with --ca: the hosts whose keys it signs")
    group.add_argument("--file", metavar="FILE", help="file for the keys; default: known_hosts beside the runs")
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Scan host keys, compare them, keep confirmed ones, print the result."""
    from gpusetup.drive.playbook import KNOWN_HOSTS
    from gpusetup.drive.rundir import state_home
    from gpusetup_fleet.model.fleet import KnownHosts
    from gpusetup_fleet.ssh import authority, write

    path = Path(arguments.file) if arguments.file else state_home(os.environ) / KNOWN_HOSTS
    if not arguments.ca and not arguments.inventory:
        raise BadInputError("GS-946", "no inventory was given", path="INVENTORY")
    hosts: dict[str, HostKeys] = {}
    if arguments.ca:
        write(path, {}, [authority(Path(arguments.ca), arguments.patterns)])
    if arguments.inventory:
        hosts = _hosts(arguments, path)
    codes = [_EXITS.get(host.state, Exit.DONE) for host in hosts.values()]
    told = KnownHosts(ok=not any(codes), path=str(path), hosts=hosts)
    output.answer(arguments.format, told, _text(told), arguments.out)
    return gravest(codes)


def _hosts(arguments: argparse.Namespace, path: Path) -> dict[str, HostKeys]:
    from gpusetup.drive.causes import counted
    from gpusetup_fleet.model.fleet import HostKeys
    from gpusetup_fleet.ssh import judge, kept, scan, trusted, write

    places = _places(arguments)
    names = {word: name for name, place in places.items() for word in (name, place.alias, place.address) if word}
    may = trusted(Path(arguments.trusted), names) if arguments.trusted else {}
    output.say(f"asking {counted(len(places), 'host')} for their keys, which each may take 10 seconds to show")
    shown = scan([place for place in places.values() if not place.problem], os.environ)
    others = [place for name, place in places.items() if not place.problem and not _enough(shown, place, may.get(name))]
    for where, keys in scan(others, os.environ, "ecdsa,rsa").items():
        shown.setdefault(where, []).extend(keys)
    before = kept(path)
    keep: dict[str, list[Key]] = {}
    hosts = {}
    for name, place in places.items():
        keys = shown.get((place.address, place.port), [])
        if not keys:
            problem = place.problem or "it showed no key within 10 seconds"
            hosts[name] = HostKeys(state="unreachable", address=place.alias, message=problem)
            continue
        state, good = judge(keys, before.get(place.alias, []), may.get(name), accept=arguments.accept)
        if state in {"confirmed", "replaced", "accepted"}:
            keep[place.alias] = good
        prints = tuple(f"{key.fingerprint} {key.kind}" for key in (good if good and state != "changed" else keys))
        hosts[name] = HostKeys(state=state, address=place.alias, fingerprints=prints)
    if keep:
        write(path, keep)
    return hosts


def _enough(shown: dict[tuple[str, int], list[Key]], place: Place, may: set[str] | None) -> bool:
    """Return whether a host showed a key: one of its trusted keys, if it has any."""
    keys = shown.get((place.address, place.port), [])
    return bool(keys) and (may is None or any(key.fingerprint in may for key in keys))


def _places(arguments: argparse.Namespace) -> dict[str, Place]:
    """Return each host's address by Ansible and ssh, without contacting the hosts."""
    from concurrent.futures import ThreadPoolExecutor

    from gpusetup.cli.session import open_session
    from gpusetup.drive.playbook import run_playbook
    from gpusetup_fleet.ssh import Place, place_of

    session = open_session(arguments)
    found = run_playbook(session, "reach", deadline=300)

    def place(name: str) -> Place:
        told = found.data(name, "gpu_reach")
        failure = found.track.host(name).failure
        if told is None:
            return Place(name, "", 0, failure.message if failure is not None else "Ansible left it out")
        return place_of(name, told, session.environment)

    with ThreadPoolExecutor(4) as workers:
        return dict(zip(found.track.hosts, workers.map(place, found.track.hosts), strict=True))


def _text(told: KnownHosts) -> str:
    from gpusetup.drive.causes import counted, in_short

    lines = []
    alike: dict[str, list[str]] = {}
    for name, host in told.hosts.items():
        if host.state in {"known", "confirmed"}:
            alike.setdefault(_WORDS[host.state], []).append(name)
            continue
        lines.append(f"{name} ({host.address}): {_WORDS[host.state]}{f': {host.message}' if host.message else ''}")
        lines += [f"  {text}" for text in host.fingerprints]
    lines += [f"{in_short(names)} ({counted(len(names), 'host')}): {words}" for words, names in alike.items()]
    if any(host.state == "changed" for host in told.hosts.values()):
        lines.append(
            f"a host that was set up again: prove its new key with --trusted, or ssh-keygen -R HOST -f {told.path}"
        )
    if any(host.state == "unconfirmed" for host in told.hosts.values()):
        lines.append("next: --trusted PLACE with fingerprints that came another way, or --accept to keep them unproven")
    lines.append(f"kept in {told.path}")
    return "\n".join(lines)
