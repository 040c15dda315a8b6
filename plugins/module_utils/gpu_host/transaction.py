"""One transaction: bring a host to an exact set of packages, prove the kernel module, hold the closure; or leave it as it was."""

import os
import time

from . import dkms, fetched, files, locks, packages, process, runfile, services
from .apt import Apt
from .dnf import Dnf
from .failure import HostFailure
from .ledger import Ledger
from .machine import Machine

# A bare 404 is in NVIDIA's own addresses: …/repos/ubuntu2404/…
_MIRROR_MOVED = ("Hash Sum mismatch", "Failed to fetch", "Status code: 404")


def manager(params, **extra):
    """Return the host's package manager."""
    kind = {"apt": Apt, "dnf": Dnf}[params["manager"]]
    together = params.get("driver_version", "")
    return kind(network=params["network"], recommends=params.get("recommends", False), together=together, **extra)


def wanted(params, installed):
    """Return (wishes, removals): what must be there, and which installed packages must go."""
    wishes = packages.merge(params["packages"])
    names = {wish["name"] for wish in wishes}
    removals = sorted(
        name for name in installed if name.split(":")[0] not in names and packages.matches(name, params["remove"])
    )
    return wishes, removals


def resolve(host, wishes, trouble=(), optional=False):
    """Return the wishes with the exact version each of them means in the repositories; refuse what is not offered."""
    offered = host.offered(sorted({wish["name"] for wish in wishes}))
    exact, missing = [], []
    for wish in wishes:
        versions = [item["version"] for item in offered.get(wish["name"], [])]
        fitting = [version for version in versions if packages.fits(version, wish["version"])]
        if fitting:
            exact.append(dict(wish, version=fitting[0]))
        else:
            near = packages.nearest(versions, wish["version"])
            missing.append(
                "{} {} ({})".format(
                    wish["name"], wish["version"], "offered: " + ", ".join(near) if near else "not offered at all"
                )
            )
    if missing and not optional:
        raise HostFailure(
            "GS-466",
            "the repositories do not offer what was asked for",
            "; ".join(missing),
            "; ".join(trouble)[:1500],
            "nothing was changed; check gpu_repo_sources, or take one of the versions offered",
        )
    return exact


