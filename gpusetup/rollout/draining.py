"""Drain hosts before they change and wait for their GPUs; return them to service afterwards. No job is killed."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from gpusetup.drive.causes import counted
from gpusetup.drive.events import HostProgress
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import run_playbook
from gpusetup.drive.schedulers import Caller, Command, Kubernetes, Scheduler, Slurm
from gpusetup.errors import BadInputError, GpuSetupError
from gpusetup.model.lifecycle import HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.variables import NOTHING, RoleVariables
from gpusetup.plan.host import jobs_of
from gpusetup.plan.preflight import refusal_of
from gpusetup.rollout.looks import Rollout, phase
from gpusetup.rollout.options import Freeing
from gpusetup.rollout.outcome import planned_only, postponed

_AT_ONCE = 1000
"""Nodes that are waited for at once; the scheduler's commands take turns."""
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
        self, rollout: Rollout, scheduler: Scheduler | None, *, drain_seconds: float, busy_seconds: float
    ) -> None:
        self.rollout, self.scheduler = rollout, scheduler
        self.drain_seconds, self.busy_seconds = drain_seconds, busy_seconds
        self.taken: dict[str, str] = {}
        """The drained hosts, each with what the scheduler says of it."""
        self.ours: set[str] = set()
        """The hosts that gpusetup drained and has not returned to service."""

    def node(self, name: str) -> str:
        """Return the scheduler's name for a host."""
        return self.rollout.nodes.get(name) or name

    # --- before ---------------------------------------------------------------------------------------------------

    def take(self, changes: dict[str, HostPlan]) -> dict[str, HostOutcome]:
        """Free these hosts; return the outcomes of those that are not free and stay as they are."""
        facts = self.rollout.facts
        held, busy = self.free(changes, lambda name: bool(jobs_of(facts[name].processes, changes[name])))
        self.undrain(self.ours.intersection(busy))
        busy = {name: f"{why}; {self.still_drained(name)}" if name in self.ours else why for name, why in busy.items()}
        return {
            name: _refused(changes[name], why) if isinstance(why, GpuSetupError) else postponed(changes[name], why)
            for name, why in (held | busy).items()
        }

    def free(
        self, names: Iterable[str], waits: Callable[[str], bool]
    ) -> tuple[dict[str, str | GpuSetupError], dict[str, str]]:
        """Drain hosts and wait for the programs of some; return why hosts were not drained, and which are busy."""
        held: dict[str, str | GpuSetupError] = {}
        names = list(names)
        try:
            if self.scheduler is not None:
                self.rollout.reporter.say(f"draining {counted(len(names), 'node')} by {self.scheduler.name}")
                with phase(self.rollout, "drain"):
                    held = {name: why for name, why in self._each(names, self._drain).items() if why}
            return held, self.wait_idle({name for name in names if name not in held and waits(name)})
        except BaseException:
            if back := self.ours.intersection(names):
                self.rollout.reporter.say(f"returning {counted(len(back), 'node')} to service")
            self.undrain(back)
            raise

    def undrain(self, names: Iterable[str]) -> None:
        """Return hosts to service; `taken` says why that failed."""
        self.taken |= {name: str(why) for name, why in self._each(names, self._undrain).items() if why}

    def _asked(self) -> Scheduler:
        if self.scheduler is None:
            raise RuntimeError("no scheduler was given")
        return self.scheduler

    def _drain(self, name: str) -> str:
        drained = self._asked().drain(self.node(name), self.drain_seconds)
        if not drained.ok:
            return f"{drained.why}; {self.still_drained(name)}" if drained.ours else drained.why
        self.taken[name] = drained.why
        if drained.ours:
            self.ours.add(name)
        return ""

    def _undrain(self, name: str) -> str:
        why = self._asked().undrain(self.node(name))
        if not why:
            self.ours.discard(name)
        return why

    def _each(self, names: Iterable[str], work: Callable[[str], Answer]) -> dict[str, Answer | GpuSetupError]:
        """Call `work` for all hosts in parallel; after Ctrl-C begin no further one."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = {name: pool.submit(work, name) for name in names}
            try:
                return {name: _result(job.result) for name, job in jobs.items()}
            except KeyboardInterrupt:
                self._asked().call.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

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
        return {name: why for name in asked if (why := _users(run.track.host(name)))}

    def still_drained(self, name: str, why: str = "") -> str:
        """Return that a host is still drained, why, and the command that returns it to service."""
        by_hand = self._asked().by_hand(self.node(name))
        parts = [why or self.taken.get(name), by_hand and f"to return it to service: {by_hand}"]
        return f"it is still drained: {'; '.join(filter(None, parts))}"

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Print which hosts stay drained if the block ends by an error or Ctrl-C."""
        try:
            yield
        except BaseException:
            for name in sorted(self.ours):
                self.rollout.reporter.say(f"{name}: {self.still_drained(name, 'the run ended early')}")
            raise

    # --- afterwards -----------------------------------------------------------------------------------------------

    def give_back(self, outcomes: dict[str, HostOutcome]) -> dict[str, HostOutcome]:
        """Return successful hosts to service; the others stay drained, with the command in a warning."""
        if self.scheduler is None:
            return outcomes
        well = [name for name in self.ours if name in outcomes and outcomes[name].state in {"done", "unchanged"}]
        self._restart([name for name in well if outcomes[name].changed])
        self.undrain(well)
        notes = {name: f"{self.scheduler.name}: {why}" for name, why in self.taken.items() if why}
        for name in self.ours.intersection(outcomes):
            notes[name] = self.still_drained(name, "" if name in well else outcomes[name].state)
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
        self.taken |= {name: str(why) for name, why in self._each(names, self._left).items() if why}
        return self.give_back({name: outcomes[name] for name in names if name in self.taken})

    def _left(self, name: str) -> None:
        if self._asked().drained_by_us(self.node(name)):
            self.taken[name] = ""
            self.ours.add(name)

    def _restart(self, names: list[str]) -> None:
        """Restart slurmd, which counts the GPUs with the driver's library when it starts."""
        if not names or self.scheduler is None or self.scheduler.name != "slurm":
            return
        overlay = write_overlay(self.rollout.session.run.path / "overlay-slurmd", dict.fromkeys(names, NOTHING))
        run = run_playbook(self.rollout.session, "slurmd", deadline=300, overlay=overlay, partial=True)
        self.rollout.stopped |= run.interrupted


def _result(get: Callable[[], Answer]) -> Answer | GpuSetupError:
    """Return the value or the error: a failure for one node must not stop the others."""
    try:
        return get()
    except GpuSetupError as error:
        return error


def _users(host: HostProgress) -> str:
    """Return why a host's GPUs are not free: its programs, or that they cannot be listed; empty if unreachable."""
    processes = host.data.get("gpu_reboot_need", {}).get("processes")
    listed = [process for process in processes or () if isinstance(process, dict)]
    found = [f"{process.get('command')} ({process.get('pid')})" for process in listed]
    if host.failure is not None and not host.failure.unreachable and not found:
        return f"the programs on its GPUs cannot be listed: {host.failure.trouble.message}"
    return f"programs use the GPU: {', '.join(found[:6])}" if found else ""


def _refused(plan: HostPlan, error: GpuSetupError) -> HostOutcome:
    return msgspec.structs.replace(planned_only(plan), refusals=(refusal_of(error),))
