"""Carry out plans wave by wave: drain, change, verify and return hosts to service; record each result."""

import time

from msgspec.structs import replace

from gpusetup.components.record import planned_from
from gpusetup.drive.audit import on_record
from gpusetup.drive.causes import counted
from gpusetup.drive.inventory import write_overlay
from gpusetup.drive.playbook import run_playbook
from gpusetup.drive.rundir import occupy, state_home
from gpusetup.errors import Exit
from gpusetup.model.lifecycle import Applied, HostOutcome
from gpusetup.model.plan import HostPlan
from gpusetup.model.variables import RoleVariables
from gpusetup.rollout.batches import batches_of, keep_rollout, sizes_after
from gpusetup.rollout.draining import draining
from gpusetup.rollout.looks import Rollout, owner_of, phase
from gpusetup.rollout.options import Applying
from gpusetup.rollout.outcome import closed_domains, exit_of, not_started, outcome_of, planned_only, stopped, summary
from gpusetup.rollout.verification import verify_hosts

APPLY_DEADLINE = 6 * 3600.0


def carry_out(how: Applying, rollout: Rollout) -> Applied:
    """Change the hosts whose plan says so, verify them, and return the outcome of each."""
    return _Waves(how, rollout).go()


class _Waves:
    """The hosts that change, in their waves, and each outcome so far."""

    def __init__(self, how: Applying, rollout: Rollout) -> None:
        self.how, self.rollout = how, rollout
        self.changes = {name: plan for name, plan in rollout.plans.items() if plan.state == "change"}
        self.outcomes = {
            name: (not_started if name in self.changes else planned_only)(plan) for name, plan in rollout.plans.items()
        }
        self.waves = batches_of(self.changes, how.batch)
        self.work = draining(how.freeing, rollout)
        self.verifies = how.verify != "never" and not how.check
        self.by_wave = len(self.waves) > 1 or self.work.scheduler is not None
        self.seen: dict[str, HostOutcome] = {}
        self.passed = 0
        self.at = ""
        """The step that the current wave is in."""

    def go(self) -> Applied:
        """Carry out all waves; log changes before they begin."""
        if not self.changes or self.how.check:
            return self._go()
        wanted = {
            name: "; ".join(f"{action.kind}: {action.what}" for action in plan.actions)
            for name, plan in self.changes.items()
        }
        with on_record(self.rollout.session, "apply", wanted, self._fared, self.rollout.reporter.say):
            return self._go()

    def _fared(self) -> dict[str, str]:
        return {name: summary(self.outcomes[name]) for name in self.changes}

    def _go(self) -> Applied:
        """Carry out all waves; after Ctrl-C return what is known by then."""
        try:
            with self.work.telling():
                if self.changes:
                    self.rollout.reporter.begins(self.changes)
                    home = state_home(self.rollout.session.environment)
                    with occupy(home, self.changes, "apply"):
                        self._keep(self.seen)
                        self._each_wave()
                self._the_rest()
        except BaseException as error:
            if not self.at:
                raise
            self._keep({name: outcome for name, outcome in self.outcomes.items() if outcome.state != "not-started"})
            applied = self._document()
            states = {outcome.state for outcome in applied.hosts.values()}
            if not isinstance(error, KeyboardInterrupt) or "interrupted" not in states:
                raise
            return applied
        return self._document()

    def _each_wave(self) -> None:
        for number, wave in enumerate(self.waves, 1):
            if len(self.waves) > 1:
                self.rollout.reporter.say(f"batch {number} of {len(self.waves)}: {counted(len(wave), 'host')}")
            shut = self._shut(wave)
            self.outcomes |= shut
            begun = {name: self.changes[name] for name in wave if name not in shut}
            done = self._wave(begun) if begun else {}
            self.seen |= shut
            self.seen |= self.work.give_back(done)
            self.outcomes |= self.seen
            why = stopped(self.outcomes, self.how.max_fail)
            ended = bool(why) or self.rollout.stopped
            if why:
                rest = [name for wave in self.waves[number:] for name in wave]
                self.outcomes |= {name: not_started(self.changes[name], why) for name in rest}
            self.passed = number - ended
            self._keep(self.seen)
            self._document()
            if ended:
                break

    def _shut(self, wave: tuple[str, ...]) -> dict[str, HostOutcome]:
        """Return the hosts of a wave that are not started, because too many of their failure domain failed."""
        if self.how.max_fail_domain is None:
            return {}
        domains = self.rollout.domains
        closed = closed_domains(self.outcomes, domains, self.how.max_fail_domain)
        return {
            name: not_started(self.changes[name], f"{counted(closed[domains[name]], 'host')} of {domains[name]} failed")
            for name in wave
            if domains.get(name) in closed
        }

    def _wave(self, wanted: dict[str, HostPlan]) -> dict[str, HostOutcome]:
        self._at("freeing it; nothing was changed", wanted)
        held = {} if self.how.check else self.work.take(wanted)
        free = {name: plan for name, plan in wanted.items() if name not in held}
        self.outcomes |= held
        self._at("between two steps", free)
        done = held | (_change(self.rollout, free, check=self.how.check) if free else {})
        self.outcomes |= done
        if self.verifies and self.by_wave:
            done = verify_hosts(self.rollout, done, always=True)
        return done

    def _at(self, step: str, hosts: dict[str, HostPlan]) -> None:
        """Begin a step of hosts; if it does not end, they are interrupted."""
        self.at = step
        self.outcomes |= {
            name: replace(planned_only(plan), state="interrupted", failed_at=step) for name, plan in hosts.items()
        }

    def _the_rest(self) -> None:
        """Verify hosts not yet verified with a wave; return nodes to service that an earlier run left drained."""
        self._at("verification", {})
        if self.verifies and not self.rollout.stopped:
            verified = {name for wave in self.waves for name in wave} if self.by_wave else set()
            rest = {name: outcome for name, outcome in self.outcomes.items() if name not in verified}
            self.outcomes |= verify_hosts(self.rollout, rest, always=self.how.verify == "always")
        if not self.how.check:
            self.outcomes |= self.work.left_behind(self.outcomes)
            self._keep(self.outcomes)

    def _keep(self, known: dict[str, HostOutcome]) -> None:
        if self.how.keep:  # apply does not resume a stopped rollback
            session, names = self.rollout.session, self.rollout.plans if self.how.keep == "on" else self.changes
            batch = sizes_after(self.how.batch, self.passed)
            keep_rollout(session.run, session.reach.inventory, batch, known, names)

    def _document(self) -> Applied:
        """Write applied.json, after every wave: this machine may crash."""
        run = self.rollout.session.run
        applied = Applied(
            ok=all(exit_of(outcome) is Exit.DONE for outcome in self.outcomes.values()), run=run.id, log=str(run.log),
            seconds={name: round(spent, 1) for name, spent in self.rollout.seconds.items()},
            matrix=self.rollout.document().matrix, hosts={name: self.outcomes[name] for name in self.rollout.plans},
        )  # fmt: skip
        run.write("applied.json", applied)
        return applied