class Transaction:
    """The work of one job."""

    def __init__(self, job, params, looked=""):
        self.job = job
        self.params = params
        self.looked = looked
        self.host = manager(params, tell=job.tell, log=job.log)
        self.ledger = Ledger(params["state_dir"])
        self.machine = Machine(params["simulated_root"])
        self.held_changed = False
        self.before, self.streams_before, self.units_before = None, [], []
        self.before_path = os.path.join(job.folder, "before.json")
        self.started = time.time()

    def run(self):
        """Do it and return what changed; after a failure the files that this apply wrote are brought back too."""
        try:
            return self._run()
        except HostFailure as failure:
            failure.result = dict(getattr(failure, "result", {}), reverted_files=self.ledger.revert_apply())
            if self.before is not None and not self._left_over():
                self.host.streams(self.streams_before)
                self.ledger.forget_apply()
            raise
        finally:
            self.host.close()

    def _run(self):
        params = self.params
        locks.wait_until_free(self.host.lock_holder, params["lock_timeout"], self.job.tell)
        damaged = self.host.repair()
        if damaged:
            names = ", ".join("{} ({})".format(*item) for item in sorted(damaged.items()))
            raise HostFailure(
                "GS-454",
                "packages from before are half installed and cannot be finished",
                names,
                hint="dpkg --configure -a; apt-get -f install",
            )
        installed = self.host.installed()
        before = self.before = self._set_before(installed)
        wishes, removals = wanted(params, installed)
        self.streams_before = self.host.enabled_streams([item["module"] for item in params["streams"]])
        self.units_before = self._units()
        streams = self.host.streams(params["streams"])
        resolved = {}
        if packages.unmet(wishes, installed) or removals or streams:
            resolved = self._change(wishes, removals, before)
        self._mend_modules(before)
        after = self.host.installed()
        self._hold(after, wishes)
        change = packages.difference(before, after)
        result = {"difference": change}
        result["packages"] = {
            packages.key(wish): packages.version_of(after, packages.key(wish), wish["version"])
            or after.get(wish["name"], "")
            for wish in wishes
        }
        result["resolved"] = {wish["name"]: wish["version"] for wish in resolved} if resolved else {}
        result["held"] = self.ledger.state["holds"]
        result["changed"] = bool(any(change.values()) or streams or self.held_changed)
        self.ledger.state["packages"] = result["packages"]
        for item in self.streams_before:
            self.ledger.state["streams"].setdefault(item["module"], item["stream"])
        self.ledger.record_packages(change)
        os.unlink(self.before_path)
        return result

    def _set_before(self, installed):
        """Return the packages before the first try: after a power cut the host may be half way already."""
        kept = files.read_json(self.before_path) if self.job.state.get("interrupted") else None
        if kept is None:
            files.write_json(self.before_path, installed)
        return kept or installed

    def _change(self, wishes, removals, before):
        trouble = [] if self.params["manager"] == "apt" and fetched.hand_over(self.looked) else self.host.refresh()
        for line in trouble:
            self.job.log("refresh: " + line)
        exact = resolve(self.host, wishes, trouble, self.params["optional"])
        self._refuse_stubs(exact)
        self.job.tell("simulate", "checking the transaction")
        plan = self.host.simulate(exact, removals)
        extra = packages.forbidden(plan["remove"], self.params["may_remove"], removals)
        if extra:
            raise HostFailure(
                "GS-467",
                "the transaction would remove packages that nobody said it may",
                ", ".join(extra),
                hint="nothing was changed; name them in gpu_packages_may_remove if they may go",
            )
        if not any(plan[kind] for kind in ("install", "upgrade", "downgrade", "remove")):
            return exact
        if self.params["replace_runfile"]:
            runfile.remove(self.host.env, self.ledger, self.job.tell, self.job.log)
        released = self._release(plan)
        ok, tail = self.host.transact(exact, removals)
        if not ok and any(word in line for line in tail for word in _MIRROR_MOVED):
            self.job.tell("refresh", "the mirror changed under us: once more")
            self.host.refresh()
            ok, tail = self.host.transact(exact, removals)
        if not ok and not dkms.build_error(self.started):
            self._roll_back(
                before,
                released,
                HostFailure(
                    "GS-455",
                    "the package manager could not finish",
                    self.job.log_path,
                    _last_words(tail),
                    "see the log on the host",
                ),
            )
        problem = self._module_problem() if ok else "it does not compile"
        if problem:
            self._roll_back(
                before,
                released,
                HostFailure(
                    "GS-456",
                    "the kernel module was not built: " + problem,
                    self.job.log_path,
                    hint="choose another driver, or another kernel with its headers",
                ),
            )
        return exact

    def _refuse_stubs(self, exact):
        version = self.params["driver_version"]
        names = set(self.params["driver_packages"])
        for wish in exact:
            reason = packages.stub(wish["name"], wish["version"], version) if wish["name"] in names else None
            if reason:
                raise HostFailure(
                    "GS-468",
                    reason,
                    hint="nothing was changed; ask for that branch by its own name, or use another source",
                )

    def _release(self, plan):
        """Take our own holds off the packages that move; a hold of somebody else is refused."""
        touched = set(plan["upgrade"]) | set(plan["downgrade"]) | set(plan["remove"])
        held = set(self.host.held()) & touched
        foreign = sorted(held - set(self.ledger.state["holds"]))
        if foreign:
            raise HostFailure(
                "GS-469",
                "packages that should move are held by somebody else",
                ", ".join(foreign),
                hint="nothing was changed; release them first: apt-mark unhold NAME, or dnf versionlock delete NAME",
            )
        self.host.unhold(held)
        return sorted(held)

    def _module_problem(self):
        """Return why a kernel lacks the wanted module, None when all have it or none is wanted."""
        if not self.params["driver_version"]:
            return None
        for kernel in self.machine.wanted_kernels(self.params["kernels"]):
            found = self.machine.module_on_disk(kernel)
            problem = dkms.proof(found, kernel, self.params["driver_version"], self.params["driver_module"])
            if problem:
                return problem
        return None

    def _mend_modules(self, before):
        """Build the module for a kernel that lacks it although the packages are right (a kernel came later)."""
        problem = self._module_problem()
        if not problem or not os.path.exists("/usr/sbin/dkms"):
            if problem:
                raise HostFailure(
                    "GS-456",
                    "the kernel module is missing: " + problem,
                    hint="the packages are as asked; is there a module package for this kernel?",
                )
            return
        for kernel in self.machine.wanted_kernels(self.params["kernels"]):
            self.job.tell("build", "building the kernel module for " + kernel)
            process.stream(
                ["/usr/sbin/dkms", "autoinstall", "-k", kernel], self.host.env, lambda _line: None, log=self.job.log
            )
            # DKMS believes its own record: a module that somebody deleted is "installed" to it.
            _code, told, _error = process.output(["/usr/sbin/dkms", "status", "-k", kernel], self.host.env, 60)
            for name, version in dkms.nvidia_modules(told):
                argv = ["/usr/sbin/dkms", "install", "--force", "-m", name, "-v", version, "-k", kernel]
                process.stream(argv, self.host.env, lambda _line: None, log=self.job.log)
        problem = self._module_problem()
        if problem:
            raise self._with_build_error(
                HostFailure("GS-456", "the kernel module was not built: " + problem, self.job.log_path)
            )

    def _with_build_error(self, failure):
        found = dkms.build_error(self.started)
        if found:
            failure.fields["note"] = "{}: {}".format(found["log"], found["error"])
            failure.result = {"build": found}
        return failure

    def _roll_back(self, before, released, failure):
        """Bring the packages back to what they were, then fail with the first cause."""
        failure = self._with_build_error(failure)
        log = files.read_bytes((getattr(failure, "result", {}).get("build") or {}).get("log", "/nonexistent"))
        if log:
            files.write_atomically(os.path.join(self.job.folder, "make.log"), log, 0o600)
        self.job.tell("rollback", "bringing the packages back to what they were")
        left = "; ".join(part for part in (self.restore(before), self._services()) if part)
        self.host.hold(sorted(set(released) & set(self.host.installed())))
        said = "the host has the packages that it had before" if not left else "still different from before: " + left
        if left:
            failure.fields["hint"] = (
                "gpusetup apply --recorded brings back what was applied last; the same command tries again"
            )
        failure.fields["note"] = "; ".join(part for part in (failure.fields["note"], said) if part)
        failure.result = dict(getattr(failure, "result", {}), rolled_back=not left)
        if not left and os.path.exists(self.before_path):
            os.unlink(self.before_path)
        raise failure

    def restore(self, before):
        """Undo in one transaction; return what is still different as text."""
        change = packages.difference(before, self.host.installed())
        old = dict(change["removed"], **{name: versions[0] for name, versions in change["moved"].items()})
        back = [packages.listed(name, old[name]) for name in sorted(old)]
        new = sorted(change["installed"])
        if back:
            self.host.transact(back, new)
        rest = sorted(packages.difference(before, self.host.installed())["installed"])
        if rest:
            self.host.purge(rest)
        self.host.repair()
        return self._left_over()

    def _units(self):
        """Return the units that we enabled, each with whether it runs."""
        units = [unit for unit, wanted in sorted(self.ledger.state["services"].items()) if wanted.get("enabled")]
        seen = services.look(units, self.host.env) if units else {}
        return [(unit, seen[unit]["active"]) for unit in units]

    def _services(self):
        """Bring back the units that the packages took along when they went; return why one does not run as text."""
        try:
            for start in (True, False):
                services.bring_up(
                    self.ledger, [unit for unit, ran in self.units_before if ran == start], start, self.host.env, False
                )
        except HostFailure as failure:
            return failure.args[0]
        return ""

    def _left_over(self):
        """Return what is different from before as text; nothing when the host has its packages again, whole."""
        change = packages.difference(self.before, self.host.installed())
        damaged = self.host.damaged()
        words = ["{} {}".format(kind, ", ".join(sorted(names))) for kind, names in sorted(change.items()) if names]
        return "; ".join(words + (["damaged " + ", ".join(sorted(damaged))] if damaged else []))

    def _hold(self, after, wishes):
        """Hold the closure; release what we held and nobody wants held any more."""
        asked = {packages.key(wish) for wish in wishes if wish["name"] not in self.params["free"]}
        target = set()
        if self.params["hold"]:
            target = {name for name in after if packages.matches(name, self.params["hold"])} | (asked & set(after))
            target = {self.host.lock_name(name, after[name]) for name in target}
        mine, held = set(self.ledger.state["holds"]), set(self.host.held())
        add, drop = sorted(target - held), sorted((mine - target) & held)
        self.job.tell("hold", f"holding {len(target)} packages")
        self.host.unhold(drop)
        self.host.hold(add)
        self.ledger.state["holds"] = sorted((mine & target) | set(add))
        self.held_changed = bool(add or drop)
        self.ledger.save()
        if self.params["auto_upgrades_block"]:
            for path, content in self.host.automatic_upgrades(sorted(target)).items():
                wrote = self.ledger.write(path, content) if target else self.ledger.restore(path)
                self.held_changed = wrote or self.held_changed


def _last_words(tail):
    """Return the lines in which a package manager says why."""
    telling = [
        line
        for line in tail
        if line.startswith(("E:", "Error", "dpkg: error", " nvidia", "Failed")) or "error" in line.lower()
    ]
    lines = []
    for line in (telling or tail)[-6:]:
        if line not in lines:
            lines.append(line[:400])
    while len(lines) > 1 and sum(map(len, lines)) > 900:
        del lines[0]
    return " | ".join(lines)
