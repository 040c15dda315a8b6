"""Plans one host in three steps: from its facts, with repository offers, with the simulated transaction."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from gpusetup.components import judge
from gpusetup.components.base import Context, Family, Offers, Wanted, working_driver
from gpusetup.components.driver.modules import no_way, seen_through_streams
from gpusetup.components.driver.sources import absence, all_sources, context_of, family_for, unproven
from gpusetup.components.judge import Judged
from gpusetup.components.python.environments import with_one_driver
from gpusetup.components.python.requirements import has_python, interpreter_of, pythons_of, system_of
from gpusetup.components.python.size import environment_sizes, total, unmeasured
from gpusetup.components.record import planned_from, record_of, unread
from gpusetup.components.registry import COMPONENTS
from gpusetup.components.vgpu import with_cloud_driver, with_recorded_token
from gpusetup.errors import GpuSetupError, NoStackError, PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.applied import NO_LOCK, SCHEMA, Applied
from gpusetup.model.facts import HostFacts, Process
from gpusetup.model.facts_machine import Display
from gpusetup.model.plan import Action, HostPlan, Preview, PreviewTransaction, Refusal
from gpusetup.model.request import DriverCandidate, Request
from gpusetup.model.settings import Settings
from gpusetup.model.stack import Resolution, Stack
from gpusetup.model.variables import NOTHING, RoleVariables
from gpusetup.plan.actions import (
    actions,
    lacks_packages,
    question_variables,
    removals,
    role_variables,
    without_leftovers,
)
from gpusetup.plan.preflight import (
    NO_GPU,
    cloud_notes,
    driver_refusals,
    findings,
    foreign_driver,
    homeless_refusal,
    host_refusals,
    maintenance_refusal,
    no_stack_refusal,
    policy_refusals,
    refusal_of,
)
from gpusetup.plan.requests import request_for
from gpusetup.plan.wanted import asks, manages_driver, needs_packages, packed, unpacked, wanted_of

_MOVES = {"upgrade", "downgrade", "remove"}
_TELLING = ("reboot", "module-load")  # whose reasons explain a reboot best
Stage = Literal["offers", "transaction", "final"]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """An unfinished plan: the next preview's variables, and whether it asks for offers or the transaction."""

    plan: HostPlan
    ask: RoleVariables = NOTHING
    wanted: Wanted | None = None
    stage: Stage = "final"


class HostRefusedError(Exception):
    """Planning ends: the host stays as it is. `stack` is the chosen one, if planning came so far."""

    def __init__(self, *refusals: Refusal, stack: Stack | None = None) -> None:
        super().__init__(refusals, stack)
        self.refusals, self.stack = refusals, stack


