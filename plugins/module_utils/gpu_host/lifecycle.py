"""One apply from its beginning to its record, and what removal has to undo."""

import contextlib
import json
import os
import shutil
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..gpu_judge import drift, driver, versions
from ..gpu_probe import facts as probe
from . import (
    boot_arguments,
    boot_image,
    cdi,
    fetched,
    files,
    followers,
    jobs,
    list_dates,
    local_repository,
    lost,
    mig_kept,
    monitoring,
    owner,
    package_state,
    packages,
    planning,
    process,
    runfile,
    services,
    sources,
    space,
    systemd,
    undo,
    venv,
)
from .alternatives import Alternative
from .failure import HostFailure
from .journal import empty, now
from .ledger import Ledger, history
from .machine import Machine

KINDS: Dict[str, undo.Maker] = {
    **undo.KINDS,
    mig_kept.Layouts.kind: lambda _name, site: mig_kept.on_record(site.ledger, site.env),
    venv.Link.kind: lambda name, _site: venv.Link(name),
    runfile.Present.kind: lambda _name, site: None if runfile.uninstaller(site.env) else runfile.Present(site.env),
}
"""All kinds that a complete run gives up. An installed driver from a `.run` file is left to removal, because it may be
the only driver.
"""


class Lifecycle:
    """The state of one host."""

    def __init__(self, request: Dict[str, Any], check: bool = False) -> None:
        self.request = request
        self.check = check
        self.machine = Machine(request["simulated_root"])
        folder = request["state_dir"]
        why = lost.reason(folder, self.machine.host) if request.get("mode") == "begin" and not check else ""
        self.digest = _digest(request["wanted"])
        self.token = request.get("token") or ""
        if why:
            self._take()
        self.ledger = lost.begin_new_record(folder, why, self._manager().held()) if why else Ledger(folder, check)

    def _manager(self) -> planning.Manager:
        return planning.manager({"manager": self.request["manager"], "network": self.request["network"]})

    def _site(self) -> undo.Site:
        return undo.Site(self.ledger, self._manager(), self.machine, process.environment())

    def _take(self) -> None:
        space.check_writable(self.request["state_dir"])
        self.token = owner.take(self.request["state_dir"], self.request.get("owner") or {}, self.digest)
        self.hold()

    def let_go(self) -> None:
        """Release the host if this call took it, since nobody else knows the token."""
        if self.token != (self.request.get("token") or ""):
            owner.release(self.request["state_dir"], self.token)

    def hold(self) -> None:
        """Fail unless this host is ours; then show signs of life until this process ends."""
        if not self.check:
            owner.hold_until_gone(self, self.request["state_dir"], self.token)

    def begin(self) -> Dict[str, Any]:
        """Return whether the host is already as wanted; else open an apply, or an interrupted one of the same wish."""
        state = self.ledger.state
        done = state["expect"].get("parts") or {}
        finished = state["apply"].get("finished") and self._parts().items() <= done.items()
        found = deviations(self.ledger.folder, self.machine, self.request) if finished else []
        if finished and not found:
            same = {"changed": False, "converged": True, "deviations": [], "id": state["apply"]["id"], "resumed": False}
            return dict(same, gpu_result=self._answer("unchanged", {}, []))
        if not self.check and not self.token:
            self._take()
            self.ledger = Ledger(self.ledger.folder)  # as its last owner left it
            state = self.ledger.state
        then, last = self.request.get("planned"), [state["apply"].get(key) or "" for key in ("id", "finished")]
        if then and then != last and not self.check:
            raise HostFailure("GS-411", "another run has changed this host since it was planned", "apply " + last[0])
        resumed = bool(state["apply"].get("digest") == self.digest and not state["apply"].get("finished"))
        if not resumed:  # a step that outlived its owner may still run: touch nothing
            jobs.refuse_while_running(self.ledger.folder)
        identity = state["apply"]["id"] if resumed else self.request["id"] or f"{now()}-{self.digest[:6]}"
        if not self.check:
            host = self._manager()
            self.ledger.end(drift.REMOVAL, ["of everything"])
            self._keep_baseline(host)
            if not resumed:
                before = {"packages": host.installed(), "held": host.held()}
                last = state["apply"] if state["apply"].get("finished") else state["apply"].get("last")
                path = os.path.join(self.ledger.folder, "before.json")
                if (files.read_json(path) or {}).get("packages") == before["packages"]:
                    self.ledger.hand_on(identity)
                files.write_json(path, before)
                begun = {"id": identity, "digest": self.digest, "started": now(), "finished": None, "last": last}
                self.ledger.tell(apply=dict(begun, lock=self.request["lock"]))
        told = {"changed": False, "converged": False, "deviations": found, "id": identity, "resumed": resumed}
        return dict(told, owner=self.token)

    def _keep_baseline(self, host: planning.Manager) -> None:
        if not os.path.exists(self.ledger.folder + "/baseline.json"):
            self.ledger.tell()
            there = {"packages": host.installed(), "held": host.held(), "kernel": self.machine.kernels()["running"]}
            words = boot_arguments.of_grubby(process.environment())
            files.write_json(self.ledger.folder + "/baseline.json", dict(there, time=now(), arguments=words))

    def finish(self) -> Dict[str, Any]:
        """Record the apply: what is expected from now on, and the history.

        A run of some tags did only the parts in `ran`. The record of the others stays, and the next complete run does
        them.
        """
        if self.check:
            return {"gpu_result": self._answer("done", {}, [])}
        state, request = self.ledger.state, self.request
        wanted, earlier = request["wanted"], state["expect"]
        ran = set(wanted if request.get("ran") is None else request["ran"])
        if ran >= set(wanted):
            undo.give_up(self._site(), KINDS)
        driven = request if "driver" in ran else earlier
        kernels = list(driven.get("kernels") or ())
        wish = driver.Wish(driven.get("driver_version") or "", driven.get("driver_module") or "", tuple(kernels))
        reboots, waits = _of_parts(request.get("pending")), _of_parts(request.get("waits"))
        if "module_options" in ran:
            waiting, refused = followers.options(self.machine, wanted.get("module_options") or {}, kernels)
            both = list(dict.fromkeys(reboots.get("module_options", []) + waiting))
            reboots.update(_of_parts({"module_options": both}))
            waits.update(_of_parts({"module_options": refused}))
        if state["waits"].get("boot") == owner.boot():
            waits.update({part: texts for part, texts in state["waits"]["what"].items() if part not in ran})
        reasons = driver.reboot_reasons(self.machine.facts(), wish) + _texts(reboots)
        parts = dict(earlier.get("parts") or {})
        parts.update({part: digest for part, digest in self._parts().items() if part in ran})
        whole = self._parts().items() <= parts.items()
        expect = {
            "parts": {part: parts[part] for part in parts if part not in reboots and part not in waits},
            "driver_version": wish.version,
            "driver_module": wish.flavour,
            "kernels": kernels,
            "python": self._python() if "python" in ran else earlier.get("python"),
            "environments": self._environments() if "python" in ran else self._recorded_environments(),
        }
        what = {part: waits.get(part, []) + reboots.get(part, []) for part in sorted({*waits, *reboots})}
        host = self._manager()
        before = files.read_json(os.path.join(self.ledger.folder, "before.json")) or {"packages": {}, "held": []}
        identity = state["apply"].get("id") or f"{now()}-{self.digest[:6]}"
        told = {
            "schema": "gpusetup/history/1",
            "id": identity,
            "started": state["apply"].get("started"),
            "finished": now(),
            "lock": request["lock"],
            "wanted": wanted,
            "before": before,
            "after": {"packages": host.installed(), "held": host.held()},
            "holds": state["holds"],
            "files": {path: entry.get("sha256") for path, entry in state["files"].items()},
            "kernel": self.machine.kernels()["running"],
            "python": expect["python"],
            "pending": reasons,
            "waits": _texts(waits),
            "simulated": self.machine.simulated is not None,
            "verified": None,
        }
        # The history comes first: a rollback must find that of any finished apply, even after an interruption here.
        self.ledger.write_history(told, request["keep"])
        if request["lock"] and whole:
            files.write_json(os.path.join(self.ledger.folder, "lock.json"), request["lock"])
        begun = {"id": identity, "digest": self.digest, "started": told["started"], "last": None}
        self.ledger.tell(
            apply=dict(begun, finished=told["finished"]),
            expect=expect,
            waits={"boot": owner.boot(), "what": what} if what else {},
            lock=request["lock"] if whole else state["lock"],
            listed=dict(state["listed"], **list_dates.of_host(state["files"])),
            verified=None,
        )
        self.ledger.forget_previous()
        texts = (files.read_bytes(path) or b"" for path in sources.definitions())
        local_repository.sweep(self.ledger.folder, texts)
        owner.release(self.ledger.folder, self.token)
        change = packages.difference(before["packages"], told["after"]["packages"])
        cut = [f"{entry['what']} is still to {entry.get('aim') or 'change'}" for entry in state["open"].values()]
        outcome = "pending-reboot" if reasons else "done"
        return {"gpu_result": self._answer(outcome, change, reasons, _texts(waits) + sorted(cut))}

    def _parts(self) -> Dict[str, str]:
        return {part: _digest(wish) for part, wish in self.request["wanted"].items()}

    def _python(self) -> Optional[Dict[str, Any]]:
        """Return the environment of this apply; an unwanted earlier one stays on record for removal."""
        made: Optional[Dict[str, Any]] = self.request["python"]
        kept = self.ledger.state["expect"].get("python") or {}
        if made or not os.path.lexists(kept.get("path") or ""):
            return made
        return {"path": kept["path"], "adopted": kept.get("adopted", False), "unwanted": True}

    def _environments(self) -> List[Dict[str, Any]]:
        """Return the named environments that exist now; delete those that nobody asks for any more.

        A play without the Python role reports none: recorded environments that are still wanted stay recorded.
        """
        told = {item["path"]: item for item in self.request.get("environments") or ()}
        before = {item["path"]: item for item in self._recorded_environments()}
        wanted = [item["path"] for item in (self.request["wanted"].get("python") or {}).get("environments") or ()]
        for path in before:
            if path not in wanted:
                venv.remove(self.ledger, path)
        return [there for there in (told.get(path) or before.get(path) for path in wanted) if there]

    def _recorded_environments(self) -> List[Dict[str, Any]]:
        return list(self.ledger.state["expect"].get("environments") or ())

    def verified(self) -> None:
        """Record the result of the verification and what was verified, so that it need not be repeated."""
        state, request = self.ledger.state, self.request
        if self.check:
            return
        verified = dict(request["verified"], time=now())
        # The history comes first: once the state says verified, this is not repeated.
        path = os.path.join(self.ledger.folder, "history", str(state["apply"].get("id")) + ".json")
        past = files.read_json(path)
        if past is not None:
            files.write_json(path, dict(past, verified=verified))
        self.ledger.tell(verified=verified, lock=request["lock"] or state["lock"])

    def _answer(
        self, outcome: str, change: Mapping[str, Any], reasons: Sequence[str], waits: Sequence[str] = ()
    ) -> Dict[str, Any]:
        return {
            "state": outcome,
            "history_id": self.ledger.state["apply"].get("id"),
            "packages": change,
            "holds": self.ledger.state["holds"],
            "files": sorted(self.ledger.state["files"]),
            "reboot": {"needed": bool(reasons), "reasons": reasons},
            "waits": list(waits),
            "simulated": self.machine.simulated is not None,
        }

    def history(self) -> Dict[str, Any]:
        """Return the recorded applies, each with what a choice among them needs."""
        apply = self.ledger.state["apply"]
        past: List[Dict[str, Any]] = []
        for item in history(self.ledger.folder):
            after = (item.get("after") or {}).get("packages") or {}
            asked = sorted({wish["name"] for wish in (item.get("wanted") or {}).get("packages") or ()})
            kept = {key: item.get(key) for key in ("id", "finished", "lock", "verified", "simulated")}
            past.append(dict(kept, packages={name: after[name] for name in asked if name in after}))
        return {"current": apply.get("id", "") if apply.get("finished") else "", "history": past}

    # removal

    def removal(self) -> Dict[str, Any]:
        """Return what must be removed, restored and released so that the host is as before the first apply."""
        known = os.path.exists(self.ledger.path)
        if known and not self.check:
            if any(path.startswith("/etc/modprobe.d/") for path in self.ledger.state["files"]):
                for path in filter(None, map(boot_image.path_of, self.machine.wanted_kernels([]))):
                    boot_image.check_room(path)
            self._take()
            self.ledger = Ledger(self.ledger.folder)  # as its last owner left it
            # After an interruption, an apply repeats all parts: the record has forgotten some of their things.
            self.ledger.tell(expect=dict(self.ledger.state["expect"], parts={}))
            self.ledger.begin(drift.REMOVAL, "of everything", "be completed")
        elif not self.check and os.path.isdir(self.ledger.folder):  # an apply was cut before it had a record
            with files.locked(os.path.join(self.ledger.folder, "lock")):
                files.sweep(self.ledger.path)
        installed = self._manager().installed()
        if known:
            self._count_packages(installed)
            self.ledger.leave_packages(installed)
        state = self.ledger.state
        back = dict(state["taken"], **{name: version for name, version in state["moved"].items() if name in installed})
        brought = {there for item in state["brought"].items() for there in versions.places(installed, *item)}
        return {
            "known": known,
            "owner": self.token,
            "remove": sorted(brought),
            "restore": [
                {"name": name.split(":")[0], "arch": ([*name.split(":"), ""])[1], "version": back[name]}
                for name in sorted(back)
            ],
            "holds": state["holds"],
            "files": sorted(state["files"]),
            "services": sorted(state["services"]),
            "links": sorted(state["links"]),
            "python": (state["expect"].get("python") or {}).get("path"),
            "runfile": state["runfile"].get("version", ""),
            "environments": sorted(
                {item["path"] for item in self._recorded_environments()}
                | set(state["environments"]) - {(state["expect"].get("python") or {}).get("path")}
            ),
        }

    def _count_packages(self, installed: packages.Installed) -> None:
        """Record what an interrupted transaction installed, moved and removed, which it could not do itself."""
        path = os.path.join(self.ledger.folder, packages.BEFORE)
        kept = files.read_json(path)
        if kept and kept["left"] is None and not packages.is_counted(kept, self.ledger.state):
            change = packages.difference(kept["counted"], installed)
            self.ledger.record_packages(change, kept.get("id") or "")
            if not self.check:
                files.write_json(path, dict(kept, left=installed))

    def stop_services(self) -> List[str]:
        """Before packages go: restore MIG layouts, units and module streams, and remove the driver of a .run file."""
        state, env = self.ledger.state, process.environment()
        changed = mig_kept.undo(self.ledger, env)
        undo.give_up(self._site(), {services.Paused.kind: undo.KINDS[services.Paused.kind]})
        changed += services.put_back(self.ledger, env)[0]  # `clean` tries again what still runs
        if self.ledger.state["runfile"]:
            changed.append("driver {} of the .run installer".format(self.ledger.state["runfile"]["version"]))
            if not self.check:
                runfile.remove(env, self.ledger, lambda *_words: None)
                shutil.rmtree(os.path.join(self.ledger.folder, "installers"), ignore_errors=True)
        chosen = [name for name in sorted(state["alternatives"]) if self.ledger.undo(Alternative(name, env))]
        changed += ["alternative " + name for name in chosen]
        return changed + package_state.reset_streams(self.ledger, self._manager())

    def clean(self) -> Dict[str, Any]:
        """After packages are gone: restore files and links, delete Python environments and the record; compare with the
        baseline.
        """
        jobs.refuse_while_running(self.ledger.folder)  # it would write into the deleted record
        gone, still = ([], []) if self.check else services.put_back(self.ledger, process.environment())
        folder = monitoring.folder_of_unit() if monitoring.recorded(self.ledger) else ""
        if monitoring.forget(folder, self.ledger):
            gone.append(os.path.join(folder, monitoring.TEXTFILE))
        restored, unrestored = self.ledger.restore_all(self.ledger.state["files"])
        gone += restored
        gone += self._follow()
        gone += [path for path in sorted(self.ledger.state["links"]) if self.ledger.link(path, None)]
        gone += cdi.forget(self.check, process.environment())
        python = self.ledger.state["expect"].get("python") or {}
        made = [python] if python.get("path") and not python.get("adopted") else []
        paths = {item["path"] for item in made + self._recorded_environments()} | set(self.ledger.state["environments"])
        gone += [path for path in sorted(paths) if venv.remove(self.ledger, path)]
        if not self.check:
            fetched.sweep()
            process.output(["ldconfig"], process.environment())
        left, ours = self._left_over(), {} if self.check else self._still_ours()
        for kind, whys in (("services", still), ("files", unrestored)) if ours else ():
            ours.update({kind: whys} if whys else {})
        if not self.check and not ours and os.path.isdir(self.ledger.folder):
            self._forget()
        elif not self.check:
            owner.release(self.ledger.folder, self.token)
        return {"changed": bool(gone), "restored": gone, "left_over": left, "ours": ours, "saved": self.ledger.saved,
                "kept": self.ledger.left}  # fmt: skip

    def _forget(self) -> None:
        """Delete the folder with the record last, so that a removal that was cut here can be repeated; the next owner
        may begin as soon as the host is free.
        """
        folder, kept = self.ledger.folder, {"lock", "owner.json"}
        owner.hold(folder, self.token)
        for name in sorted(set(os.listdir(folder)) - kept, key=lambda name: (name == "state.json", name)):
            path = os.path.join(folder, name)
            (shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)
        owner.release(folder, self.token, forget=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, "lock"))
            os.rmdir(folder)

    def _follow(self) -> List[str]:
        """Rebuild and reload what still has the contents of removed files, now or where an earlier call could not."""
        env = process.environment()
        if not self.check:
            systemd.read_all_again(env)
        images = [followers.BootImage(kernel, env, forgets=True) for kernel in self.machine.wanted_kernels([])]
        return followers.settle([*images, followers.LockedMemory(env)], self.check)

    def _still_ours(self) -> Dict[str, List[str]]:
        """Return what gpusetup left on the host: the record is deleted only if there is nothing."""
        state, host = self.ledger.state, self._manager()
        installed, held = host.installed(), host.held()
        ours = {
            "packages that gpusetup installed": [
                item[0] for item in state["brought"].items() if versions.places(installed, *item)
            ],
            # Held by us when the record was lost, so nobody knows whether they were there before us.
            "packages of the record that was lost": [
                name for name in state["lost"].get("packages") or () if name in installed
            ],
            "packages not restored": [f"{name}={old}" for name, old in state["taken"].items() if name not in installed]
            + [f"{name}={old}" for name, old in state["moved"].items() if installed.get(name, old) != old],
            "holds": [name for name in state["holds"] if name in held],
            "files": list(state["files"]),
            "links": list(state["links"]),
            "services": list(state["services"]),
            "alternatives": list(state["alternatives"]),
            "Python environments": list(state["environments"]),
            "boot arguments": list(state["arguments"]),
            "what another version of gpusetup recorded": [part for part in {*state} - {*empty()} if state[part]],
            "driver of a .run installer": list(filter(None, [state["runfile"].get("version", "")])),
        }
        return {kind: sorted(names) for kind, names in ours.items() if names}

    def _left_over(self) -> Dict[str, Any]:
        baseline = files.read_json(self.ledger.folder + "/baseline.json")
        if baseline is None:
            return {}
        ours = {name for part in ("brought", "moved", "taken") for name in self.ledger.state[part]}
        changed = packages.difference(baseline["packages"], self._manager().installed())
        others = {kind: {name: of[name] for name in of if name not in ours} for kind, of in changed.items()}
        return {kind: names for kind, names in others.items() if names}


def deviations(folder: str, machine: Machine, request: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return what is no longer as the last finished apply left it: [{"what", "is", "was"}]."""
    state_file = os.path.join(folder, "state.json")
    facts = probe.collect(machine.host, machine.simulated, with_candidates=False, state_file=state_file)
    record = facts["state"] or {}
    found: List[Dict[str, Any]] = [
        {"what": item.what, "was": item.was, "is": item.now}
        for item in drift.differences(facts, record)
        if item.mend != "hand"
    ]
    installed = facts["packages"]["installed"]
    unwanted = drift.unwanted(installed, request["remove"], record.get("packages") or ())
    return found + [{"what": "package " + name, "was": None, "is": installed[name]} for name in unwanted]


def _digest(wish: Any) -> str:
    return files.digest(json.dumps(wish, sort_keys=True))


def _of_parts(told: Optional[Mapping[str, Sequence[str]]]) -> Dict[str, List[str]]:
    return {part: list(texts) for part, texts in (told or {}).items() if texts}


def _texts(told: Mapping[str, Sequence[str]]) -> List[str]:
    return [text for part in sorted(told) for text in told[part]]
