"""A preview without changes: the wanted repositories in a temporary folder, the exact transaction simulated, everything
else checked.
"""

import os
import re
import time
from typing import Any, Dict, List, Optional, Set

from ..gpu_judge import versions
from ..gpu_probe.packages import lock_holder
from ..gpu_probe.packages import sources as known_sources
from . import (
    desktops,
    dkms,
    fetched,
    files,
    followers,
    jobs,
    list_dates,
    local_repository,
    lost,
    monitoring,
    packages,
    planning,
    process,
    runfile,
    sources,
    space,
    way_back,
)
from .failure import FULL, HostFailure, of_system
from .machine import Machine
from .packages import Installed, Wish

_HEADERS = re.compile(r"^(?:linux-headers-|kernel-devel|kernel-[a-z0-9]+-devel$|linux-kbuild-|kernel6\.\d+-devel)")
_SIGNATURE = re.compile(
    r"NO_PUBKEY|not signed|BADSIG|EXPKEYSIG|KEYEXPIRED|bad gpg|gpg.*(?:error|fail)|signature", re.IGNORECASE
)
_BROKE_OFF = re.compile(
    r"reset by peer|Error reading from server|Undetermined Error|unexpected size|Hash Sum mismatch|sync in progress"
    r"|Connection failed|Curl error \((?:16|18|52|55|56|92)\)|\b50[0234] "
)
_PAUSE = 3.0
_KERNEL = re.compile(r"^(?:linux-image-\d|kernel-(?:core|default|azure|rt|64kb)$|kernel$|kernel6\.\d+$)")


