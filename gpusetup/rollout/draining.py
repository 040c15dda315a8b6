"""Drain hosts before they change and wait for their GPUs; return them to service afterwards. No job is killed."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from gpusetup.drive.causes import counted
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import run_playbook
from gpusetup.drive.schedulers import Caller, Command, Drained, Kubernetes, Scheduler, Slurm
from gpusetup.errors import BadInputError, GpuSetupError
from gpusetup.model.lifecycle import HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.variables import NOTHING, RoleVariables
from gpusetup.plan.host import jobs_of
from gpusetup.plan.preflight import refusal_of
from gpusetup.rollout.looks import Rollout, phase
from gpusetup.rollout.options import Freeing
from gpusetup.rollout.outcome import planned_only, postponed

_AT_ONCE = 16
_POLL_SECONDS = 15

Answer = TypeVar("Answer")


def draining(how: Freeing, rollout: Rollout) -> "Draining":
    """Return the draining of a run; raise for invalid commands before any host is touched."""
    scheduler: Scheduler | None = None
    if how.drain:
        call = Caller(prefix=tuple(_words(how.via, "--drain-via")))
        kinds: dict[str, Callable[..., Scheduler]] = {"slurm": Slurm, "kubernetes": Kubernetes}
        take, give = tuple(_words(how.drain, "--drain")), tuple(_words(how.undrain, "--undrain"))
        for option, words in (("--drain", take if how.drain not in kinds else ()), ("--undrain", give)):
            if words and not any("{node}" in word for word in words):
                raise BadInputError("GS-813", f"the {option} command does not name the node", path=option)
        own = kinds.get(how.drain)
        scheduler = own(call=call) if own else Command(take=take, give=give, call=call)
    return Draining(rollout, scheduler, drain_seconds=how.drain_minutes * 60, busy_seconds=how.busy_minutes * 60)


def _words(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInputError("GS-813", f"cannot parse the {option} command: {error}", path=option) from error


class Draining:
    """Drains the hosts of a run and returns them to service."""

    def __init__(
        self,
        rollout: Rollout,
        scheduler: Scheduler | None,
        *,
        drain_seconds: float,
        busy_seconds: float,
    ) -> None:
        self.rollout, self.scheduler = rollout, scheduler
        self.drain_seconds, self.busy_seconds = drain_seconds, busy_seconds
        self.taken: dict[str, Drained] = {}

    def node(self, name: str) -> str:
        """Return the scheduler's name for a host."""
        return self.rollout.nodes.get(name) or name

    # --- before ---------------------------------------------------------------------------------------------------

    def take(self, changes: dict[str, HostPlan]) -> dict[str, HostOutcome]:
        """Drain these hosts; return the outcomes of those that are not free and stay as they are."""
        held: dict[str, HostOutcome] = {}
        if self.scheduler is not None:
            self.rollout.reporter.say(f"draining {counted(len(changes), 'node')} by {self.scheduler.name}")
            found = self.drain(changes)
            for name, drained in found.items():
                if isinstance(drained, GpuSetupError):
                    held[name] = _refused(changes[name], drained)
                elif not drained.ok:
                    held[name] = postponed(changes[name], drained.why)
                else:
                    self.taken[name] = drained
        try:
            busy = self._busy({name: plan for name, plan in changes.items() if name not in held})
        except KeyboardInterrupt:
            self._untake(name for name in changes if name in self.taken)
            raise
        self._untake(name for name in busy if name in self.taken)
        return held | {name: postponed(changes[name], why) for name, why in busy.items()}

    def drain(self, names: Iterable[str]) -> dict[str, Drained | GpuSetupError]:
        """Drain hosts; return the result or error of each."""
        with phase(self.rollout, "drain"):
            return self._each(names, self._drain)

    def undrain(self, names: Iterable[str]) -> dict[str, str | GpuSetupError]:
        """Return hosts to service; return for each why that failed, or an empty string."""
        return self._each(names, self._undrain)

    def _untake(self, names: Iterable[str]) -> None:
        """Return hosts to service that were drained but will not change."""
        self._each([name for name in names if self.taken.pop(name).ours], self._undrain)

    def _asked(self) -> Scheduler:
        if self.scheduler is None:
            raise RuntimeError("no scheduler was given")
        return self.scheduler

    def _drain(self, name: str) -> Drained:
        return self._asked().drain(self.node(name), self.drain_seconds)

    def _undrain(self, name: str) -> str:
        return self._asked().undrain(self.node(name))

    def _each(self, names: Iterable[str], work: Callable[[str], Answer]) -> dict[str, Answer | GpuSetupError]:
        """Call `work` for all hosts in parallel; after Ctrl-C return drained hosts to service."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = {name: pool.submit(work, name) for name in names}
            try:
                return {name: _result(job.result) for name, job in jobs.items()}
            except KeyboardInterrupt:
                self._asked().call.stop.set()
                for name, job in jobs.items():
                    if not job.cancel() and work == self._drain and getattr(_result(job.result), "ours", False):
                        _result(partial(self._undrain, name))
                raise

    def _busy(self, changes: dict[str, HostPlan]) -> dict[str, str]:
        """Return the hosts whose driver is to change while programs still use their GPUs."""
        return self.wait_idle(
            {name for name, plan in changes.items() if jobs_of(self.rollout.facts[name].processes, plan)}
        )

    def wait_idle(self, asked: set[str]) -> dict[str, str]:
        """Wait until no program uses the GPUs of these hosts; return the busy hosts and their programs."""
        if not asked:
            return {}
        tries = int(self.busy_seconds / _POLL_SECONDS)
        wait = RoleVariables(gpu_busy_retries=tries, gpu_busy_delay=_POLL_SECONDS)
        overlay = write_overlay(self.rollout.session.run.path / "overlay-busy", dict.fromkeys(asked, wait))
        with phase(self.rollout, "drain"), self.rollout.reporter.watch("busy") as observer:
            run = run_playbook(
                self.rollout.session, "busy", deadline=self.busy_seconds + 300, overlay=overlay, observer=observer
            )
        if run.interrupted:
            raise KeyboardInterrupt
        return {name: why for name in asked if (why := _users(run.data(name, "gpu_reboot_need")))}

    def still_drained(self, name: str, why: str) -> str:
        """Return that a host is still drained, and the command that returns it to service."""
        by_hand = self.scheduler.by_hand(self.node(name)) if self.scheduler is not None else ""
        return f"it is still drained: {why}; to return it to service: {by_hand}"

    @contextmanager
    def telling(self, names: Iterable[str]) -> Iterator[None]:
        """Print which of these hosts stay drained if the block ends by an error or Ctrl-C."""
        try:
            yield
        except BaseException:
            for name in names:
                self.rollout.reporter.say(f"{name}: {self.still_drained(name, 'the run ended early')}")
            raise

    # --- afterwards -----------------------------------------------------------------------------------------------

    def give_back(self, outcomes: dict[str, HostOutcome]) -> dict[str, HostOutcome]:
        """Return successful hosts to service; the others stay drained, with the command in a warning."""
        if self.scheduler is None:
            return outcomes
        ours = [name for name in outcomes if name in self.taken and self.taken[name].ours]
        well = [name for name in ours if outcomes[name].state in {"done", "unchanged"}]
        self._restart([name for name in well if outcomes[name].changed])
        troubles = self.undrain(well)
        notes = {name: f"{self.scheduler.name}: {drained.why}" for name, drained in self.taken.items() if drained.why}
        for name in ours:
            trouble = troubles.get(name) if name in well else outcomes[name].state
            if trouble:
                notes[name] = self.still_drained(name, str(trouble))
        return {
            name: msgspec.structs.replace(outcome, warnings=(*outcome.warnings, notes[name]))
            if name in notes
            else outcome
            for name, outcome in outcomes.items()
        }

    def left_behind(self, outcomes: dict[str, HostOutcome]) -> dict[str, HostOutcome]:
        """Return unchanged hosts to service that an earlier run left drained."""
        if self.scheduler is None:
            return {}
        names = [name for name, outcome in outcomes.items() if outcome.state == "unchanged" and name not in self.taken]
        found = self._each(names, self._left)
        self.taken |= {name: Drained(ok=True, ours=True) for name, ours in found.items() if ours is True}
        return self.give_back({name: outcomes[name] for name in names if name in self.taken})

    def _left(self, name: str) -> bool:
        return self._asked().drained_by_us(self.node(name))

    def _restart(self, names: list[str]) -> None:
        """Restart slurmd, which counts the GPUs with the driver's library when it starts."""
        if not names or self.scheduler is None or self.scheduler.name != "slurm":
            return
        overlay = write_overlay(self.rollout.session.run.path / "overlay-slurmd", dict.fromkeys(names, NOTHING))
        self.rollout.stopped |= run_playbook(self.rollout.session, "slurmd", deadline=300, overlay=overlay).interrupted


def _result(get: Callable[[], Answer]) -> Answer | GpuSetupError:
    """Return the value or the error: a failure for one node must not stop the others."""
    try:
        return get()
    except GpuSetupError as error:
        return error


def _users(answer: dict[str, Any] | None) -> str:
    """Return the programs on a host's GPUs as text; empty if there are none."""
    listed = [process for process in (answer or {}).get("processes") or () if isinstance(process, dict)]
    found = [f"{process.get('command')} ({process.get('pid')})" for process in listed]
    return f"programs use the GPU: {', '.join(found[:6])}" if found else ""


def _refused(plan: HostPlan, error: GpuSetupError) -> HostOutcome:
    return msgspec.structs.replace(planned_only(plan), refusals=(refusal_of(error),))
