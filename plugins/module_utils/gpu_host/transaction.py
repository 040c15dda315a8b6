"""One transaction: bring a host to an exact set of packages, prove the kernel module, hold the packages; or roll back.

The previous packages are written down before the first change and kept until the record has counted the difference:
after an interruption, the next run knows what this host had. A package manager's own report is not trusted: after every
transaction the installed packages are read again.
"""

import errno
import os
import re
import time
from typing import Any, Dict, Iterable, List, NoReturn, Optional, Sequence, Set, Tuple

from ..gpu_judge import versions
from . import (
    dkms,
    fetched,
    files,
    package_manager,
    package_state,
    packages,
    planning,
    runfile,
    services,
    sources,
    undo,
    way_back,
)
from .failure import FULL, HostFailure, of_system, tried
from .ledger import Ledger
from .machine import Machine
from .package_state import Holds
from .packages import Installed, Plan, Wish

# Not a bare 404, which is part of NVIDIA's addresses: …/repos/ubuntu2404/…
_BROKEN_OFF = (
    "Hash Sum mismatch", "Failed to fetch", "Status code: 404", "Curl error", "Error downloading packages",
    "All mirrors were tried", "Failed to download", "Temporary failure resolving",
    "Download (curl) error", "not found on medium",
)  # fmt: skip
_AGAIN_AFTER = (5, 20)  # seconds
_TRY_FOR = 1800
_PLANNED = ("install", "upgrade", "downgrade", "remove")


