"""Named environments in the verification of an apply: each by its own Python, told with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpusetup.verify.environments import in_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpusetup.model.settings import Environment
    from gpusetup.report.model import HostReport
    from gpusetup.rollout.looks import Rollout

__all__ = ["environment_of", "with_environments"]


def environment_of(rollout: Rollout, host: str, name: str) -> Environment | None:
    """Return an environment that a host is to have."""
    return next((item for item in _environments(rollout, host) if item.name == name), None)


def _environments(rollout: Rollout, host: str) -> tuple[Environment, ...]:
    wanted = rollout.plans[host].lock.wanted
    return (wanted.environments or ()) if wanted is not None else ()


def with_environments(
    rollout: Rollout, reports: dict[str, HostReport], observe: Callable[[list[str], str], dict[str, HostReport]]
) -> dict[str, HostReport]:
    """Return the reports with what was found in each environment."""
    names = sorted({item.name for host in reports for item in _environments(rollout, host)})
    for name in names:
        hosts = [host for host, report in reports.items() if not report.problem and environment_of(rollout, host, name)]
        for host, found in (observe(hosts, name) if hosts else {}).items():
            reports[host] = _joined(reports[host], found, name)
    return reports


def _joined(report: HostReport, found: HostReport, name: str) -> HostReport:
    if found.problem:
        return msgspec.structs.replace(report, problem=f"environment {name}: {found.problem}")
    results = in_environment(report.results, found.results, name)
    return msgspec.structs.replace(report, results=(*report.results, *results), seconds=report.seconds + found.seconds)