class Preview:
    """A preview of one host; `run` returns plain data and never raises for a problem of the host."""

    def __init__(self, params: Dict[str, Any]) -> None:
        self.params = params
        self.findings: List[Dict[str, str]] = []
        self.machine = Machine(params["simulated_root"])
        self.folder = ""
        self.record: Dict[str, Any] = {}
        self.fetched: Optional[List[str]] = None
        self.way = way_back.NOTHING
        self.leaving: List[str] = []

    def find(self, level: str, identity: str, text: str, hint: str = "", reference: str = "") -> None:
        self.findings.append({"level": level, "id": identity, "text": text, "hint": hint, "reference": reference})

    def refuse(self, identity: str, failure: HostFailure) -> None:
        fields = failure.fields
        text = "; ".join(part for part in (fields["message"], fields["context"], fields["note"]) if part)
        self.find("refuse", identity, text, fields["hint"], fields["reference"])

    def run(self) -> Dict[str, Any]:
        """Return {"findings", "candidates", "transaction", "kernels", …}."""
        answer: Dict[str, Any] = {"candidates": {}, "transaction": None, "kernels": [], "installed": {}}
        try:
            space.check_writable(self.params["state_dir"])
            self.folder = fetched.new_folder()
            self._look(answer)
        except HostFailure as failure:
            self.refuse("preview", failure)
        except OSError as error:
            self.refuse("preview", of_system(error))
        finally:
            answer["refused"] = any(item["level"] == "refuse" for item in self.findings)
            # After candidates comes another preview; a transaction can only use lists of apt.
            useful = "repository_messages" in answer and (answer["candidates"] or self.params["manager"] == "apt")
            if self.params["keep"] and useful and not answer["refused"]:
                fetched.leave(self.folder, answer["repository_messages"])
                answer["fetched"] = self.folder
            else:
                fetched.drop(self.folder)
        answer["findings"] = self.findings
        return answer

    def _look(self, answer: Dict[str, Any]) -> None:
        if self.machine.container() and self.params["driver_packages"]:
            text = "this is a container, which uses its host's kernel"
            self.find("refuse", "container", text, "install the driver on the host", "GS-470")
        plain = planning.manager(dict(self.params, driver_version=""))
        plain.require()
        installed = plain.installed()
        wishes, removals = planning.wanted(self.params, installed, plain.architecture())
        record = self.record = lost.state(self.params["state_dir"], self.machine.host, plain.held())
        wishes += planning.lost(self.params, installed, record, wishes)
        todo = packages.unmet(wishes, installed)
        answer["installed"] = {
            packages.key(wish): versions.version_of(installed, packages.key(wish), wish["version"]) for wish in wishes
        }
        self._sanity(plain)
        self._runfile()
        found = runfile.uninstaller(process.environment()) if self.params["driver_packages"] else None
        if found and not self.params["replace_runfile"]:
            hint = "set gpu_driver_replace_runfile to remove it first with its own uninstaller; this cannot be undone"
            self.find("refuse", "runfile", f"a driver from a .run file is installed ({found})", hint, "GS-474")
        asked = self.params["candidates"]
        host = self._repositories(answer) if todo or removals or asked else None
        if host is not None:
            try:
                if wishes or removals:
                    self._simulate(host, wishes, removals, installed, answer)
                answer["candidates"] = host.matching(asked) if asked else {}
            finally:
                host.close()
        self._kernels(answer)
        self._space(answer)
        self._python()
        for failure in monitoring.in_the_way(self.params):
            self.refuse("monitoring", failure)
        for failure in desktops.in_the_way(self.params):
            self.refuse("desktops", failure)

    def _runfile(self) -> None:
        """Prove the .run installer for the driver without running it."""
        path, params = self.params.get("runfile"), self.params
        if not path:
            return
        try:
            room = runfile.look(path, params, os.uname().machine)
            self.params["space_mb"] = dict(params["space_mb"], **room)
        except HostFailure as failure:
            self.refuse("runfile", failure)

    def _sanity(self, host: planning.Manager) -> None:
        job = jobs.running(self.params["state_dir"])
        if job:  # its packages are half-installed, and it holds the package manager
            self.find("warn", "lock", "gpusetup is changing this host: " + job, "the command that began it follows it")
            return
        damaged = host.damaged()
        if damaged:
            names = ", ".join("{} ({})".format(*item) for item in sorted(damaged.items()))
            self.find("warn", "half-installed", "apply first finishes half-installed packages: " + names)
        holder = lock_holder()
        if holder:
            text = "another program uses the package manager: process {pid} ({command})".format(**holder)
            self.find("warn", "lock", text, "apply waits for it, at most {} s".format(self.params["lock_timeout"]))

    # repositories

    def _repositories(self, answer: Dict[str, Any]) -> Optional[planning.Manager]:
        """Write the sources into the temporary folder, fetch and verify the lists; None if a source is refused."""
        layout = sources.Layout(self.folder)
        known = known_sources(self.machine.host)
        ours = self.params["sources"]
        signers: Set[str] = set()
        # The enabled stream is a state of the host, so the preview shows dnf the packages of all streams.
        streams = bool(self.params["streams"])
        unpacked = local_repository.folder_of(self.folder)
        seen = [dict(source, module_hotfixes=source.get("module_hotfixes") or streams) for source in ours]
        ours = []
        for given in seen:
            source = given
            try:
                source = local_repository.usable(given, unpacked, lists_only=True)
                ours.append(source)
                sources.check(source)
                key = sources.key_of(source, self.params["network"])
                written = sources.render(source, key, layout, known)
            except HostFailure as failure:
                self.refuse("repository:" + str(source.get("name")), failure)
                continue
            for path, (content, mode) in written.items():
                files.write_atomically(path, content, mode)
            signers.update(path.replace(self.folder, "", 1) for path in written)
        pins = sources.preferences(self.params["pins"], layout)
        for path, (content, mode) in pins.items():
            files.write_atomically(path, content, mode)
        self.leaving = sources.obsolete(
            self.record["files"], signers | {path.replace(self.folder, "", 1) for path in pins}
        )
        for entry in (
            sources.conflicts(ours, known, self.params["replace"], signers) if self.params["manager"] == "apt" else []
        ):
            text = "{file} already names {uri} with another key ({signed_by})".format(**entry)
            hint = "add that address to gpu_repo_replace, or remove the file"
            self.find("refuse", "conflicting-source", text, hint, "GS-447")
        if any(item["level"] == "refuse" for item in self.findings):
            return None
        host = self._manager()
        trouble = self._refresh(host) if self.fetched is None else self.fetched
        answer["repository_messages"] = trouble
        self._judge_trouble(trouble, ours)
        self._order(ours, self.record["listed"])
        return host

    def _order(self, ours: List[Dict[str, Any]], before: Dict[str, str]) -> None:
        """Refuse a repository that went back in time: the signature is valid, but somebody may have replaced it."""
        addresses = [
            (source["name"], uri) for source in ours for uri in sources.without_logins(source.get("uris") or [])
        ]
        for text in list_dates.older(list_dates.of(addresses, self.folder), before):
            hint = "bring the newest one there; gpusetup apply --older-source accepts it"
            self.find("info" if self.params["older"] else "refuse", "older-source", text, hint, "GS-427")

    def _refresh(self, host: planning.Manager) -> List[str]:
        """Fetch the lists, a second time if the connection broke or the mirror was changing."""
        began = time.monotonic()
        trouble = host.refresh()
        if any(_BROKE_OFF.search(line) for line in trouble) and time.monotonic() - began < self.params["timeout"] / 2:
            time.sleep(_PAUSE)
            trouble = host.refresh()
        return trouble

    def _judge_trouble(self, trouble: List[str], ours: List[Dict[str, Any]]) -> None:
        addresses = [uri.rstrip("/") for source in ours for uri in sources.without_logins(source.get("uris") or [])]
        full = next((line for line in trouble if FULL.search(line)), "")
        if full:  # all other trouble comes of it
            self.find("refuse", "disk", full, "free some space on the host: df -h / /tmp /var", "GS-332")
            return
        # "Err:2 ADDRESS" only announces what an E: or W: line explains.
        for line in [line for line in trouble if not line.startswith("Err:")] or trouble:
            about_ours = any(address in line for address in addresses) or any(source["name"] in line for source in ours)
            if _SIGNATURE.search(line):
                level = "refuse" if about_ours or not addresses else "warn"
                hint = "the repository's signature does not match its key; nothing was changed"
                self.find(level, "signature", line, hint, "GS-448")
            elif about_ours and re.search(r"^E|Failed to fetch|[Ee]rror", line):
                self.find("refuse", "repository", line, _repository_hint(line), "GS-449")
            else:
                self.find("info", "other-repository", line)

    def _manager(self) -> planning.Manager:
        """Return a package manager with the sources that are to be; it continues in an earlier preview's folder if the
        sources are the same.
        """
        self._copy_host_sources()
        self.fetched = fetched.take(self.params["fetched"], self.folder)
        if self.fetched is not None:
            self.folder = self.params["fetched"]
        elif self.params["manager"] == "apt":
            fetched.link_tree("/var/lib/apt/lists", os.path.join(self.folder, "lists"))
            list_dates.forget(
                [uri for source in self.params["sources"] for uri in source.get("uris") or ()], self.folder
            )
        return planning.separate_manager(self.params, self.folder, self.params["enable"])

    def _copy_host_sources(self) -> None:
        """Copy the host's own sources, except entries to be disabled and files that an apply removes; our file wins
        over one of the same name.
        """
        named = sources.definitions()
        for path in [*named, *sources.files_in(sources.Layout().apt_preferences), *sources.logins_of_apt()]:
            target = sources.place(self.folder, path)
            if os.path.exists(target) or path in self.leaving:
                continue
            text = files.read_text(path) or ""
            replaced = self.params["replace"] if path in named else []
            kept = sources.without(path, text, replaced) if replaced else text
            if kept:  # same mode: an address may contain a password
                files.write_atomically(target, kept, os.stat(path).st_mode & 0o777)

    # the transaction

    def _simulate(
        self,
        host: planning.Manager,
        wishes: List[Wish],
        removals: List[str],
        installed: Installed,
        answer: Dict[str, Any],
    ) -> None:
        wishes = wishes + planning.needed_to_hold(host, self.params)
        exact = planning.resolve(host, wishes, optional=self.params["optional"])
        for reason in packages.stubs(exact, self.params):
            self.find("refuse", "stub", reason, "request that branch by its own name", "GS-468")
        answer["transaction"] = plan = planning.plan_for(host, exact, removals, installed)
        answer["resolved"] = {packages.key(wish): wish["version"] for wish in exact}
        extra = packages.forbidden(plan["remove"], self.params["may_remove"], removals, self.record["brought"])
        if extra:
            hint = "list them in gpu_packages_may_remove to allow it"
            self.find("refuse", "removal", "the transaction would also remove " + ", ".join(extra), hint, "GS-467")
        new_kernels = sorted(name for name in plan["install"] if _KERNEL.match(name))
        if new_kernels:
            text = "the transaction installs another kernel: " + ", ".join(new_kernels)
            self.find("warn", "new-kernel", text, "it boots next")
        self.way = way_back.check(self, host, plan, installed)
        try:
            planning.held_by_us(host, plan, self.record["holds"])
        except HostFailure as failure:
            self.refuse("held", failure)

    # the machine

    def _kernels(self, answer: Dict[str, Any]) -> None:
        if not self.params["driver_version"]:
            return
        plan = answer["transaction"] or {"install": {}, "upgrade": {}}
        arriving = list(plan["install"].items()) + [(name, new) for name, (_old, new) in plan["upgrade"].items()]
        arrives = any("dkms" in name for name, _version in arriving)
        here = any("dkms" in package["name"] for package in self.params["packages"])
        for kernel in self.machine.wanted_kernels(self.params["kernels"]):
            there = self.machine.has_headers(kernel)
            # A kernel that came after the packages may lack its module.
            builds = arrives or (here and dkms.missing(self.machine, dict(self.params, kernels=[kernel])) is not None)
            coming = any(
                _HEADERS.match(name) and (kernel in name or packages.is_of_kernel(version.split(":")[-1], kernel))
                for name, version in arriving
            )
            answer["kernels"].append({"kernel": kernel, "headers": there, "headers_arrive": coming, "builds": builds})
            if builds and not there and not coming:
                text = f"the driver is built on this host, but the headers of kernel {kernel} are neither here "
                text += "nor in the repositories"
                hint = f"install linux-headers-{kernel} (kernel-devel-{kernel}), or update the kernel, reboot and "
                hint += "run the command again"
                self.find("refuse", "headers", text, hint, "GS-471")

    def _python(self) -> None:
        if not self.params["python"]:
            return
        path = self.params["python"]
        # /usr/bin/python3.9 comes from package python3.9 or python39.
        plain = os.path.basename(path).replace(".", "")
        if any(package["name"].replace(".", "") == plain for package in self.params["packages"]):
            return
        if not os.access(path, os.X_OK):
            self.find("refuse", "python", f"no Python at {path}", "install it or set gpu_python_interpreter", "GS-473")

    def _space(self, answer: Dict[str, Any]) -> None:
        plan: Optional[packages.Plan] = answer["transaction"]
        needed = self._packages_space(plan, answer) if plan is not None else {}
        if plan is None and self.params["driver_version"]:  # only nouveau may be left to do
            followers.check_room(self.machine.wanted_kernels(self.params["kernels"]), process.environment())
        kept = way_back.kept_bytes(self.way, self.params["state_dir"])
        if kept:
            needed[self.params["state_dir"]] = kept
        room = sum(local_repository.size(source, self.params["state_dir"]) for source in self.params["sources"])
        if room:
            needed[self.params["state_dir"]] = needed.get(self.params["state_dir"], 0) + room
        for path, megabytes in self.params["space_mb"].items():
            needed[path] = needed.get(path, 0) + (megabytes << 20)
        if not needed:
            return
        answer["space"] = space.rows(needed)
        for row in answer["space"]:
            if row["read_only"]:
                text = "{path} is mounted read-only, and {0} is on it".format(", ".join(row["for"]), **row)
                hint = "mount -o remount,rw {path}; the kernel log may say why".format(**row)
                self.find("refuse", "read-only", text, hint, "GS-472")
            if row["free"] < row["needed"]:
                text = "{path} has {0} MB free, {1} MB are needed (for {2})".format(
                    row["free"] >> 20, -(-row["needed"] >> 20), ", ".join(row["for"]), **row
                )
                hint = "free some space or inodes (df -h, df -i; apt-get clean, dnf clean all, old kernels)"
                if set(row["for"]) & set(self.params["space_mb"]):
                    hint += "; the Python environment can be elsewhere: gpusetup_python_path"
                self.find("refuse", "space", text, hint, "GS-472")

    def _packages_space(self, plan: packages.Plan, answer: Dict[str, Any]) -> Dict[str, int]:
        images = self._images() if self.params["driver_version"] else []
        new_kernels = sum(1 for name in plan["install"] if _KERNEL.match(name))
        builds = any(item["builds"] for item in answer["kernels"])
        return space.needs(self.params["manager"], plan, images, new_kernels, builds)

    def _images(self) -> List[int]:
        kernels = self.machine.wanted_kernels(self.params["kernels"])
        paths = [item["initramfs"] for item in self.machine.kernels()["installed"] if item["release"] in kernels]
        return [os.path.getsize(path) for path in paths if path and os.path.isfile(path)]


def _repository_hint(line: str) -> str:
    """Return where to look: an index that is too old or from the future often means a wrong clock."""
    if re.search(r"not valid yet|expired|Valid-Until", line):
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return f"check the host's clock (now {now} UTC); if it is right, the mirror is out of date"
    return "check the address, the mirror and gpu_proxy"