def _change(rollout: Rollout, changes: dict[str, HostPlan], *, check: bool) -> dict[str, HostOutcome]:
    session = rollout.session
    owner = owner_of(session, len(changes))
    variables = {
        name: replace(_as_now(rollout, name, plan.variables), gpu_state_owner=owner) for name, plan in changes.items()
    }
    overlay = write_overlay(session.run.overlay, variables)
    started = time.monotonic()
    with phase(rollout, "apply"), rollout.reporter.watch("apply") as observer:
        done = run_playbook(
            session, "apply", deadline=APPLY_DEADLINE, overlay=overlay, observer=observer, check=check, partial=True
        )
    seconds = time.monotonic() - started
    rollout.stopped |= done.interrupted
    return {
        name: outcome_of(plan, done.track.host(name), seconds, stopped=done.interrupted)
        for name, plan in changes.items()
    }


def _as_now(rollout: Rollout, name: str, variables: RoleVariables) -> RoleVariables:
    """Return the variables of a host's plan with those of this run: no second preflight, lists, reboot policy."""
    policy = rollout.reboot_policy(name)
    return replace(
        variables, gpu_preflight_enabled=False, gpu_packages_fetched=rollout.fetched.get(name, ""),
        gpu_state_planned=planned_from(rollout.facts[name]), gpu_state_id=rollout.session.run.id,
        gpu_reboot_policy=policy,
        gpu_reboot_local=rollout.local(name) and policy != "never",
    )  # fmt: skip