class Planner:
    """Plans hosts with one matrix; equal requests are resolved once."""

    def __init__(self, matrix: Matrix, resolve: Callable[[Request, Matrix], Resolution]) -> None:
        self.matrix = matrix
        self._resolve = resolve
        self._answers: dict[bytes, Resolution | NoStackError] = {}

    # --- first look ---------------------------------------------------------------------------------------------

    def first(self, facts: HostFacts, settings: Settings) -> Draft:
        """Plan from facts alone; a host that matches its record is finished here."""
        base = base_plan(facts)
        if (refusal := foreign_driver(facts)) is not None:
            return refused(base, (refusal,))
        if not facts.gpus:
            return Draft(plan=_replace(base, reasons=(), warnings=(NO_GPU,)))
        key = self.key(facts, settings)
        record = record_of(facts)
        anew = settings.upgrade and record.unfinished is None  # an interrupted upgrade goes on
        for lock, cut in ((record.begun, True), (record.lock, False)):
            fits = lock.repeatable and lock.key == key and not anew
            if fits and not (cut and lacks_packages(facts, lock)):
                return self._from_record(facts, settings, lock)
        own = (refusal for component in COMPONENTS for refusal in component.refusals(facts, settings))
        refusals = (*host_refusals(facts), *own)
        if refusals:
            return refused(base, refusals)
        return self._look(facts, settings, None, key)

    def recorded(self, facts: HostFacts, settings: Settings, lock: Applied) -> Draft:
        """Plan a host to the state of a lock, whatever would be chosen today."""
        if not lock.repeatable:
            raise PreflightError(
                "GS-804",
                f"the last apply cannot be planned again from its record: {lock.unread or 'there is none'}",
                note="it was made by the roles without gpusetup, or by another version",
                hint="repeat it as you ran it then",
            )
        draft = self._from_record(facts, settings, with_recorded_token(lock, settings))
        driver = lock.stack.driver if lock.stack is not None else None
        kept = lock.wanted is not None and not lock.wanted.manage_driver
        if driver is not None and kept and working_driver(facts) != driver.version:
            raise PreflightError(
                "GS-815",
                f"that apply kept driver {driver.version}, which gpusetup did not install and which is missing now",
                note="its packages are not on record, so gpusetup cannot restore them",
                hint=f"request it: gpusetup apply -e gpusetup_driver={driver.version}; "
                "or undo everything: gpusetup remove",
            )
        return draft

    def second(self, facts: HostFacts, settings: Settings, answer: Preview) -> Draft:
        """Plan with the offers of the wanted repositories."""
        refusals = findings(answer)
        if refusals:
            return refused(base_plan(facts), refusals)
        return self._look(facts, settings, Offers(answer.candidates), self.key(facts, settings))

    def third(self, draft: Draft, answer: Preview) -> HostPlan:
        """Finish a plan with the simulated transaction."""
        refusals = findings(answer)
        if refusals:
            return refused(draft.plan, refusals).plan
        transaction = answer.transaction or PreviewTransaction()
        removed = sorted(set(draft.plan.removals) | set(transaction.remove))
        told = (item.text for item in answer.findings if item.level == "warn")
        warnings = [text for text in told if text not in draft.plan.warnings]
        return _replace(
            draft.plan,
            download_bytes=_sum(transaction.download_bytes, draft.plan.wheel_bytes),
            package_bytes=transaction.download_bytes,
            removals=tuple(removed),
            warnings=(*draft.plan.warnings, *warnings),
        )

    # --- the work -----------------------------------------------------------------------------------------------

    def _look(self, facts: HostFacts, settings: Settings, offers: Offers | None, key: str) -> Draft:
        try:
            return self._with_offers(facts, settings, offers, key)
        except HostRefusedError as end:
            return refused(_replace(base_plan(facts), stack=end.stack), end.refusals)

    def _with_offers(self, facts: HostFacts, settings: Settings, offers: Offers | None, key: str) -> Draft:
        """Choose a stack, within the offers where they are known, and plan it."""
        try:
            sourced = with_cloud_driver(facts, settings, self.matrix)
        except PreflightError as error:
            raise HostRefusedError(refusal_of(error)) from None
        context = context_of(self.matrix.repos, facts, sourced, offers or Offers(None))
        family = family_for(context)
        told = offers is not None or (family is not None and family.key == "runfile")
        candidates = family.drivers(context) if family is not None and told else None
        if family is not None and (refusal := no_way(context, family, candidates)) is not None:
            raise HostRefusedError(refusal)
        try:
            context, resolution = self._choose(context, family, candidates)
        except GpuSetupError as error:
            if offers is None and family is not None and not isinstance(error, NoStackError):
                raise
            raise HostRefusedError(no_stack_refusal(error, facts, offered=candidates is not None)) from None
        stack = resolution.stack
        if family is None and (manages_driver(context, stack) or asks(context.settings)):
            raise HostRefusedError(absence(context), stack=stack)
        if family is not None and offers is None and needs_packages(context, family, stack, self.matrix):
            if (refusal := unproven(context)) is not None:
                raise HostRefusedError(refusal, stack=stack)
            return Draft(plan=base_plan(facts), ask=self._question(context, family), stage="offers")
        return self._final(context, family, resolution, key)

    def _choose(
        self, context: Context, family: Family | None, candidates: tuple[DriverCandidate, ...] | None
    ) -> tuple[Context, Resolution]:
        """Resolve within the repositories' offers; if no packaged toolkit fits, resolve with CUDA as wheels."""
        facts, settings = context.facts, context.settings
        libraries = family.library_candidates(context) if family is not None else ()
        system = system_of(self.matrix, facts)
        pythons = pythons_of(facts, settings, system, context.offers, installable=family is not None)
        request = request_for(facts, settings, candidates, libraries, pythons=pythons)
        try:
            resolution = self.resolve(request)
        except NoStackError:
            if not libraries or settings.cuda_from == "packages":
                raise
            request = request_for(facts, settings, candidates, pythons=pythons)
            resolution = self.resolve(request)
            if not has_python(resolution.stack):
                raise
            settings = msgspec.structs.replace(settings, cuda_from="wheels")
            context = dataclasses.replace(context, settings=settings)
        resolution, named = with_one_driver(facts, settings, request, resolution, self.resolve)
        if has_python(resolution.stack) and not settings.python_adopt:
            interpreter_of(facts, settings, resolution.stack, system)  # raises where the host can have none
        return dataclasses.replace(context, named=named), resolution

    def _final(self, context: Context, family: Family | None, resolution: Resolution, key: str) -> Draft:
        facts, stack = context.facts, resolution.stack
        wanted = wanted_of(context, family, stack, self.matrix)
        if wanted.homeless:
            raise HostRefusedError(homeless_refusal(wanted.homeless), stack=stack)
        host = judge.judged(facts)
        refusals = tuple(driver_refusals(host, wanted, context.offers, self.matrix))
        if refusals:
            raise HostRefusedError(*refusals, stack=stack)
        lock = Applied(schema=SCHEMA, key=key, matrix=resolution.matrix, stack=stack, wanted=packed(wanted))
        plan = _planned(host, wanted, lock, self.matrix)
        warnings = (*plan.warnings, *_not_understood(facts), *wanted.notes, *resolution.warnings)
        reasons = (*resolution.reasons, *wanted.reasons)
        return _draft(_replace(plan, reasons=reasons, warnings=warnings), wanted)

    def _from_record(self, facts: HostFacts, settings: Settings, lock: Applied) -> Draft:
        """Plan from a lock: equal settings on the same matrix give the same stack."""
        wanted = unpacked(lock, settings)
        return _draft(_planned(judge.judged(facts), wanted, lock, self.matrix), wanted)

    def _question(self, context: Context, family: Family) -> RoleVariables:
        of_parts = (name for component in COMPONENTS for name in component.patterns(context, self.matrix))
        names = (*family.patterns(context), *of_parts)
        return question_variables(context.facts, seen_through_streams(context, all_sources(context, family)), names)

    def resolve(self, request: Request) -> Resolution:
        """Return the resolver's answer; each request is resolved once."""
        packed_request = msgspec.json.encode(request)
        if packed_request not in self._answers:
            try:
                self._answers[packed_request] = self._resolve(request, self.matrix)
            except NoStackError as error:
                self._answers[packed_request] = error
        answer = self._answers[packed_request]
        if isinstance(answer, NoStackError):
            raise answer
        return answer

    def key(self, facts: HostFacts, settings: Settings) -> str:
        """Return a digest over all that decides the stack, without anything that an apply changes."""
        what: dict[str, Any] = {
            # These decide when and how, not what.
            "settings": msgspec.structs.replace(
                settings, reboot=None, upgrade=False, containers_restart="idle", reload="idle", policy=None
            ),
            "policy": settings.policy and msgspec.structs.replace(settings.policy, places=()),
            "matrix": self.matrix.digest,
            "os": facts.os.label,
            "arch": facts.arch,
            "gpus": sorted(gpu.pci_id for gpu in facts.gpus),
            "nvswitch": facts.nvswitch.kind if facts.nvswitch else None,
            "kernel": facts.kernel.next,
        }
        if named := {wish.gpu for wish in settings.mig}:  # layouts are by address
            what["mig"] = [[gpu.address, gpu.uuid if gpu.uuid in named else None] for gpu in facts.gpus]
        return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:32]


