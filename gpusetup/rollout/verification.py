"""Verification, the last stage of apply: of hosts that changed or have no recorded pass."""

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial

import msgspec

from gpusetup.components.record import record_of
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import run_playbook
from gpusetup.model.applied import Applied, Verified
from gpusetup.model.facts import Driver
from gpusetup.model.lifecycle import VERIFICATION, HostOutcome
from gpusetup.model.settings import Environment
from gpusetup.model.variables import RoleVariables
from gpusetup.model.verdict import Level
from gpusetup.plan.actions import for_manager
from gpusetup.report.model import HostReport
from gpusetup.report.verification import verification_report
from gpusetup.rollout.looks import Rollout, phase
from gpusetup.verify.environments import in_environment
from gpusetup.verify.fleet import observed_of
from gpusetup.verify.machine import Wanted


def environment_of(rollout: Rollout, host: str, name: str) -> Environment | None:
    """Return a planned environment of a host by its name."""
    return next((item for item in _environments(rollout, host) if item.name == name), None)


def _environments(rollout: Rollout, host: str) -> tuple[Environment, ...]:
    wanted = rollout.plans[host].lock.wanted
    return (wanted.environments or ()) if wanted is not None else ()


def with_environments(
    rollout: Rollout, reports: dict[str, HostReport], observe: Callable[[list[str], str], dict[str, HostReport]]
) -> dict[str, HostReport]:
    """Return the reports with the results of each environment."""
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


DEADLINE = 1400.0
LEVEL: Level = "smoke"


def verify_hosts(rollout: Rollout, outcomes: dict[str, HostOutcome], *, always: bool = False) -> dict[str, HostOutcome]:
    """Verify hosts and return their outcomes with the results."""
    wanted = []
    for name, outcome in outcomes.items():
        if outcome.state not in {"done", "unchanged"}:
            continue
        on_record = _on_record(rollout, name) if outcome.state == "unchanged" and not always else ""
        if on_record:
            outcomes[name] = msgspec.structs.replace(outcome, verified=on_record)
        else:
            wanted.append(name)
    if not wanted:
        return outcomes
    try:
        reports = with_environments(rollout, _observe(rollout, wanted), partial(_observe, rollout))
    except KeyboardInterrupt:  # the results of apply stay
        stopped = {"state": "interrupted", "failed_at": VERIFICATION, "verified": "stopped"}
        return outcomes | {name: msgspec.structs.replace(outcomes[name], **stopped) for name in wanted}
    for name in wanted:
        outcomes[name] = _judged(outcomes[name], reports[name])
    _record(rollout, {name: reports[name] for name in wanted if not reports[name].problem})
    return outcomes


def _on_record(rollout: Rollout, name: str) -> str:
    """Return the recorded verification of exactly this stack, as text; empty if there is none."""
    kept = record_of(rollout.facts[name]).verified
    if kept is None or not kept.passed or kept.key != rollout.plans[name].lock.key:
        return ""
    if kept.driver != _loaded(rollout.facts[name].driver):
        return ""
    if kept.verdict == "skip":
        return f"on {kept.time}, as far as a simulated GPU allows"
    return f"{kept.verdict} on {kept.time}"


def _loaded(driver: Driver | None) -> str | None:
    loaded = driver.loaded if driver is not None else None
    return loaded.version if loaded is not None else None


def _observe(rollout: Rollout, names: list[str], environment: str = "") -> dict[str, HostReport]:
    """Run the probe on hosts; with `environment`, in that environment's Python and for its stack."""
    started, clock = datetime.now(timezone.utc), time.monotonic()
    folder = f"overlay-verify-{environment}" if environment else "overlay-verify"
    asked = {name: _asked(rollout, name, environment) for name in names}
    overlay = write_overlay(rollout.session.run.path / folder, asked)
    with phase(rollout, "verify"), rollout.reporter.watch("verify") as observer:
        done = run_playbook(rollout.session, "verify", deadline=DEADLINE, overlay=overlay, observer=observer)
    observed = {name: observed_of(rollout.session, done.track.host(name)) for name in names}
    documents = {name: host.document for name, host in observed.items() if host.document is not None}
    problems = {name: host.problem for name, host in observed.items() if host.document is None}
    wanted = {
        name: Wanted(_lock(rollout, name, environment), gpus=len(rollout.facts[name].gpus), hosts=len(documents))
        for name in documents
    }
    report = verification_report(
        documents, level=LEVEL, started=started, seconds=time.monotonic() - clock, wanted=wanted, problems=problems,
        baseline=None,
    )  # fmt: skip
    found = {host.name: host for host in report.hosts}
    return {name: found.get(name, HostReport(name=name, problem="the probe did not answer")) for name in names}


def _lock(rollout: Rollout, name: str, environment: str) -> Applied:
    lock, found = rollout.plans[name].lock, environment_of(rollout, name, environment)
    return msgspec.structs.replace(lock, stack=found.stack) if found is not None else lock


def _asked(rollout: Rollout, name: str, environment: str) -> RoleVariables:
    settings, stack = rollout.settings[name], _lock(rollout, name, environment).stack or rollout.plans[name].stack
    frameworks = tuple(
        part for part in ("torch", "tensorflow", "jax") if stack is not None and getattr(stack, part) is not None
    )
    own, wanted = environment_of(rollout, name, environment), rollout.plans[name].lock.wanted
    python = f"{own.path}/bin/python" if own is not None else settings.python_adopt
    if not python and wanted is not None and wanted.requirements:
        python = f"{settings.python_path}/bin/python"
    return RoleVariables(
        gpu_verify_level=LEVEL, gpu_verify_python=python, gpu_verify_components=frameworks, gpu_verify_fail=False
    )


def _judged(outcome: HostOutcome, report: HostReport) -> HostOutcome:
    failed = report.verdict == "fail"
    return msgspec.structs.replace(
        outcome, state="verify-failed" if failed else outcome.state, checks=tuple(report.results),
        verified=report.problem or report.verdict,
    )  # fmt: skip


def _record(rollout: Rollout, reports: dict[str, HostReport]) -> None:
    """Record the verdicts on the hosts; a failure to record does not change the verdict."""
    if not reports:
        return
    kept = {
        name: msgspec.structs.replace(
            for_manager(rollout.facts[name]),
            gpu_state_lock=rollout.plans[name].lock,
            gpu_state_verified=Verified(
                key=rollout.plans[name].lock.key,
                level=LEVEL,
                verdict=report.verdict,
                simulated=report.simulated,
                driver=_driver(rollout, name),
                run=rollout.session.run.id,
            ),
        )
        for name, report in reports.items()
    }
    overlay = write_overlay(rollout.session.run.path / "overlay-verified", kept)
    with phase(rollout, "verify"):
        done = run_playbook(rollout.session, "verified", deadline=DEADLINE, overlay=overlay, partial=True)
    rollout.stopped |= done.interrupted


def _driver(rollout: Rollout, name: str) -> str | None:
    stack = rollout.plans[name].stack
    return stack.driver.version if stack is not None and stack.driver is not None else None
