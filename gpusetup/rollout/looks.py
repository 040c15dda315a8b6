"""The stages that plan and apply share: gather facts, query the repositories, plan each host; who owns a run."""

import getpass
import hashlib
import platform
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from msgspec import UNSET, ValidationError, convert
from msgspec.structs import replace

from gpusetup.components.base import working_driver
from gpusetup.components.record import planned_from, record_of
from gpusetup.drive.causes import in_short
from gpusetup.drive.events import Track
from gpusetup.drive.inventory import check_host_name, write_overlay
from gpusetup.drive.playbook import PlaybookRun, Session, run_playbook
from gpusetup.drive.rundir import live_runs, state_home
from gpusetup.errors import BadInputError, Exit, GpuSetupError
from gpusetup.facts import fleet
from gpusetup.facts.collect import matrix_lookup, this_boot
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import Failure, HostFacts
from gpusetup.model.facts_machine import Boot
from gpusetup.model.lock import Lock
from gpusetup.model.plan import HostPlan, Plan, Preview, Refusal
from gpusetup.model.settings import RebootPolicy, Settings
from gpusetup.model.stack import exact_requirements
from gpusetup.model.variables import NOTHING, Owner, RoleVariables
from gpusetup.plan.host import Draft, Planner, base_plan, refused
from gpusetup.plan.lock import hashed_lines
from gpusetup.plan.preflight import refusal_not_seen, refusal_of
from gpusetup.plan.requests import request_for, with_gpus_of
from gpusetup.resolve.api import resolve
from gpusetup.rollout.options import Planning, Reporter, settings_of_hosts
from gpusetup.rollout.outcome import with_downtime

PREVIEW_DEADLINE = 1800.0


@dataclass
class Rollout:
    """The state of one run over an inventory."""

    session: Session
    matrix: Matrix
    reporter: Reporter
    facts: dict[str, HostFacts] = field(default_factory=dict)
    settings: dict[str, Settings] = field(default_factory=dict)
    plans: dict[str, HostPlan] = field(default_factory=dict)
    connections: dict[str, str] = field(default_factory=dict)
    """Ansible's connection to each host."""
    nodes: dict[str, str] = field(default_factory=dict)
    """A host's name in its scheduler, where the inventory sets one."""
    domains: dict[str, str] = field(default_factory=dict)
    """A host's failure domain (a rack, a switch), where the inventory sets one."""
    fetched: dict[str, str] = field(default_factory=dict)
    """Where the last preview left the package lists on a host, for later steps."""
    seconds: dict[str, float] = field(default_factory=dict)
    stopped: bool = False
    """Whether Ctrl-C came in a batch or after it: the batch keeps its results, and no other one starts."""

    def document(self) -> Plan:
        """Return the plan of all hosts."""
        bad = {"refused", "unreachable", "failed"}
        return Plan(
            ok=all(plan.state not in bad for plan in self.plans.values()), matrix=self.matrix.stamp, hosts=self.plans
        )

    def reach(self, track: Track) -> None:
        """Take connections, nodes and domains from the inventory."""
        self.connections = {name: str(host.connection.get("ansible_connection")) for name, host in track.hosts.items()}
        self.nodes, self.domains = _texts_of(track, "gpusetup_node"), _texts_of(track, "gpusetup_domain")

    def local(self, name: str) -> bool:
        """Return whether a host is this machine, under any name and connection."""
        if self.connections.get(name) == "local":
            return True
        boot, here = self.facts[name].boot, self._here
        return bool(boot.id and boot.machine) and (boot.id, boot.machine) == (here.id, here.machine)

    def reboot_policy(self, name: str) -> RebootPolicy:
        """Return a host's reboot policy: never while somebody is logged in to its desktop."""
        if self.facts[name].display.sessions:
            return "never"
        return self.settings[name].reboot or ("never" if self.local(name) else "when-needed")

    @cached_property
    def _here(self) -> Boot:
        return this_boot()


@contextmanager
def phase(rollout: Rollout, name: str) -> Iterator[None]:
    """Add the time of the block to a phase."""
    started = time.monotonic()
    try:
        yield
    finally:
        rollout.seconds[name] = rollout.seconds.get(name, 0.0) + time.monotonic() - started