class Transaction:
    """The work of one job."""

    def __init__(self, job: Any, params: Dict[str, Any], looked: str = "") -> None:
        self.job = job
        self.params = params
        self.looked = looked
        self.host = planning.manager(params, tell=job.tell, log=job.log)
        self.ledger: Any = Ledger(params["state_dir"])
        self.machine = Machine(params["simulated_root"])
        self.held_changed = False
        self.before: Optional[Installed] = None
        self.counted: Installed = {}  # packages at the time up to which the record has counted changes
        self.released: List[str] = []
        self.saved: Dict[str, str] = {}
        self.kept_before: Dict[str, Any] = {}
        self.units_before: List[Tuple[str, bool]] = []
        self.before_path = os.path.join(params["state_dir"], packages.BEFORE)
        self.kept_folder = os.path.join(params["state_dir"], "way-back")
        self.former = False  # whether a rollback needs the sources that this apply has replaced
        self.started = time.time()
        self.identity = f"{self.started:.6f}-{os.getpid()}"

    def run(self) -> Dict[str, Any]:
        """Run it and return what changed; after a failure the files that this apply wrote are restored too.

        Packages that have changed and are not rolled back stay with their sources, as on a full disk, where another
        transaction might break them. The next run goes on from there, as after a kill.
        """
        try:
            return self._run()
        except (HostFailure, OSError) as error:
            failure = of_system(error) if isinstance(error, OSError) else error
            if self.before is not None and not self.ledger.goes_back and tried(self._changed) != ({}, ""):
                back = undo.Back([], ["the changed packages stay, and the same command goes on from there"])
            else:
                back = undo.revert(undo.Site(self.ledger, self.host, self.machine, self.host.env))
            trouble = [*back.trouble, tried(self._give_up)[1]]
            failure.result = dict(failure.result, reverted=back.things)
            failure.fields["note"] = "; ".join(filter(None, [failure.fields["note"], *trouble]))
            raise failure from None
        finally:
            self.host.close()

    def _run(self) -> Dict[str, Any]:
        params = self.params
        self.host.require()
        package_manager.wait_until_free(params["lock_timeout"], self.job.tell)
        before = self.before = self._before(self.host.installed())
        damaged = self.host.repair(self._may_go)
        if damaged:
            hint = "apt-get install --reinstall --allow-change-held-packages " + " ".join(sorted(damaged))
            raise HostFailure("GS-454", "half-installed packages cannot be finished", _named(damaged), hint=hint)
        installed = self.host.installed()
        wishes, removals = planning.wanted(params, installed, self.host.architecture())
        self.units_before = self._units()
        enabled = package_state.enable_streams(self.ledger, self.host, params["streams"])
        exact: List[Wish] = []
        complete = wishes + planning.lost(params, installed, self.ledger.state, wishes)
        if self.counted == installed:
            self.ledger.leave_packages(installed)
        todo = packages.unmet(complete, installed) or removals or enabled
        if todo or (params["hold"] and not self.host.can_hold()):
            exact = self._change(complete if todo else [], removals, installed)
        try:
            dkms.mend(self.machine, params, self.host.env, self.job.tell, self.job.log)
        except HostFailure as failure:
            raise self._with_build_error(failure) from failure
        after = self.host.installed()
        try:
            self._hold(after, wishes)
        except HostFailure as failure:
            self._roll_back(before, failure)
        return self._recorded(before, after, wishes, exact, enabled)

    def _may_go(self, names: Iterable[str]) -> List[str]:
        asked = self.params["may_remove"] + self.params["remove"]
        return packages.forbidden(names, asked, [], self.ledger.state["brought"])

    def _give_up(self) -> None:
        """Record what a failed try left, so that removal finds it and the next try continues from there."""
        if self.before is None:
            return
        before, now, change = self.before, self.host.installed(), self._changed()
        if change:
            self.ledger.record_packages(change, self.identity)
        if self._left_over(before):
            files.write_json(self.before_path, dict(self.kept_before, packages=before, left=now))
            return
        package_state.enable_streams(self.ledger, self.host, self.kept_before["streams"])
        holds = Holds(self.host, self.ledger.state["holds"])
        self.ledger.change(holds, sorted(set(self.kept_before["holds"]) & set(now)))
        self.ledger.forget_apply()
        self._forget_before()

    def _changed(self) -> Dict[str, Any]:
        """Return what has changed since the record counted the packages, {} if nothing has."""
        change = packages.difference(self.counted, self.host.installed())
        return change if any(change.values()) else {}

    def _forget_before(self) -> None:
        way_back.forget(self.kept_folder)
        os.unlink(self.before_path)

    def _recorded(
        self, before: Installed, after: Installed, wishes: List[Wish], exact: List[Wish], enabled: List[str]
    ) -> Dict[str, Any]:
        """Record the result, then forget the previous packages; return the result for the module."""
        change = packages.difference(before, after)
        there = {
            packages.key(wish): versions.version_of(after, packages.key(wish), wish["version"])
            or after.get(wish["name"], "")
            for wish in wishes
        }
        self.ledger.tell(packages=there, free=sorted(set(self.params["free"]) & set(there)))
        self.ledger.record_packages(packages.difference(self.counted, after), self.identity)
        ours = {**self.ledger.state["brought"], **self.ledger.state["moved"]}
        kept = {name: version for name, version in after.items() if name in ours}
        way_back.shelve(self.host, kept, self.params["state_dir"])
        self._forget_before()
        return {
            "difference": change,
            "packages": there,
            "resolved": {wish["name"]: wish["version"] for wish in exact},
            "held": self.ledger.state["holds"],
            "saved": self.saved,
            "changed": bool(any(change.values()) or enabled or self.held_changed),
        }

    def _before(self, installed: Installed) -> Installed:
        """Return the packages before the first unfinished try, plus what others changed since; write them down.

        A failed try has counted its changes in the record; a killed one has not.
        """
        kept = files.read_json(self.before_path)
        went = kept and not packages.is_counted(kept, self.ledger.state)
        before = self.counted = installed
        if kept and kept["left"] is None and not packages.is_counted(kept, self.ledger.state):
            before, self.counted = kept["packages"], kept["counted"]
        elif kept:
            left = installed if kept["left"] is None else kept["left"]
            since = {name for name in set(left) | set(installed) if left.get(name) != installed.get(name)}
            before = {name: version for name, version in kept["packages"].items() if name not in since}
            before.update({name: installed[name] for name in since if name in installed})
        modules = [] if went else [item["module"] for item in self.params["streams"]]
        streams = [{"module": name, "stream": self.host.enabled_stream(name)} for name in modules]
        self.kept_before = {
            "packages": before, "left": None, "counted": self.counted, "id": self.identity,
            "streams": kept["streams"] if went else streams,
            "holds": kept["holds"] if went else self.ledger.state["holds"],
        }  # fmt: skip
        files.write_json(self.before_path, self.kept_before)
        return before

    def _change(self, wishes: List[Wish], removals: List[str], installed: Installed) -> List[Wish]:
        trouble = [] if self.params["manager"] == "apt" and fetched.hand_over(self.looked) else self.host.refresh()
        for line in trouble:
            self.job.log("refresh: " + line)
        wishes = wishes + planning.needed_to_hold(self.host, self.params)
        exact = planning.resolve(self.host, wishes, trouble, self.params["optional"])
        for reason in packages.stubs(exact, self.params):
            hint = "nothing was changed; request that branch by its own name, or use another source"
            raise HostFailure("GS-468", reason, hint=hint)
        self.job.tell("simulate", "checking the transaction")
        plan = planning.plan_for(self.host, exact, removals, installed)
        extra = self._forbidden(plan, removals)
        if extra and self.params["optional"]:
            self.job.tell("simulate", "finding what has to stay for " + ", ".join(extra))
            removals = planning.sparing(self.host, exact, removals, extra)
            plan = planning.plan_for(self.host, exact, removals, installed)
            extra = self._forbidden(plan, removals)
        if extra:
            raise HostFailure(
                "GS-467", "the transaction would remove packages without permission", ", ".join(extra),
                hint="nothing was changed; list them in gpu_packages_may_remove to allow it",
            )  # fmt: skip
        if not any(plan[kind] for kind in _PLANNED):
            return exact
        way = way_back.look(self.host, plan, installed, self.params, way_back.former_sources(self.ledger))
        if way.lost and not self.params["no_way_back"]:
            raise way_back.missing(way, installed)
        way_back.keep(way, self.kept_folder)
        self.former = bool(way.former)
        self._take_over(plan, exact)
        for path in self.host.edited_settings(plan["remove"]) if plan["remove"] else ():
            self.saved[path] = files.put_aside(path, files.read_bytes(path) or b"")
        left, tail = self._transact(exact, removals)
        problem = None
        if not left:
            sign = (self.machine, self.params, self.host.env, self.job.tell, self.job.log)
            problem = dkms.missing(self.machine, self.params) or dkms.rebuild_signed(*sign)
            if not problem:
                return exact
        built = dkms.build_error(self.started)
        note = "; ".join(part for part in (_last_words(tail), "; ".join(left)) if part)
        if FULL.search(str(built or note)):
            failure = of_system(OSError(errno.ENOSPC, note, self.job.log_path))
        elif built or problem:
            failure = HostFailure(
                "GS-456", "the kernel module could not be built: " + (problem or "it does not compile"),
                self.job.log_path, hint="choose another driver, or another kernel with its headers",
            )  # fmt: skip
        else:
            what, hint = "the package manager could not finish", "see the log on the host"
            failure = HostFailure("GS-455", what, self.job.log_path, note, hint)
        return self._roll_back(self.before or {}, failure)

    def _forbidden(self, plan: Plan, removals: List[str]) -> List[str]:
        return packages.forbidden(plan["remove"], self.params["may_remove"], removals, self.ledger.state["brought"])

    def _take_over(self, plan: Plan, exact: List[Wish]) -> None:
        """Release holds and remove a .run driver before the transaction. The driver goes last, once everything is
        downloaded and nothing can be refused any more.
        """
        runs = self.params["replace_runfile"] and runfile.uninstaller(self.host.env)
        if runs:
            ok, tail = self.host.download(exact)
            if not ok:
                what, hint = "the packages could not be fetched", "nothing was changed; the same command tries again"
                raise HostFailure("GS-455", what, self.job.log_path, _last_words(tail), hint)
        self._release(plan)
        if runs:
            try:
                runfile.remove(self.host.env, self.ledger, self.job.tell, self.job.log)
            except HostFailure:
                self.host.hold(self.released)
                raise

    def _transact(self, exact: Sequence[Wish], removals: Sequence[str]) -> Tuple[List[str], List[str]]:
        """Change the host; return what did not happen, and the package manager's last lines."""
        until = time.monotonic() + _TRY_FOR
        for pause in (*_AGAIN_AFTER, 0):
            was = self.host.installed()
            ok, tail = self.host.transact(exact, removals)
            now, damaged = self.host.installed(), self.host.damaged()
            left = packages.undone(exact, removals, now) + ([_named(damaged)] if damaged else [])
            if ok and not left:
                return [], tail
            broken_off = now == was and any(word in line for line in tail for word in _BROKEN_OFF)
            if not broken_off or not pause or time.monotonic() > until:
                break
            self.job.tell("refresh", f"a download stopped, or the mirror changed: next try in {pause} s")
            time.sleep(pause)
            self.host.refresh()
        return left or ["it exited with an error"], tail

    def _release(self, plan: Plan) -> None:
        """Release our holds on packages that move, or all of them if nothing is to be held; fail on others' holds."""
        ours, held = set(self.ledger.state["holds"]), set(self.host.held())
        moving = planning.held_by_us(self.host, plan, ours)
        self.released = sorted(moving if self.params["hold"] else held & ours)
        self.host.unhold(self.released)

    def _with_build_error(self, failure: HostFailure) -> HostFailure:
        found = dkms.build_error(self.started)
        if found:
            failure.fields["context"] = failure.fields["context"] or self.job.log_path
            failure.fields["note"] = "{}: {}".format(found["log"], found["error"])
            failure.result = {"build": found}
        return failure

    def _roll_back(self, before: Installed, failure: HostFailure) -> NoReturn:
        """Restore the previous packages, then fail with the first cause."""
        self.ledger.goes_back = True
        failure = self._with_build_error(failure)
        build = failure.result.get("build")
        log = files.read_bytes(build["log"]) if build else None
        if log:
            tried(files.write_atomically, os.path.join(self.job.folder, "make.log"), log, 0o600)
        self.job.tell("rollback", "restoring the packages")
        # Another stream hides the earlier packages.
        trouble = [tried(package_state.enable_streams, self.ledger, self.host, self.kept_before["streams"])[1]]
        if self.former:
            reverted, unreverted = self.ledger.revert_apply(sources.is_of_sources)
            trouble += unreverted
            for line in reverted and self.host.refresh():
                self.job.log("rollback: refresh: " + line)
        lost, why = tried(way_back.restore, self.host, before, self.kept_folder, self.job.log)
        different, unknown = tried(self._left_over, before)
        trouble += [different or "", why, unknown, *(tried(step)[1] for step in (self._start_again, self._hold_again))]
        left = "; ".join(part for part in trouble if part)
        said = "the host has its previous packages" if not left else "not restored: " + left
        if lost:
            failure.fields["hint"] = "the same command tries again; no longer offered, so choose others: " + ", ".join(
                f"{name} {before[name]}" for name in lost
            )
        elif left:
            failure.fields["hint"] = (
                "gpusetup apply --recorded restores the last applied state; the same command tries again"
            )
        failure.fields["note"] = "; ".join(part for part in (failure.fields["note"], said) if part)
        failure.result = dict(failure.result, rolled_back=not left)
        raise failure

    def _hold_again(self) -> None:
        self.host.hold(sorted(set(self.released) & set(self.host.installed())))

    def _units(self) -> List[Tuple[str, bool]]:
        units = [unit for unit, wanted in sorted(self.ledger.state["services"].items()) if wanted.get("enabled")]
        seen = services.look(units, self.host.env) if units else {}
        return [(unit, seen[unit]["active"]) for unit in units]

    def _start_again(self) -> None:
        """Enable and start our units again that a removed package took along."""
        for start in (True, False):
            units = [unit for unit, ran in self.units_before if ran == start]
            services.bring_up(self.ledger, units, start, self.host.env)

    def _left_over(self, before: Installed) -> str:
        """Return the differences from `before` as text, empty if the host has all its packages again."""
        change = packages.difference(before, self.host.installed())
        damaged = self.host.damaged()
        words = ["{} {}".format(kind, ", ".join(sorted(names))) for kind, names in sorted(change.items()) if names]
        return "; ".join(words + (["damaged " + ", ".join(sorted(damaged))] if damaged else []))

    def _hold(self, after: Installed, wishes: List[Wish]) -> None:
        """Hold the wanted packages; release our holds that nobody wants any more."""
        asked = {packages.key(wish) for wish in wishes if wish["name"] not in self.params["free"]}
        target: Set[str] = set()
        if self.params["hold"]:
            target = {name for name in after if versions.matches(name, self.params["hold"])} | (asked & set(after))
            target = {self.host.lock_name(name, after[name]) for name in target}
        self.job.tell("hold", f"holding {len(target)} packages")
        changed = self.ledger.change(Holds(self.host, self.ledger.state["holds"]), sorted(target))
        self.held_changed = bool(changed or self.released)
        block = target if self.params["auto_upgrades_block"] else set()
        for path, content in self.host.automatic_upgrades(sorted(block)).items():
            wrote, why = (self.ledger.write(path, content), "") if block else tried(self.ledger.give_up_file, path)
            self.job.log(why or path)
            self.held_changed = wrote or self.held_changed


def _named(damaged: Dict[str, str]) -> str:
    return ", ".join("{} ({})".format(*item) for item in sorted(damaged.items()))


_UNMET = re.compile(r" \S+ : ")
"""How apt begins a line about an unmet dependency."""
_PROGRESS = re.compile(r"\[ *\d+/\d+\] ")
"""How dnf 5 begins a progress line."""


def _last_words(tail: List[str]) -> str:
    telling = [
        line
        for line in tail
        if line.startswith(("E:", "Error", "dpkg: error", "Failed")) or _UNMET.match(line) or "error" in line.lower()
    ]
    lines: List[str] = []
    for line in (telling or [line for line in tail if not _PROGRESS.match(line)])[-6:]:
        if line not in lines:
            lines.append(line[:400])
    while len(lines) > 1 and sum(map(len, lines)) > 900:
        del lines[0]
    return " | ".join(lines)
