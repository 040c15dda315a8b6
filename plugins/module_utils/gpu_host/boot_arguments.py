"""Arguments on the kernel's command line, recorded before they are set: by grubby (Red Hat) or pbl (SUSE), or for
kernels that kernel-install adds to the boot loader (systemd-boot, unified kernel images) in /etc/kernel/cmdline, which
is for future kernels, and in the entries of the relevant ones.
"""

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..gpu_probe import initramfs, kernels
from ..gpu_probe.host import LiveHost
from . import boot_image, files, process
from .failure import HostFailure
from .journal import UNKNOWN, State, Thing
from .ledger import Ledger
from .machine import Machine

CMDLINE, _VENDORS, RUNNING = "/etc/kernel/cmdline", "/usr/lib/kernel/cmdline", "/proc/cmdline"
_LOADER_INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_GRUBBY, _ARGS = ["grubby", "--info=ALL"], re.compile(r'^args="?(.*?)"?$', re.MULTILINE)
_OF_ONE_BOOT = re.compile(r"^(?:BOOT_IMAGE|initrd|systemd\.machine_id)=")


class NoBootLoader(HostFailure):
    """No boot loader keeps a command line."""


class Argument(Thing):
    """One argument of the kernels that boot; its value is `all`, `some` or `none` of them, or a list of names."""

    kind = "kernel argument"
    section = "arguments"
    whole = True
    goes_back = True

    def __init__(self, name: str, env: Dict[str, str], log: boot_image.Log = None) -> None:
        super().__init__(name)
        self.env = env
        self.log = log

    def wanted(self) -> Any:
        """Return the value that includes the argument."""
        return "all"

    def aim(self, wanted: Any) -> str:
        return "go" if wanted in ("none", []) else "be set"

    def first(self, state: State) -> object:
        """Return the value before us: a recorded argument was not there."""
        return "none" if self.name in state[self.section] else UNKNOWN

    def note(self, state: State, before: Any, _wanted: Any) -> None:
        """Record the argument as ours unless all kernels had it before us."""
        if before != "all" and self.name not in state[self.section]:
            state[self.section] = [*state[self.section], self.name]

    def forget(self, state: State) -> None:
        state[self.section] = [argument for argument in state[self.section] if argument != self.name]

    def again(self, _now: Any, before: Any, noted: List[Any]) -> Any:
        """Keep what an earlier apply set or all kernels had."""
        return "all" if before == "all" or self.name in noted[0] else "none"


class Names(Argument):
    """An argument whose value is a list of names. Its tool knows one value per key, so names of others are kept."""

    def __init__(self, argument: str, env: Dict[str, str], log: boot_image.Log = None) -> None:
        super().__init__(argument, env, log)
        self.key, _equals, names = argument.partition("=")
        self.names = names.split(",")
        self.everywhere: List[str] = []
        """The names that each boot entry has, as last seen."""
        self.older: List[str] = []
        """Those of them that no package of this apply brought."""
        self.before: Sequence[str] = ()
        """The words that boot entries had before the first apply, also those that have not booted yet."""

    def wanted(self) -> List[str]:
        """Return the value with our names added."""
        there = self.look() or []
        return there + [name for name in self.names if name not in there]

    def fits(self, now: Optional[List[str]], wanted: Sequence[str]) -> bool:
        """Return whether each entry has exactly these names; without entries there is nothing to do."""
        return now is None or now == wanted == self.everywhere

    def _ours(self, state: State) -> List[str]:
        mine = [argument for argument in state[self.section] if argument.partition("=")[0] == self.key]
        return [name for argument in mine for name in argument.partition("=")[2].split(",")]

    def first(self, state: State) -> object:
        return self._ours(state) or UNKNOWN

    def note(self, state: State, before: Optional[Sequence[str]], wanted: Sequence[str]) -> None:
        """Record those of our names that were not in each entry before this apply."""
        ours = self._ours(state)
        added = [name for name in self.names if name in wanted and name not in self.older]
        ours += [name for name in added if name not in ours]
        if ours and before is not None:
            self.forget(state)
            state[self.section].append(self.key + "=" + ",".join(ours))

    def forget(self, state: State) -> None:
        state[self.section] = [word for word in state[self.section] if word.partition("=")[0] != self.key]

    def back(self, now: Optional[Sequence[str]], first: Sequence[str]) -> List[str]:
        """Return the value without our names."""
        return [name for name in now or () if name not in first]

    def again(self, now: Optional[Sequence[str]], before: Sequence[str], _noted: List[Any]) -> List[str]:
        """Return the earlier value with names that others have added since."""
        return [*before, *(name for name in now or () if name not in before and name not in self.names)]


