"""From an inventory to the one connection that each of its hosts gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.drive.playbook import run_playbook
from gpusetup.drive.route import Route, route_of

if TYPE_CHECKING:
    from gpusetup.drive.events import HostProgress
    from gpusetup.drive.playbook import Observer, Session

__all__ = ["ACTION", "routes"]

ACTION = "gpu_reach"
_DEADLINE = 300.0


def routes(session: Session, observer: Observer | None = None) -> list[Route]:
    """Ask Ansible how it would reach each host of the inventory; no host is spoken to yet."""
    run = run_playbook(session, "reach", deadline=_DEADLINE, observer=observer)
    if run.interrupted:
        raise KeyboardInterrupt
    return [_route(host) for host in run.track.hosts.values()]


def _route(host: HostProgress) -> Route:
    if host.failure is not None:
        return Route(host.name, problem=" ".join(host.failure.message.split())[:300])
    answer = host.data.get(ACTION)
    return route_of(host.name, answer) if answer else Route(host.name, problem="Ansible left it out")
