"""The things behind the entries of the record: what a failed apply restores, and interrupted entries that nobody asks
for any more.
"""

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional

from . import boot_arguments, systemd
from .alternatives import Alternative, Link
from .boot_arguments import Argument
from .failure import tried
from .journal import Thing
from .ledger import FILE, Ledger
from .machine import Machine
from .package_state import Holds, Stream
from .services import Paused, Unit


class Site(NamedTuple):
    """A host with everything needed to look at and change its things."""

    ledger: Ledger
    manager: Any
    machine: Machine
    env: Dict[str, str]


Maker = Callable[[str, Site], Optional[Thing]]
KINDS: Dict[str, Maker] = {
    Unit.kind: lambda name, site: Unit(name, site.env),
    Paused.kind: lambda name, site: Paused(name, site.env),
    Link.kind: lambda name, _site: Link(name),
    Alternative.kind: lambda name, site: Alternative(name, site.env),
    Argument.kind: lambda name, site: boot_arguments.argument(name, site.ledger, site.machine, [], site.env),
    Stream.kind: lambda name, site: Stream(site.manager, name),
    Holds.kind: lambda _name, site: Holds(site.manager, site.ledger.state["holds"]),
}


class Back(NamedTuple):
    """What was restored, and why the rest was not."""

    things: List[str]
    trouble: List[str]


def of(key: str, site: Site, kinds: Mapping[str, Maker]) -> Optional[Thing]:
    """Return the thing of an entry, None if its kind is unknown here."""
    kind, _colon, name = key.partition(":")
    return kinds[kind](name, site) if kind in kinds else None


def revert(site: Site) -> Back:
    """Restore everything but packages that the current apply has changed on this host.

    Things that were not recorded before it go while its files are still there; the others come once those are restored.
    """
    back, entries = Back([], []), site.ledger.to_revert()
    _revert([entry for entry in entries if not entry["noted"]], site, back)
    files, trouble = site.ledger.revert_apply()
    if not site.ledger.check:
        trouble.append(tried(systemd.read_again, systemd.units_of(files), site.env)[1])
    _revert([entry for entry in entries if entry["noted"]], site, back)
    return Back(back.things + files, back.trouble + trouble)


def _revert(entries: Iterable[Dict[str, Any]], site: Site, back: Back) -> None:
    for entry in entries:
        thing = of(entry["thing"], site, KINDS)
        if thing is not None:
            reverted, why = tried(site.ledger.revert, thing)
            back.things.extend([f"{thing.kind} {thing.name}"] if reverted else [])
            back.trouble.append(why)


def give_up(site: Site, kinds: Mapping[str, Maker]) -> None:
    """Close interrupted entries that nobody has asked for since, restoring their things. A file needs only a look: it
    has either its old or its new content.

    What cannot be restored stays open in the record.
    """
    for key in sorted(site.ledger.state["open"]):
        kind, _colon, name = key.partition(":")
        thing = of(key, site, kinds)
        if kind == FILE:
            tried(site.ledger.close_file, name)
        elif thing is not None:
            tried(site.ledger.give_up, thing)
