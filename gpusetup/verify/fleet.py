"""Observe hosts through Ansible, all at once; then measure NCCL between the hosts that have GPUs."""

import secrets
from dataclasses import replace
from typing import Any, cast

from msgspec import UNSET, structs

from gpusetup.drive.events import HostProgress
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import Observer, Session, run_playbook
from gpusetup.model.variables import Part, RoleVariables
from gpusetup.verify.environments import asks, kept
from gpusetup.verify.probe import Ask, Observed, deadline

MIB = 1 << 20
SIZES = (64 * MIB, 256 * MIB, 1024 * MIB)
_PORTS = range(40000, 60000)
_REACHING = 300.0
"""Seconds for logging in to all hosts, added to the probe's deadline."""


def observe_fleet(session: Session, ask: Ask, observer: Observer | None = None) -> dict[str, Observed]:
    """Return what was observed of every host of the inventory; a host that fails has a `problem`."""
    variables = _variables(ask)
    run = run_playbook(session, "verify", deadline=deadline(ask) + _REACHING, variables=variables, observer=observer)
    observed = {name: observed_of(session, host) for name, host in run.track.hosts.items()}
    _environments(session, ask, observed, observer)
    plan = hosts_plan(observed, {name: host.connection for name, host in run.track.hosts.items()})
    if ask.level in ("full", "stress") and len(plan) > 1 and not ask.when_idle:
        _between_hosts(session, ask, plan, observed)
    return observed


def _environments(session: Session, ask: Ask, observed: dict[str, Observed], observer: Observer | None) -> None:
    """Observe the named environments: one after the other, each on all hosts that have it at once."""
    asked = {name: asks(ask, host.document) for name, host in observed.items() if host.document is not None}
    for number, name in enumerate(sorted({name for found in asked.values() for name in found})):
        told = {host: _variables(found[name]) for host, found in asked.items() if name in found}
        overlay = write_overlay(session.run.path / f"overlay-environment-{number}", told)
        longest = deadline(next(found[name] for found in asked.values() if name in found))
        run = run_playbook(session, "verify", deadline=longest + _REACHING, overlay=overlay, observer=observer)
        for host in told:
            kept(cast("dict[str, Any]", observed[host].document), name, observed_of(session, run.track.host(host)))


def _variables(ask: Ask) -> RoleVariables:
    return RoleVariables(
        gpu_verify_level=ask.level,
        gpu_verify_cuda_home=ask.cuda_home or "",
        gpu_verify_gpus=tuple(ask.gpus or ()),
        gpu_verify_minutes=ask.minutes,
        gpu_verify_when_idle=ask.when_idle or UNSET,
        gpu_verify_budget=ask.budget or UNSET,
        gpu_verify_components=tuple(ask.components),
        gpu_verify_fail=False,
        # Unset, the inventory names each host's Python.
        gpu_verify_python=UNSET if ask.python is None else ask.python,
    )


def observed_of(session: Session, host: HostProgress) -> Observed:
    """Return what the probe told of a host, or why it told nothing."""
    answer = host.data.get("gpu_verify") or {}
    document = answer.get("observations")
    if isinstance(document, dict):
        return Observed(document)
    if answer.get("postponed"):
        return Observed(None, str(answer["postponed"]), postponed=True)
    if host.failure is not None:
        told = f"{host.failure.message}; {host.failure.way_out(session.reach.inventory or '')}"
        return Observed(None, told, host.failure.unreachable, own_fault=bool(answer.get("own_fault")))
    return Observed(None, "the probe did not answer")


def hosts_plan(observed: dict[str, Observed], connections: dict[str, dict[str, Any]]) -> dict[str, Part]:
    """Return the part of each host with idle, working GPUs in a measurement over all; empty with fewer than two."""
    able = {}
    for name, host in sorted(observed.items()):
        document = host.document or {}
        workers = document.get("sections", {}).get("workers", {})
        ready = [
            worker
            for key, worker in workers.items()
            if "/" not in key and "error" not in worker.get("open", {"error": ""})
        ]
        if ready and not any(worker.get("busy") for worker in ready):
            able[name] = len(ready)
    if len(able) < 2:
        return {}
    first = next(iter(able))
    address = str(connections.get(first, {}).get("ansible_host") or first)
    port = secrets.choice(_PORTS)
    plan, rank = {}, 0
    for number, (name, local) in enumerate(able.items()):
        plan[name] = Part(
            address=address,
            port=port,
            number=number,
            hosts=len(able),
            local=local,
            first=rank,
            world=sum(able.values()),
            sizes=SIZES,
        )
        rank += local
    return plan


def _between_hosts(session: Session, ask: Ask, plan: dict[str, Part], observed: dict[str, Observed]) -> None:
    """Measure NCCL over all hosts at the same time, and add each host's part to its document."""
    forks = max(session.reach.forks or 0, len(plan))
    together = replace(session, reach=replace(session.reach, forks=forks))
    variables = structs.replace(
        _variables(ask),
        gpu_verify_level="smoke",
        gpu_verify_plans=plan,
        gpu_verify_token=secrets.token_hex(16),
        gpusetup_verify_group=tuple(plan),
    )
    run = run_playbook(together, "verify_between", deadline=900 + _REACHING, variables=variables, at_once=True)
    parts = {name: _part(run.track.host(name)) for name in plan}
    broken = [name for name, part in parts.items() if _errors(part) - {"timeout"}]
    for name, part in parts.items():
        if document := observed[name].document:
            waited = {"broken": broken} if broken and name not in broken and _errors(part) else {}
            document.setdefault("sections", {})["hosts"] = {**part, **waited}


def _part(host: HostProgress) -> dict[str, Any]:
    answer = (host.data.get("gpu_verify") or {}).get("observations") or {}
    message = host.failure.message if host.failure is not None else "it did not answer"
    part: dict[str, Any] = answer.get("sections", {}).get("hosts") or {"error": "failed", "message": message}
    return part


def _errors(part: dict[str, Any]) -> set[str]:
    """Return what went wrong on a host; ranks that wait for one that is gone end by a timeout."""
    return {str(one["error"]) for one in (part, *part.get("ranks", {}).values()) if "error" in one}