def plan_hosts(how: Planning, session: Session, matrix: Matrix, reporter: Reporter) -> Rollout:
    """Gather facts of every host and plan it: freely, to a lock, from an existing plan, or from a record."""
    rollout = Rollout(session, matrix, reporter)
    with phase(rollout, "facts"), reporter.watch("facts") as observer:
        only = None
        if how.only is not None:
            only = write_overlay(session.run.path / "overlay-only", dict.fromkeys(how.only, NOTHING))
        looked = fleet.look(session, matrix_lookup(matrix), candidates=False, overlay=only, observer=observer)
    rollout.settings, lost = settings_of_hosts(how.wishes, session.reach.inventory, looked.run.track)
    if how.lock is not None:
        rollout.settings = {name: locked(settings, how.lock) for name, settings in rollout.settings.items()}
    rollout.reach(looked.run.track)
    rollout.facts = looked.facts.hosts
    if how.image and how.lock is not None:
        request = how.lock.request
        rollout.facts = {name: with_gpus_of(facts, request, matrix) for name, facts in rollout.facts.items()}
    for name, failure in looked.facts.failures.items():
        rollout.plans[name] = _not_seen(failure)
    double = twins(rollout.facts)
    with phase(rollout, "plan"):
        planner = Planner(matrix, resolve)
        if how.keep_driver:
            rollout.settings |= {
                name: _with_own_driver(planner, facts, rollout.settings[name]) for name, facts in rollout.facts.items()
            }
        drafts = {
            name: _safely(partial(_first, planner, rollout, name, how), rollout, name)
            for name in rollout.facts
            if name not in double
        }
    _ask_repositories(rollout, planner, drafts, to_apply=how.to_apply)
    for name, draft in drafts.items():
        rollout.plans[name] = _with_care(rollout, name, draft.plan, lost.get(name, ()) if how.lock is None else ())
    for name, refusal in double.items():
        rollout.plans[name] = refused(base_plan(rollout.facts[name]), (refusal,)).plan
    plans = {name: rollout.plans[name] for name in looked.run.track.hosts if name in rollout.plans}
    if how.made is not None and how.only is None and not session.reach.limit:
        plans |= _strangers(how.made, looked.run.track.hosts)
    rollout.plans = with_downtime(plans, state_home(session.environment))
    session.run.write("plan.json", rollout.document())
    return rollout


def _texts_of(track: Track, variable: str) -> dict[str, str]:
    told = {name: host.variables.get(variable) for name, host in track.hosts.items()}
    return {name: str(value) for name, value in told.items() if value}


def _with_care(rollout: Rollout, name: str, plan: HostPlan, lost: tuple[str, ...]) -> HostPlan:
    """Add warnings to a plan: options without effect on the host, and that gpusetup runs on it."""
    if lost:
        plan = replace(plan, warnings=(*lost, *plan.warnings))
    connection = rollout.connections.get(name)
    if plan.state != "change" or connection == "local" or not rollout.local(name):
        return plan
    text = "gpusetup runs on this machine, so it reboots only with --reboot or gpusetup_reboot"
    return replace(plan, warnings=(*plan.warnings, text))


def _first(planner: Planner, rollout: Rollout, name: str, how: Planning) -> Draft:
    """Plan a host from its facts; raise if an existing plan no longer matches the host."""
    facts, settings = rollout.facts[name], rollout.settings[name]
    if how.recorded is not None:
        return planner.recorded(facts, settings, how.recorded(name, facts))
    draft = planner.first(facts, settings)
    if how.made is None or draft.stage == "final":
        return draft
    before = how.made.hosts.get(name)
    if before is None or before.state != "change":
        raise BadInputError("GS-410", f"the plan has no changes for {name}", path=name)
    why = "" if before.lock.key == planner.key(facts, settings) else "its kernel, GPUs, system or settings differ"
    if before.variables.gpu_state_planned != planned_from(facts) and record_of(facts).begun.key != before.lock.key:
        why = why or "another apply is on its record"
    if why:
        raise BadInputError("GS-411", f"{name} has changed since the plan was made: {why}", path=name)
    return Draft(plan=before, ask=before.variables, stage="transaction")


def locked(settings: Settings, lock: Lock) -> Settings:
    """Return the settings of a host that gets exactly this lock."""
    requirements = exact_requirements(lock.stack)
    # A Python that was not requested is the one of the distribution that the lock was made for.
    if lock.hashes is None and not any(item.component == "python" for item in lock.request.requirements):
        requirements = tuple(item for item in requirements if item.component != "python")
    return replace(settings, requirements=requirements, hashed=hashed_lines(lock))


def _with_own_driver(planner: Planner, facts: HostFacts, settings: Settings) -> Settings:
    """Return settings that keep a working driver, if the rest of the stack is compatible with it."""
    own = working_driver(facts)
    if own is None:
        return settings
    kept = replace(
        settings,
        requirements=tuple(
            replace(item, specifier=f"=={own}") if item.component == "driver" else item
            for item in settings.requirements
        ),
    )
    try:
        planner.resolve(request_for(facts, kept))
    except GpuSetupError:  # incompatible or unknown: the lock's driver replaces it
        return settings
    return kept


def _ask_repositories(rollout: Rollout, planner: Planner, drafts: dict[str, Draft], *, to_apply: bool) -> None:
    """Ask the repositories what they offer, then what this transaction would do; update the drafts."""
    for stage in ("offers", "transaction"):
        asked = {
            name: replace(
                draft.ask,
                gpu_preflight_fetched=rollout.fetched.get(name, ""),
                gpu_preflight_keep=to_apply or stage == "offers",
                gpu_preflight_older=rollout.settings[name].older_source or UNSET,
            )
            for name, draft in drafts.items()
            if draft.stage == stage
        }
        if asked:
            answers = _preview(rollout, asked, stage)
            for name in asked:
                drafts[name] = _answered(rollout, planner, drafts[name], name, answers)


