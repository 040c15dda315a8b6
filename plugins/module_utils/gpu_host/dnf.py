"""dnf and rpm: read, simulate, change. Only command-line tools, for dnf 4 and dnf 5 alike."""

import fnmatch
import os
import re
import tempfile
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..gpu_judge import versions
from ..gpu_probe import packages as probe_packages
from ..gpu_probe.host import LiveHost
from . import files, process
from .failure import HostFailure
from .package_manager import Offers, Rpm, listed, note_removal
from .packages import Plan, Wish

_HEADINGS = {
    "installing": "install",
    "installing dependencies": "install",
    "installing weak dependencies": "install",
    "installing group/module packages": "install",
    "upgrading": "upgrade",
    "downgrading": "downgrade",
    "reinstalling": "reinstall",
    "removing": "remove",
    "removing dependent packages": "remove",
    "removing unused dependencies": "remove",
}
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_ARCHES = ("x86_64", "aarch64", "noarch", "i686", "i386")
_KINDS = ("install", "upgrade", "downgrade", "remove")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$")


def parse(text: str, native: str) -> Plan:
    """Parse dnf's transaction table, which has one block with a heading per kind of change.

    Below a new package stands what it replaces: its own older version, which only dnf 5 lists, or another package,
    which is removed.
    """
    answer: Plan = {"install": {}, "upgrade": {}, "downgrade": {}, "remove": {}, "download_bytes": 0, "disk_bytes": 0}
    kind: Optional[str] = None
    pending: List[str] = []
    last = ""
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"^Transaction Summary", stripped):
            kind = None
        heading = re.match(r"^([A-Z][\w/ ]+):$", line)
        if heading:
            kind, pending = _HEADINGS.get(heading.group(1).lower()), []
            continue
        answer.update(_sizes(stripped))
        if kind is None or not stripped or stripped.startswith(("=", "-")):
            continue
        if stripped.startswith("replacing "):
            name, version = _replaced(stripped.split()[1:], native)
            if name != last:
                answer["remove"][name] = version
            continue
        pending += stripped.split()
        at = next((index for index, word in enumerate(pending) if word in _ARCHES and index), None)
        if at is not None and len(pending) > at + 2:
            after = at + 3 if pending[at + 1] == "<-" else at + 1  # "noarch <- x86_64" in newer dnf 5
            name, version, pending = listed(pending[at - 1], pending[at], native), pending[after], []
            if kind == "install":
                answer[kind][name] = version
            elif kind == "remove":
                note_removal(answer, name, version)
            elif kind in ("upgrade", "downgrade"):
                answer[kind][name] = ["", version]
            last = name
    return answer


def _replaced(words: List[str], native: str) -> Tuple[str, str]:
    """Return name and version of a line "replacing …": "NAME.ARCH VERSION" of dnf 4, "NAME ARCH VERSION …" of dnf 5."""
    if words[1] in _ARCHES:
        return listed(words[0], words[1], native), words[2]
    name, _dot, arch = words[0].rpartition(".")
    return listed(name, arch, native), words[1]


def _sizes(line: str) -> Dict[str, int]:
    size = re.match(r"^Total download size: ([\d.]+) ?(\w*)$", line) or re.search(
        r"Need to download ([\d.]+) (\w+)\.$", line
    )
    if size:
        return {"download_bytes": _bytes(size)}
    size = re.match(r"^(Installed|Freed) (?:size|space): ([\d.]+) ?(\w*)$", line, re.IGNORECASE)
    if size:
        return {"disk_bytes": _bytes(size, 2) * (1 if size.group(1).lower() == "installed" else -1)}
    size = re.match(r"^After this operation, ([\d.]+) (\w+) (extra will be used|will be freed)", line)
    return {"disk_bytes": _bytes(size) * (1 if "used" in size.group(3) else -1)} if size else {}


def _bytes(match: "re.Match[str]", group: int = 1) -> int:
    return int(float(match.group(group)) * _UNITS.get(match.group(group + 1).rstrip("B"), 1))


_STEPS = ("Verify", "Prepare", "Installing", "Upgrading", "Downgrading", "Reinstalling", "Removing", "Running")
_FOREIGN = re.compile(r":(i[3-6]86|x86_64|aarch64)$")
_HOLDING = "dnf-command(versionlock)"  # provided by the package with dnf 4's plugin, whose name varies
# Literal tabs, because dnf 5 takes a written \\t for two letters.
_MODULES4, _MODULES5 = "/etc/dnf/modules.d", "/usr/lib/sysimage/libdnf5/modules.toml"
_OFFER = "%{name}\t%{epoch}:%{version}-%{release}\t%{arch}\t%{repoid}\t%{downloadsize}\t%{summary}\\n"


