"""A fleet's state as a page and as metrics: hosts by lock, progress of waves, failures and their causes."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from gpusetup.drive.causes import common, counted, in_short
from gpusetup.model import stamp
from gpusetup.report.formats import metric
from gpusetup.report.html import page
from gpusetup_fleet.model.pull import FleetState, Offer, PullReport
from gpusetup_fleet.pull.offers import in_words

BAD = ("failed", "verify-failed", "refused", "no-lock")
GOOD = ("done", "unchanged", "nothing-to-do")
SILENT = timedelta(hours=2)
"""Hosts without a report for this long are listed; they may be off."""
_LONGEST = 300


class Stand(NamedTuple):
    """The hosts of a class that have the same lock."""

    kind: str
    lock: str
    stack: str
    hosts: int
    newest: bool
    """Whether this lock is the one on offer."""


class Wave(NamedTuple):
    """One wave of a class."""

    kind: str
    wave: int
    hosts: int
    there: int
    waiting: int
    bad: int
    open: bool
    """Whether the current offer lets it change."""


class Cause(NamedTuple):
    """One reason why hosts do not have the lock on offer."""

    state: str
    reference: str
    message: str
    hint: str
    hosts: tuple[str, ...]

    @property
    def named(self) -> str:
        """The first few host names."""
        return in_short(self.hosts)


def stands(reports: Iterable[PullReport], offers: dict[str, Offer]) -> list[Stand]:
    """Return the hosts by class and lock, largest group of each class first."""
    wanted = {kind: offer.lock.digest for kind, offer in offers.items()}
    keys = {one.host: (one.kind, one.lock[:12], one.lock == wanted.get(one.kind)) for one in reports}
    words = {keys[one.host]: one.stack for one in reports if one.stack}
    rows = [
        Stand(kind, lock, words.get((kind, lock, newest), ""), hosts, newest)
        for (kind, lock, newest), hosts in Counter(keys.values()).items()
    ]
    return sorted(rows, key=lambda row: (row.kind, -row.hosts, row.lock))


def waves(reports: Iterable[PullReport], offers: dict[str, Offer]) -> list[Wave]:
    """Return the progress of each wave of each class that has an offer."""
    members: dict[tuple[str, int], list[PullReport]] = defaultdict(list)
    for one in reports:
        if one.kind in offers:
            members[one.kind, one.wave].append(one)
    return [
        Wave(
            kind,
            wave,
            len(hosts),
            sum(one.lock == offers[kind].lock.digest and one.state in GOOD for one in hosts),
            sum(one.state in ("waiting", "pending-reboot") for one in hosts),
            sum(one.state in BAD for one in hosts),
            not offers[kind].wave or wave <= offers[kind].wave,
        )
        for (kind, wave), hosts in sorted(members.items())
    ]


def causes(reports: Iterable[PullReport]) -> list[Cause]:
    """Return why hosts fail or wait, grouped by message, failures first."""
    together: dict[tuple[str, str, str], list[PullReport]] = defaultdict(list)
    for one in reports:
        if one.state in BAD or one.state in ("waiting", "pending-reboot"):
            said = common(one.message, one.host)[:_LONGEST]
            together[one.state, one.reference, said].append(one)
    rows = [
        Cause(state, reference, message, hosts[0].hint, tuple(one.host for one in hosts))
        for (state, reference, message), hosts in together.items()
    ]
    return sorted(rows, key=lambda row: (row.state not in BAD, -len(row.hosts), row.message))


def to_html(state: FleetState, offers: dict[str, Offer]) -> str:
    """Return the page as HTML."""
    reports = [host.report for host in state.hosts.values() if host.report is not None]
    bad = sum(one.state in BAD for one in reports)
    return page(
        "fleet", title=f"{counted(len(state.hosts), 'host')} in this fleet", made=state.time,
        told=[f"{bad} fail" if bad else "none fails"], stands=stands(reports, offers), waves=waves(reports, offers),
        causes=causes(reports), offers=[offers[kind] for kind in sorted(offers)], budget=in_words,
        silent=_silent(state), bad=BAD, states=Counter(one.state for one in reports).most_common(),
        hosts=[(name, host) for name, host in state.hosts.items() if host.report is not None],
    )  # fmt: skip


def _silent(state: FleetState) -> list[tuple[str, str]]:
    """Return the hosts without a report for `SILENT`, with the time of their last one."""
    edge = stamp(datetime.fromisoformat(state.time.replace("Z", "+00:00")) - SILENT)
    return [(name, host.received or "never") for name, host in state.hosts.items() if host.received < edge]


def metrics(state: FleetState, offers: dict[str, Offer], counted: dict[str, int]) -> str:
    """Return Prometheus metrics; `counted`: answers since the collector started, by HTTP status."""
    reports = [host.report for host in state.hosts.values() if host.report is not None]
    states = Counter((one.kind, one.state) for one in reports)
    heard = [
        ({"host": name}, datetime.fromisoformat(host.received.replace("Z", "+00:00")).timestamp())
        for name, host in state.hosts.items()
        if host.received
    ]
    lines = [
        *metric(
            "gpusetup_fleet_hosts",
            "Hosts by class and by the state of their newest report.",
            (({"class": kind, "state": now}, float(number)) for (kind, now), number in sorted(states.items())),
        ),
        *metric(
            "gpusetup_fleet_hosts_on_lock",
            "Hosts by class and applied lock; offered says whether it is the one on offer.",
            (
                ({"class": row.kind, "lock": row.lock, "offered": str(row.newest).lower()}, float(row.hosts))
                for row in stands(reports, offers)
            ),
        ),
        *metric(
            "gpusetup_fleet_offer_serial",
            "Serial of the offer in force.",
            (({"class": kind}, float(offer.serial)) for kind, offer in sorted(offers.items())),
        ),
        *metric(
            "gpusetup_fleet_silent_hosts", "Hosts without a report in the last two hours.", [({}, len(_silent(state)))]
        ),
        *metric("gpusetup_fleet_last_report_timestamp_seconds", "When the newest report of a host came.", heard),
        *metric(
            "gpusetup_collector_answers_total",
            "Requests since the collector started, by status of the answer.",
            (({"status": status}, float(number)) for status, number in sorted(counted.items())),
            kind="counter",
        ),
    ]
    return "\n".join(lines) + "\n"