def _answered(rollout: Rollout, planner: Planner, draft: Draft, name: str, run: PlaybookRun) -> Draft:
    rollout.fetched[name] = ""
    told = run.data(name, "gpu_preview")
    if run.track.host(name).failure is not None or told is None:
        return _failed_look(draft.plan, run, name, rollout.session.run.log)
    try:
        answer = convert(told, Preview)
    except ValidationError as error:
        refusal = Refusal(
            reference="GS-409", message=f"the answer of {name} cannot be used: {error}", note="nothing was changed",
            hint=f"full log: {rollout.session.run.log}",
        )  # fmt: skip
        return refused(draft.plan, (refusal,))
    rollout.fetched[name] = answer.fetched
    facts = rollout.facts[name]
    if draft.stage == "offers":
        return _safely(partial(planner.second, facts, rollout.settings[name], answer), rollout, name)
    return Draft(plan=planner.third(draft, answer), wanted=draft.wanted)


def _preview(rollout: Rollout, asked: dict[str, RoleVariables], about: str) -> PlaybookRun:
    session = rollout.session
    overlay = write_overlay(session.run.path / f"overlay-{about}", asked)
    with phase(rollout, "preview"), rollout.reporter.watch("preview") as observer:
        return run_playbook(session, "preview", deadline=PREVIEW_DEADLINE, overlay=overlay, observer=observer)


def _safely(look: Callable[[], Draft], rollout: Rollout, name: str) -> Draft:
    """Plan one host; turn an error into a refusal, so that the others go on."""
    if problem := check_host_name(name):
        refusal = Refusal(reference="GS-404", message=f"unsupported host name {name!r}", note=problem, exit=3)
        return Draft(plan=HostPlan(state="refused", refusals=(refusal,)))
    try:
        return look()
    except GpuSetupError as error:
        return refused(base_plan(rollout.facts[name]), (refusal_of(error),))


def _strangers(made: Plan, there: Container[str]) -> dict[str, HostPlan]:
    """Return refusals for the hosts that a plan changes and the inventory lacks."""
    refusal = Refusal(
        reference="GS-416", message="the plan changes this host, and the inventory has no such host", exit=3,
        hint="make a new plan, or name the hosts that you mean with --limit",
    )  # fmt: skip
    lacking = {name: plan for name, plan in made.hosts.items() if plan.state == "change" and name not in there}
    return {name: refused(plan, (refusal,)).plan for name, plan in lacking.items()}


def _not_seen(failure: Failure) -> HostPlan:
    unreachable = failure.exit == Exit.UNREACHABLE
    return HostPlan(state="unreachable" if unreachable else "refused", refusals=(refusal_not_seen(failure),))


def _failed_look(plan: HostPlan, run: PlaybookRun, name: str, log: Path) -> Draft:
    failure = run.track.host(name).failure
    unreachable = failure is not None and failure.unreachable
    message = failure.message if failure is not None else "the host did not answer"
    refusal = Refusal(
        reference="GS-408" if unreachable else "GS-409", message=" ".join(message.split())[:600],
        note="nothing was changed", hint=f"full log: {log}",
        exit=int(Exit.UNREACHABLE if unreachable else Exit.REFUSED),
    )  # fmt: skip
    return refused(plan, (refusal,), "unreachable" if unreachable else "refused")


_FEW_FORKS = 5
"""Ansible's default number of forks."""


def owner_of(session: Session, hosts: int) -> Owner:
    """Return the owner record of this run; `alive` lets hosts release locks of ended runs of the same home at once.

    `hosts`: the number of hosts of the run. With many more hosts than forks each one hears from the run rarely.
    """
    home = state_home(session.environment)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""  # a user id without a name
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):
        machine = platform.node()
    return Owner(
        controller=platform.node(), user=user, run=session.run.id,
        home=hashlib.sha256(f"{machine.strip()}:{home.resolve()}".encode()).hexdigest()[:16],
        alive=tuple(live_runs(home)), turns=-(-hosts // (session.reach.forks or _FEW_FORKS)),
    )  # fmt: skip


def twins(hosts: dict[str, HostFacts]) -> dict[str, Refusal]:
    """Return a refusal for each host that is the same machine as another: their changes would conflict."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, facts in hosts.items():
        boot = facts.boot
        if boot is not None and boot.id and boot.machine:
            named.setdefault((boot.machine, boot.id), []).append(name)
    refused: dict[str, Refusal] = {}
    for names in named.values():
        if len(names) > 1:
            refusal = Refusal(
                reference="GS-415", message=f"{in_short(names)} are the same machine",
                note="they have the same machine id and boot id; nothing was changed",
                hint=f"keep one of the names in the inventory, or exclude the others: --limit {names[0]}",
            )  # fmt: skip
            refused |= dict.fromkeys(names, refusal)
    return refused