class Dnf(Rpm):
    """One host's dnf. `options` come before the command; a preview uses them to point dnf to its own folder."""

    name = "dnf"
    caches = ("/var/cache/dnf/*/packages", "/var/cache/libdnf5/*/packages")

    def __init__(self, *common: Any, options: Iterable[str] = (), recommends: bool = False, **told: Any) -> None:
        super().__init__(*common, **told)
        self.plain = [*list(options), f"--setopt=install_weak_deps={bool(recommends)}"]
        if self.ca_file:
            self.plain.append("--setopt=sslcacert=" + self.ca_file)
        self._dnf5: Optional[bool] = None

    @property
    def options(self) -> List[str]:
        """Options before the command. dnf ignores locks, because the simulation must show what a lock would forbid."""
        return self.plain + (["--setopt=disable_excludes=*"] if self._is_dnf5() else ["--disableplugin=versionlock"])

    def require(self) -> None:
        if process.which("dnf", self.env) is None:
            small = next((name for name in ("tdnf", "microdnf") if process.which(name, self.env)), None)
            hint = f"{small} install -y dnf" if small else "install dnf; gpusetup needs it to change packages"
            said = f"there is only {small}, which lacks what gpusetup needs" if small else ""
            raise HostFailure("GS-497", "this host has no dnf", note=said, hint=hint)

    # read

    def held(self) -> List[str]:
        return list(probe_packages.versionlocks(LiveHost()))

    def can_hold(self) -> bool:
        """Return whether packages can be locked; asks only for the command's help, because its list needs reachable
        repositories.
        """
        return self._is_dnf5() or process.output(["dnf", "-q", "versionlock", "--help"], self.env)[0] == 0

    def needed_to_hold(self) -> List[str]:
        """Return the packages that locking needs; fail if there is none. Needs fresh package lists."""
        argv = ["dnf", "-q", *self.options, "repoquery", "--whatprovides", _HOLDING, "--qf", "%{name}\\n"]
        _code, text, error = process.output(argv, self.env, 300)
        offered = sorted(name for name in set(text.splitlines()) if _NAME.fullmatch(name))
        there = process.output(["rpm", "-q", "--whatprovides", _HOLDING], self.env)[0] == 0
        if offered and not there:
            return offered[:1]
        note = "its plugin is installed, but disabled" if there else _reasons(text + error)
        hint = "add the repository that has python3-dnf-plugin-versionlock, or hold no packages (gpu_packages_hold: [])"
        if there:
            hint = "set enabled=1 in /etc/dnf/plugins/versionlock.conf and plugins=1 in /etc/dnf/dnf.conf"
        what = "cannot hold packages: dnf has no versionlock command"
        raise HostFailure("GS-464", what, "", note, "nothing was changed; " + hint)

    def offered(self, names: Sequence[str], extra: Sequence[str] = ()) -> Dict[str, List[Dict[str, str]]]:
        found: Dict[str, List[Dict[str, str]]] = {name: [] for name in names}
        for row in self._rows(sorted(map(_spec, names)), extra) if names else []:
            name = listed(row[0], row[2], self.architecture())
            if name in found:
                found[name].insert(0, {"version": row[1], "from": row[3]})
        return found

    def ever_offered(self, names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        return self.offered(names, ["--setopt=*.module_hotfixes=true"])

    def matching(self, patterns: Sequence[str]) -> Offers:
        rows = self.repoquery(patterns, ["--available", "--disable-modular-filtering"])
        found: Offers = {}
        for name, version, _arch, repository, size, summary in rows or self.repoquery(patterns, ["--available"]):
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                offer = {
                    "version": versions.bare(version),
                    "size": int(size) if size.isdigit() else None,
                    "transitional": "transitional" in summary.lower(),
                    "source": repository,
                }
                found.setdefault(name, []).append(offer)
        for offers in found.values():
            offers.sort(key=lambda offer: [int(piece) for piece in re.findall(r"\d+", offer["version"])], reverse=True)
        return found

    def repoquery(self, patterns: Iterable[str], extra: Iterable[str] = ()) -> List[List[str]]:
        """Return [name, version, arch, repository, download size, summary] of what is offered for this architecture,
        oldest first.
        """
        return [row for row in self._rows(patterns, extra) if row[2] in (self.architecture(), "noarch")]

    def _rows(self, patterns: Iterable[str], extra: Iterable[str] = ()) -> List[List[str]]:
        every = [] if self._is_dnf5() else ["--showduplicates"]
        argv = ["dnf", "-q", *self.options, "repoquery", *every, *extra, "--qf", _OFFER, *patterns]
        _code, text, _error = process.output(argv, self.env, 300)
        rows = [line.strip().split("\t") for line in text.splitlines()]
        return [row for row in rows if len(row) == 6]

    # change

    def refresh(self) -> List[str]:
        """Fetch the lists and import the keys that the sources name as files; return problems as lines."""
        self.tell("refresh", "fetching repository metadata")
        argv = ["dnf", "-y", "--refresh", *self.options, "makecache"]
        code, tail = process.stream(argv, self.env, log=self.log)
        if code == 0:
            return []
        found = [line for line in tail if re.search(r"error|fail|cannot|not signed|bad gpg|gpg", line, re.IGNORECASE)]
        return found or tail[-3:]

    def words(self, wishes: Iterable[Wish]) -> List[str]:
        found = []
        for wish in wishes:
            text = wish["name"] + ("-" + versions.bare(wish["version"]) if wish["version"] else "")
            found.append(wish.get("file") or text + ("." + wish["arch"] if wish["arch"] else ""))
        return found

    def simulate(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Plan:
        """Return what the transaction would do: {"install", "upgrade", "downgrade", "remove", "download_bytes",
        "disk_bytes"}.

        It may not be all that was asked for: in a script dnf 4 skips what it cannot install, removes what it can, and
        exits with 0.
        """
        argv, script = self._transaction(wishes, removals)
        try:
            code, out, error = process.output([argv[0], "--assumeno", *argv[1:]], self.env, 600)
        finally:
            _drop(script)
        answer, self.said = parse(out + error, self.architecture()), _reasons(out + error)
        if not any(answer[kind] for kind in _KINDS) and code and "Nothing to do" not in out + error:
            said = self.said or (out + error).strip()[-800:]
            raise HostFailure(
                "GS-463", "dnf cannot install this set of packages together", " ".join(self.words(wishes)), said
            )
        return answer

    def _transaction(self, wishes: Iterable[Wish], removals: Iterable[str]) -> Tuple[List[str], str]:
        """Return the command of one transaction, and dnf 4's script, needed for installs and removals together."""
        words, gone, script = self.words(wishes), [_spec(name) for name in removals], ""
        if gone and words and self._is_dnf5():
            command = ["do", "--allowerasing", "--action=install", *words, "--action=remove", *gone]
        elif gone and words:
            handle, script = tempfile.mkstemp(prefix="gpusetup-", suffix=".dnf")
            with os.fdopen(handle, "w") as stream:
                stream.write("install {}\nremove {}\nrun\n".format(" ".join(words), " ".join(gone)))
            command = ["--allowerasing", "shell", script]
        else:
            command = ["install", "--allowerasing", *words] if words else ["remove", "--noautoremove", *gone]
        return ["dnf", *self.options, *command], script

    def _is_dnf5(self) -> bool:
        if self._dnf5 is None:
            self._dnf5 = "dnf5" in process.output(["dnf", "--version"], self.env)[1]
        return self._dnf5

    def download(self, wishes: Iterable[Wish]) -> Tuple[bool, List[str]]:
        return self._run(["install", "--downloadonly", "--allowerasing", *self.words(wishes)])

    def transact(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Tuple[bool, List[str]]:
        """Install, change and remove in one transaction; return (ok, last lines). With a script dnf 4 always reports
        success.
        """
        argv, script = self._transaction(wishes, removals)
        try:
            argv.insert(1, "-y")
            code, tail = self.patiently(lambda: process.stream(argv, self.env, self._line, log=self.log))
        finally:
            _drop(script)
        return code == 0, tail

    def purge(self, names: Iterable[str]) -> Tuple[bool, List[str]]:
        return self._run(["remove", "--noautoremove", *[_spec(name) for name in names]])

    def _run(self, words: List[str]) -> Tuple[bool, List[str]]:
        argv = ["dnf", "-y", *self.options, *words]
        code, tail = self.patiently(lambda: process.stream(argv, self.env, self._line, log=self.log))
        return code == 0, tail

    def _line(self, line: str) -> None:
        match = re.match(
            r"^\s*(Installing|Upgrading|Downgrading|Erasing|Removing|Running scriptlet|Verifying|Cleanup)"
            r"\s*:?\s*(\S+)?.*?(\d+)/(\d+)",
            line,
        )
        if match:
            done, total = int(match.group(3)), int(match.group(4))
            self.tell(
                "install", "{} {}".format(match.group(1), match.group(2) or "").strip(), 100 * done // max(1, total)
            )
            return
        match = re.match(r"^\[ *(\d+)/(\d+)\] (\S.*?) +\d+% ", line)  # dnf 5 has one form for both
        if match:
            step = "install" if match.group(3).split()[0] in _STEPS else "download"
            self.tell(step, match.group(3), 100 * int(match.group(1)) // int(match.group(2)))
            return
        match = re.match(r"^\((\d+)/(\d+)\): (\S+)", line)
        if match:
            self.tell("download", match.group(3), 100 * int(match.group(1)) // int(match.group(2)))

    def hold(self, names: Iterable[str]) -> None:
        self._versionlock("add", names)

    def unhold(self, names: Iterable[str]) -> None:
        """Delete locks, by whole entries where a list has them: a name would also delete what somebody excludes."""
        names, entries = set(names), probe_packages.versionlock_entries(LiveHost())
        tables = [table for table in probe_packages.versionlock_tables(LiveHost()) if table[1] in names]
        shared = {name for _entry, name, comparators in tables if comparators != ["="]}
        for entry in [entry for entry, name, comparators in tables if name in shared and comparators == ["="]]:
            files.edit(probe_packages.TOML, (files.read_text(probe_packages.TOML) or "").replace(entry, ""))
        listed_ones = [entry for entry in entries if entries[entry] in names]
        self._versionlock("delete", [*listed_ones, *(names - {*entries.values()} - shared)])

    def _versionlock(self, what: str, names: Iterable[str]) -> None:
        names = sorted(names)
        if not names:
            return
        # Only about installed packages: no repository has to answer.
        argv = ["dnf", "-q", *self.plain, "--disablerepo=*", "versionlock", what, *names]
        code, text, error = process.output(argv, self.env)
        if code:
            note = (error or text).strip()
            hint = f"dnf install '{_HOLDING}'" if "No such command" in note else ""
            raise HostFailure("GS-464", f"dnf versionlock {what} failed", ", ".join(names), note, hint)

    def set_stream(self, module: str, stream: Optional[str]) -> None:
        """Enable exactly this stream of a module (none: the default)."""
        enable = [["module", "enable", f"{module}:{stream}"]] if stream else []
        for words in [["module", "reset", module], *enable]:
            code, text, error = process.output(["dnf", "-y", "-q", *self.options, *words], self.env, 300)
            if code:
                raise HostFailure("GS-465", "dnf {} failed".format(" ".join(words)), "", (error or text).strip()[-800:])
        if not stream and os.path.exists(_module_file(module)):
            os.unlink(_module_file(module))  # a reset leaves an empty definition that was not there before

    def enabled_stream(self, module: str) -> Optional[str]:
        """Return the enabled stream of a module from dnf's own files."""
        if self._is_dnf5():
            section = re.search(
                rf"^\[modules\.\"?{re.escape(module)}\"?\]$(.*?)(?=^\[|\Z)",
                files.read_text(_MODULES5) or "",
                re.MULTILINE | re.DOTALL,
            )
            fields = dict(re.findall(r'^(\w+) = "(.*)"$', section.group(1) if section else "", re.MULTILINE))
            return fields.get("enabled_stream") if fields.get("state") == "Enabled" else None
        fields = dict(re.findall(r"^(\w+)=(.*)$", files.read_text(_module_file(module)) or "", re.MULTILINE))
        return fields.get("stream") if fields.get("state") == "enabled" else None


def _module_file(module: str) -> str:
    return f"{_MODULES4}/{module}.module"


def _drop(script: str) -> None:
    if script:
        os.unlink(script)


def _spec(name: str) -> str:
    """Return a package's name as dnf takes it: a foreign architecture follows a dot."""
    return _FOREIGN.sub(r".\1", name)


def _reasons(text: str) -> str:
    keep = []
    for line in text.splitlines():
        telling = re.search(r"Error|Problem|nothing provides|No match|conflict|filtered|requires|No such command", line)
        if telling and line.strip() not in keep:
            keep.append(line.strip())
    return "; ".join(keep)[:1500]