class Grubby(Names):
    """The names in grubby's entries, which get the same value: grubby replaces the values that a key has."""

    def look(self) -> Optional[List[str]]:
        """Return the names that any entry has, None without entries."""
        _code, text = process.looked("GS-482", _GRUBBY, self.env)
        entries = [self._names_in(entry) for entry in _ARGS.findall(text)]
        found = list(dict.fromkeys(name for names in entries for name in names))
        self.everywhere = [name for name in found if all(name in names for names in entries)]
        # A driver's package removes only its own value, which we are about to extend: what it brought goes with ours.
        running = self._names_in(" ".join([files.read_text(RUNNING) or "", *self.before]))
        self.older = [name for name in self.everywhere if name in running]
        return found if entries else None

    def _names_in(self, entry: str) -> List[str]:
        values = [word.partition("=") for word in entry.split()]
        return [name for key, _equals, value in values if key == self.key for name in value.split(",")]

    def make(self, wanted: Sequence[str]) -> None:
        words = "--args={}={}".format(self.key, ",".join(wanted)) if wanted else "--remove-args=" + self.key
        boot_image.command(["grubby", "--update-kernel=ALL", words], self.env, self.log)

    def failure(self, now: Optional[Sequence[str]], wanted: Sequence[str]) -> HostFailure:
        has, lacks = ",".join(now or ()) or "nothing", ",".join(wanted) or "nothing"
        said = f"grubby shows {self.key} with {has} instead of {lacks} in some entry"
        return HostFailure("GS-482", "the kernel's command line could not be changed", "", said, "grubby --info=ALL")


class Pbl(Names):
    """The names that SUSE's tool has for all entries."""

    def look(self) -> List[str]:
        _code, text = process.looked("GS-482", ["pbl", "--get-option", self.key], self.env)
        found = re.search("^" + re.escape(self.key) + "=(.+)$", text, re.MULTILINE)
        self.everywhere = self.older = found.group(1).strip("\"' ").split(",") if found else []
        return self.everywhere

    def make(self, wanted: Sequence[str]) -> None:
        value = self.key + "=" + ",".join(wanted)
        words = ["--add-option", value] if wanted else ["--del-option", self.key]
        boot_image.command(["pbl", *words, "--config"], self.env, self.log)

    def failure(self, _now: Optional[Sequence[str]], _wanted: Sequence[str]) -> HostFailure:
        """Report that there is no boot loader: pbl exits with 0 in that case."""
        return NoBootLoader("GS-482", "pbl changed nothing: it has no boot loader to configure")


def systemd_boot_runs() -> bool:
    """Return whether systemd-boot started this system, by what it told the firmware."""
    raw = LiveHost().read_bytes(_LOADER_INFO) or b""
    return raw[4:].decode("utf-16-le", "replace").startswith("systemd-boot")