def describe(facts: HostFacts) -> str:
    """Return system, GPUs and driver of a host in one line."""
    names = [gpu.name or gpu.pci_id for gpu in facts.gpus]
    gpus = ", ".join(f"{names.count(name)}x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names))
    driver = facts.driver.version if facts.driver is not None else None
    parts = [facts.os.name, gpus or "no NVIDIA GPU", f"driver {driver}" if driver else "no driver"]
    return "; ".join(parts) + (" (simulated GPU)" if facts.simulated else "")


def _not_understood(facts: HostFacts) -> Iterator[str]:
    """Yield a warning if another version wrote the record, or it is damaged: it will be replaced."""
    if reason := unread(facts):
        yield f"another version of gpusetup recorded the last apply ({reason}): gpusetup chooses the stack again"
    if reason := facts.record_lost:
        yield (
            f"the record of earlier applies is damaged or gone ({reason}): apply sets it aside and starts a new one, "
            "which does not know what gpusetup changed before"
        )


def _planned(host: Judged, wanted: Wanted, lock: Applied, matrix: Matrix) -> HostPlan:
    facts = host.facts
    wanted = dataclasses.replace(wanted, packages=without_leftovers(facts, wanted.packages))
    todo = tuple(actions(host, wanted))
    if facts.packages.problems and (todo or record_of(facts).apply.id):
        what, why = "finish an interrupted package installation", "; ".join(facts.packages.problems[:3])
        todo = (Action(id="repair", kind="install", what=what, why=why), *todo)
    reboots = sorted((action for action in todo if action.reboot), key=lambda action: action.id not in _TELLING)
    holds = wanted.packages.hold if wanted.packages is not None else ()
    gone = removals(wanted.packages, facts.packages.installed) if wanted.packages is not None else ()
    variables = role_variables(facts, wanted)
    variables = msgspec.structs.replace(variables, gpu_state_lock=lock, gpu_state_planned=planned_from(facts))
    sizes = environment_sizes(wanted, todo, facts.arch, matrix.wheels)
    size = total(sizes.values())
    warnings = (*(_display_warnings(facts.display, wanted) if todo else ()), *unmeasured(size))
    if megabytes := {path: -(-item.peak >> 20) for path, item in sizes.items() if item.peak}:
        variables = msgspec.structs.replace(variables, gpu_preflight_space_mb=megabytes)
    base = _replace(base_plan(facts), stack=wanted.stack)
    plan = _replace(
        base,
        state="change" if todo else "unchanged",
        actions=todo,
        removals=gone,
        holds=holds,
        reboot=bool(reboots),
        reboot_why=reboots[0].why if reboots else "",
        variables=variables,
        lock=lock,
        kind=lock.key[:12],
        wheel_bytes=None if size.unknown else size.download,
    )
    plan = _replace(
        plan,
        jobs=jobs_of(facts.processes, plan),
        work=facts.work if _moves_driver(plan) else (),
        warnings=(*warnings, *cloud_notes(facts, matrix)),
    )
    announced = maintenance_refusal(facts, wanted.settings) if todo else None
    broken = tuple(policy_refusals(facts, wanted.settings.policy, matrix, after=plan))
    if announced is not None:
        return refused(base, (announced,)).plan
    return refused(plan, broken).plan if broken else plan


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _draft(plan: HostPlan, wanted: Wanted) -> Draft:
    if plan.state != "change":
        return Draft(plan=plan, wanted=wanted)
    return Draft(plan=plan, ask=plan.variables, wanted=wanted, stage="transaction")


def _display_warnings(display: Display, wanted: Wanted) -> tuple[str, ...]:
    if not wanted.manage_driver:
        return ()
    warnings = []
    if display.sessions:
        warnings.append("a user is logged in at this host's screen: gpusetup does not end the session or reboot")
    if display.hybrid:
        others = ", ".join(other.pci_id for other in display.other_gpus)
        warnings.append(f"hybrid graphics ({others} beside NVIDIA): the display stays on the same GPU")
    return tuple(warnings)


def jobs_of(processes: Sequence[Process], plan: HostPlan) -> dict[int, str]:
    """Return the programs on the GPUs, without the driver's services, if the plan moves the driver; else {}.

    Their loaded libraries would no longer fit the kernel module.
    """
    if not _moves_driver(plan):
        return {}
    return {item.pid: item.command for item in processes if not item.command.startswith(judge.driver.PROCESSES)}


def _moves_driver(plan: HostPlan) -> bool:
    return plan.reboot or any(action.kind in _MOVES for action in plan.actions)


def base_plan(facts: HostFacts) -> HostPlan:
    """Return what a plan says of a host whatever becomes of it."""
    return HostPlan(state="nothing-to-do", now=describe(facts), simulated=facts.simulated)


def refused(
    base: HostPlan, refusals: tuple[Refusal, ...], state: Literal["refused", "unreachable"] = "refused"
) -> Draft:
    """Return the plan of a host that stays as it is."""
    plan = _replace(base, state=state, refusals=refusals, actions=(), reboot=False, variables=NOTHING, lock=NO_LOCK)
    return Draft(plan=plan)


def _replace(plan: HostPlan, **changes: Any) -> HostPlan:
    return msgspec.structs.replace(plan, **changes)
