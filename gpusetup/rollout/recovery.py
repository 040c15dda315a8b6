"""Recover GPUs: drain hosts, reset GPUs or reboot as needed, diagnose again. No program is killed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.look import Look
from gpusetup.drive.audit import on_record
from gpusetup.drive.events import Failure
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import run_playbook
from gpusetup.drive.rundir import occupy, state_home
from gpusetup.errors import Exit, GpuSetupError
from gpusetup.model.diagnosis import Diagnosis, Recovered, Recovery
from gpusetup.model.plan import Refusal
from gpusetup.plan.actions import for_manager
from gpusetup.rollout.draining import Draining
from gpusetup.rollout.looks import Rollout, owner_of, phase, twins

DEADLINE = 3600.0
EXITS = {
    "nothing-to-do": Exit.DONE, "by-hand": Exit.VERIFY_FAILED, "planned": Exit.PENDING, "refused": Exit.REFUSED,
    "unreachable": Exit.UNREACHABLE, "failed": Exit.FAILED, "pending-reboot": Exit.PENDING, "done": Exit.DONE,
    "not-gone": Exit.VERIFY_FAILED,
}  # fmt: skip


@dataclass
class Hosts:
    """The hosts, their diagnoses, and what may be done to them."""

    rollout: Rollout
    looks: dict[str, Look]
    diagnoses: dict[str, Diagnosis]
    draining: Draining
    look_again: Callable[[Iterable[str]], dict[str, Look]]
    after: dict[str, Diagnosis] = field(default_factory=dict)
    """The diagnoses after the recovery."""
    boots: dict[str, str] = field(default_factory=dict)
    """The boot id of each host after the recovery."""

    def see(self, looks: dict[str, Look]) -> None:
        """Record diagnoses and boot ids after the recovery."""
        self.after = {name: diagnose(look) for name, look in looks.items()}
        self.boots = {name: look.facts.boot.id or "" for name, look in looks.items()}

    def rebooted(self, name: str) -> bool:
        """Return whether a host has booted since it was first diagnosed."""
        return self.boots.get(name, "") not in ("", self.rollout.facts[name].boot.id)


def prepare(hosts: Hosts) -> dict[str, Recovered]:
    """Return what would be done on each host, which checks itself whether a reset is possible. Changes nothing."""
    doubles = twins(hosts.rollout.facts)
    found = {name: _first(hosts, name, doubles.get(name)) for name in hosts.diagnoses}
    planned = {name: told.recovery for name, told in found.items() if told.state == "planned" and told.recovery}
    resets = {name: recovery for name, recovery in planned.items() if _gpus(recovery)}
    if not resets:
        return found
    with phase(hosts.rollout, "recover"), hosts.rollout.reporter.watch("recover") as observer:
        run = run_playbook(
            hosts.rollout.session, "recover", deadline=DEADLINE, overlay=_overlay(hosts, resets, "dry"),
            observer=observer, check=True,
        )  # fmt: skip
    for name in resets:
        if (failure := run.track.host(name).failure) is not None:
            found[name] = _failed(found[name], failure)
    return found


def recover(hosts: Hosts, found: dict[str, Recovered]) -> dict[str, Recovered]:
    """Carry out the planned recoveries, diagnose again, and return healthy hosts to service."""
    names = [name for name, told in found.items() if told.state == "planned"]
    if not names:
        return found
    session, say = hosts.rollout.session, hosts.rollout.reporter.say
    wanted = {name: ", ".join(told.recovery.steps) for name in names if (told := found[name]).recovery is not None}
    known = dict(found)
    with (
        on_record(session, "recover", wanted, lambda: {name: known[name].state for name in wanted}, say),
        occupy(state_home(session.environment), names, "recover"),
    ):
        known |= _recover(hosts, found, names)
    return known


def _recover(hosts: Hosts, found: dict[str, Recovered], names: list[str]) -> dict[str, Recovered]:
    work = hosts.draining
    with work.telling():
        found = found | _held(hosts, found, names)
        free = {name: told.recovery for name in names if (told := found[name]).state == "planned" and told.recovery}
        todo = {name: recovery for name, recovery in free.items() if {"reset", "reboot"}.intersection(recovery.steps)}
        found |= _act(hosts, found, todo)
        hosts.see(hosts.look_again(free))
        found |= {name: _judged(hosts, name, free[name]) for name in free if found[name].state == "planned"}
        well = [name for name in work.ours if found[name].state in ("done", "refused")]
        work.undrain(well)
    for name in work.ours:
        still = work.still_drained(name, "" if name in well else found[name].state)
        found[name] = replace(found[name], hint=f"{found[name].hint}; {still}".strip("; "))
    return found


def _first(hosts: Hosts, name: str, double: Refusal | None) -> Recovered:
    """Return the plan for one host from its facts alone; `double`: it is the same machine as another."""
    wanted = hosts.diagnoses[name].recovery
    if wanted is None or wanted.need in ("nothing", "program"):
        return Recovered(state="nothing-to-do", recovery=wanted)
    if not wanted.steps:
        return Recovered(state="by-hand", recovery=wanted)
    planned = Recovered(state="planned", recovery=wanted)
    if double is not None:
        return _refused(planned, double.reference, double.message, double.hint)
    if hosts.rollout.facts[name].vgpu_guest and "reset" in wanted.steps:
        message = "a vGPU is reset by the machine that it comes from"
        return _refused(planned, "GS-422", message, "ask whoever runs the hypervisor")
    if wanted.steps == ("drain",) and hosts.draining.scheduler is None:
        hint = "name it: --drain slurm, --drain kubernetes, or a command with {node} in it"
        return _refused(planned, "GS-425", "the host needs a drain, and no scheduler is named", hint)
    if "reset" in wanted.steps and not _gpus(wanted):
        hint = "nvidia-smi -q names the one that is not well"
        return _refused(planned, "GS-426", "which GPU needs the reset is unknown", hint)
    return planned


def _gpus(recovery: Recovery) -> tuple[str, ...]:
    return recovery.gpus if "reset" in recovery.steps else ()


def _overlay(hosts: Hosts, wanted: dict[str, Recovery], name: str) -> Path:
    owner = owner_of(hosts.rollout.session, len(wanted))
    variables = {
        host: replace(
            for_manager(hosts.rollout.facts[host]),
            gpu_recover_gpus=_gpus(recovery),
            gpu_recover_reboot="reboot" in recovery.steps,
            gpu_recover_why=recovery.why,
            gpu_reboot_policy=hosts.rollout.reboot_policy(host),
            gpu_reboot_local=hosts.rollout.local(host),
            gpu_state_owner=owner,
        )
        for host, recovery in wanted.items()
    }
    return write_overlay(hosts.rollout.session.run.path / f"overlay-recover-{name}", variables)


def _held(hosts: Hosts, found: dict[str, Recovered], names: list[str]) -> dict[str, Recovered]:
    """Drain hosts if there is a scheduler; return those that are not free."""
    held, busy = hosts.draining.free(names, lambda name: _waits(hosts, found[name]))
    return {
        name: _refused(found[name], why.reference, why.message, why.hint)
        if isinstance(why, GpuSetupError)
        else _refused(found[name], "GS-425", f"the host was not drained in time: {why}", "")
        for name, why in held.items()
    } | {
        name: _refused(found[name], "GS-423", f"still busy: {why}", "end them, or wait for them: --busy-wait MINUTES")
        for name, why in busy.items()
    }


def _waits(hosts: Hosts, told: Recovered) -> bool:
    """Return whether to wait for programs on a host: after a drain, or if the user set a time."""
    steps = told.recovery.steps if told.recovery is not None else ()
    return "drain" in steps or hosts.draining.busy_seconds > 0


def _refused(told: Recovered, reference: str, message: str, hint: str) -> Recovered:
    return replace(told, state="refused", reference=reference, message=message, hint=hint)


def _act(hosts: Hosts, found: dict[str, Recovered], wanted: dict[str, Recovery]) -> dict[str, Recovered]:
    """Reset and reboot hosts; return the results of those where it failed."""
    if not wanted:
        return {}
    with phase(hosts.rollout, "recover"), hosts.rollout.reporter.watch("recover") as observer:
        overlay = _overlay(hosts, wanted, "real")
        run = run_playbook(hosts.rollout.session, "recover", deadline=DEADLINE, overlay=overlay, observer=observer)
    return {name: _failed(found[name], why) for name in wanted if (why := run.track.host(name).failure) is not None}


def _failed(told: Recovered, failure: Failure) -> Recovered:
    trouble = failure.trouble
    words = [str(part) for part in (trouble.message, trouble.note) if part is not UNSET and part]
    return replace(
        told,
        state=failure.state(),
        reference="" if trouble.reference is UNSET else trouble.reference,
        message="; ".join(words),
        hint="" if trouble.hint is UNSET else trouble.hint,
    )


def _judged(hosts: Hosts, name: str, wanted: Recovery) -> Recovered:
    told, after, steps = Recovered(state="planned", recovery=wanted), hosts.after.get(name), wanted.steps
    if after is None:
        return replace(told, state="failed", message="the host did not answer afterwards", hint="see whether it boots")
    did = tuple(
        {"drain": "drained", "reset": f"reset {', '.join(wanted.gpus)}", "reboot": "rebooted"}[step]
        for step in steps
        if {"reboot": hosts.rebooted(name), "drain": hosts.draining.scheduler is not None}.get(step, True)
    )
    if "reboot" in steps and not hosts.rebooted(name):
        why = "gpusetup runs on this machine" if hosts.rollout.local(name) else "gpusetup may not reboot it"
        if hosts.rollout.reboot_policy(name) != "never":
            why = "a program uses its GPUs, or its reboot is scheduled"
        hint = "reboot it, or allow it: --reboot when-needed"
        return replace(told, state="pending-reboot", message=f"a reboot is pending: {why}", hint=hint)
    if after.recovery is not None and (after.recovery.need, after.recovery.gpus) == (wanted.need, wanted.gpus):
        message = f"the finding is still there: it needs {after.recovery.text}"
        hint = "after a reset that did not help: reboot; after a reboot that did not help: sudo nvidia-bug-report.sh"
        return replace(told, state="not-gone", did=did, message=message, hint=hint)
    return replace(told, state="done", did=did, message="the finding is gone")