class Entries(Argument):
    """One argument in the boot entries of the relevant kernels; it is removed from those of all installed kernels."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        kernels: Tuple[Sequence[str], Sequence[str]],
        env: Dict[str, str],
        log: boot_image.Log = None,
    ) -> None:
        super().__init__(name, env, log)
        self.ledger = ledger
        self.counting, self.installed = ([kernel for kernel in some if _places(kernel)] for some in kernels)
        self.warnings: List[str] = []

    def usable(self) -> bool:
        return any(boot_image.can_install(kernel, self.env) for kernel in self.counting + self.installed)

    def look(self) -> str:
        there = self.name in (files.read_text(CMDLINE) or "").split()
        if there and not self._stale("all"):
            return "all"
        return "some" if there or CMDLINE in self.ledger.state["files"] or self._stale("none") else "none"

    def make(self, wanted: str) -> None:
        """Change the file, and rebuild the entries that differ."""
        self._configure(wanted == "all")
        for kernel in self._stale(wanted):
            if boot_image.can_install(kernel, self.env):
                boot_image.install(kernel, _places(kernel)[0], self.env, self.log)
        for kernel in self._stale(wanted):
            place = ", ".join(_places(kernel))
            self.warnings.append(f"the command line of kernel {kernel} stays as it was: {place}")
        if wanted == "none":
            self._settle()

    def came_about(self, _now: str, _wanted: str) -> bool:
        """Always return True: an entry that cannot be changed is reported, and tried again by the next call."""
        return True

    def settle(self, _state: State, wanted: str) -> None:
        """Record the file as it is now: others may add arguments of their own."""
        text = files.read_text(CMDLINE)
        if wanted == "all" and text is not None and CMDLINE in self.ledger.state["files"]:
            self.ledger.write(CMDLINE, text)

    def _configure(self, wanted: bool) -> None:
        text = files.read_text(CMDLINE)
        words = (text if text is not None else self._now()).split()
        if (self.name in words) != wanted or (text is None and wanted):
            words = [*words, self.name] if wanted else [word for word in words if word != self.name]
            text = " ".join(words) + "\n"
        if text is not None:
            self.ledger.write(CMDLINE, text)

    def _settle(self) -> None:
        """Restore the file once no entry is made from it any more: without it kernel-install takes the command line of
        the running system, with the argument. A file that others have edited stays as it is.
        """
        if self.ledger.state["files"].get(CMDLINE, {}).get("edited"):
            self.ledger.leave(CMDLINE)
        else:
            self.ledger.restore(CMDLINE)

    def _stale(self, wanted: str) -> List[str]:
        """Return the kernels with an entry that differs."""
        kernels, has = (self.counting, True) if wanted == "all" else (self.installed, False)
        return [
            kernel for kernel in kernels if any((self.name in line.split()) != has for line in _command_lines(kernel))
        ]

    def _now(self) -> str:
        """Return the command line that kernel-install would use for a new kernel, without words about a single boot."""
        text = files.read_text(_VENDORS)
        told = [line for kernel in self.counting for line in _command_lines(kernel)]
        if text is None:
            text = told[0] if told else files.read_text(RUNNING) or ""
        return " ".join(word for word in text.split() if not _OF_ONE_BOOT.match(word))


def argument(
    name: str,
    ledger: Ledger,
    machine: Machine,
    kernels: Sequence[str],
    env: Dict[str, str],
    *,
    log: boot_image.Log = None,
) -> Argument:
    """Return an argument handled by this host's own tool."""
    for tool, kind in (("pbl", Pbl), ("grubby", Grubby)):
        if process.which(tool, env):
            made: Names = kind(name, env, log)
            made.before = (files.read_json(ledger.folder + "/baseline.json") or {}).get("arguments") or ()
            return made
    installed = [kernel["release"] for kernel in machine.kernels()["installed"]]
    return Entries(name, ledger, (machine.wanted_kernels(kernels), installed), env, log)


def of_grubby(env: Dict[str, str]) -> List[str]:
    """Return the words in grubby's boot entries; none without grubby."""
    return sorted({word for entry in _ARGS.findall(process.output(_GRUBBY, env)[1]) for word in entry.split()})


def _places(kernel: str) -> List[str]:
    host = LiveHost()
    return [entry.path for entry in kernels.entries(host, kernel)] + kernels.unified(host, kernel)


def _command_lines(kernel: str) -> List[str]:
    """Return the command lines of a kernel: one for each entry or unified image."""
    return [_command_line(place) for place in _places(kernel)]


def _command_line(place: str) -> str:
    if not place.endswith(".efi"):
        return " ".join(re.findall(r"^options\s+(.*)$", files.read_text(place) or "", re.MULTILINE))
    with open(place, "rb") as handle:
        try:
            start, size = initramfs.section(handle, b".cmdline")
        except initramfs.Unreadable:
            return ""
        handle.seek(start)
        return handle.read(size).rstrip(b"\0").decode("utf-8", "replace")
