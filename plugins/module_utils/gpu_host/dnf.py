"""dnf and rpm: look, simulate, change. Only command-line tools, for dnf 4 and dnf 5 alike."""

import os
import re
import tempfile

from . import locks, packages, process
from .failure import HostFailure

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
_FOREIGN = re.compile(r":(i[3-6]86|x86_64|aarch64)$")
_NEVRA = "%{NAME}\\t%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"


class Dnf:
    """One host's dnf. `options` are words before the command: a preview points them to a folder of its own."""

    name = "dnf"

    def __init__(self, network=None, options=(), tell=None, log=None, recommends=False, together=""):
        self.env = process.environment(network)
        self.plain = [*list(options), f"--setopt=install_weak_deps={bool(recommends)}"]
        if network and network.get("ca_file"):
            self.plain.append("--setopt=sslcacert=" + network["ca_file"])
        self._dnf5 = None
        self.tell = tell or (lambda *_words: None)
        self.log = log

    @property
    def options(self):
        """Words before the command. Whether a lock forbids a change is judged from the simulation, so dnf must see past locks."""
        return self.plain + (["--setopt=disable_excludes=*"] if self._is_dnf5() else ["--disableplugin=versionlock"])

    def close(self):
        """Nothing to forget: dnf's solver finds the versions that fit together."""

    # look

    def installed(self):
        """Return {name: version}; "name:arch" of a foreign architecture, "name-version" of what is there more than once, as kernels are."""
        code, text, error = process.output(["rpm", "-qa", "--qf", _NEVRA], self.env)
        if code:
            raise HostFailure("GS-462", f"rpm does not answer: {error.strip()}")
        rows = [line.split("\t") for line in text.splitlines() if line.count("\t") == 2]
        rows = [row for row in rows if row[0] != "gpg-pubkey"]
        native, versions = self.architecture(), {}
        for name, version, arch in rows:
            versions.setdefault(name if arch in (native, "noarch") else f"{name}:{arch}", []).append(version)
        found = {}
        for name, several in versions.items():
            for version in several:
                found[name if len(several) == 1 else packages.one_of_several(name, version)] = version
        return found

    def damaged(self):
        """Rpm has no half-done state; a damaged database is a failure of `installed`."""
        return {}

    def architecture(self):
        """Return rpm's own architecture."""
        return os.uname()[4]

    def held(self):
        """Return the names of locked packages."""
        return sorted({name for name in (_locked_name(line) for line in self._locks()) if name})

    def _locks(self):
        code, text, error = process.output(["dnf", "-q", "versionlock", "list"], self.env)
        if code:
            return []
        return [
            line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("#", "Last metadata"))
        ]

    def offered(self, names):
        """Return {name: [{"version", "from"}]}, newest first."""
        found = {name: [] for name in names}
        if not names:
            return found
        form = "%{name}\\t%{epoch}:%{version}-%{release}\\t%{arch}\\t%{repoid}\\n"
        argv = ["dnf", "-q", *self.options, "repoquery", "--showduplicates", "--qf", form, *sorted(names)]
        _code, text, _error = process.output(argv, self.env, 300)
        for line in text.splitlines():
            pieces = line.strip().split("\t")
            if len(pieces) == 4 and pieces[0] in found and pieces[2] in (os.uname()[4], "noarch"):
                found[pieces[0]].insert(0, {"version": pieces[1], "from": pieces[3]})
        return found

    def description(self, name, version):
        """Return a package's summary."""
        argv = ["dnf", "-q", *self.options, "repoquery", "--qf", "%{summary}\\n", f"{name}-{_plain(version)}"]
        return process.output(argv, self.env)[1].strip()

    def lock_holder(self):
        """Return who holds rpm's lock or dnf's pid files, None when they are free."""
        for path in ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock"):
            found = locks.holder(path)
            if found:
                return found
        for path in (
            "/var/cache/dnf/metadata_lock.pid",
            "/var/cache/dnf/download_lock.pid",
            "/var/lib/rpm/rpmdb_lock.pid",
        ):
            found = locks.pid_file_holder(path)
            if found:
                return found
        return None

    # change

    def refresh(self):
        """Fetch the lists, importing the keys that the sources name by file; return what went wrong as lines."""
        self.tell("refresh", "fetching repository metadata")
        argv = ["dnf", "-y", "--refresh", *self.options, "makecache"]
        code, tail = process.stream(argv, self.env, lambda _line: None, log=self.log)
        return (
            [line for line in tail if re.search(r"error|fail|cannot|not signed|bad gpg|gpg", line, re.IGNORECASE)]
            if code
            else []
        )

    def words(self, wishes):
        """Return wishes as dnf's own words."""
        found = []
        for wish in wishes:
            text = wish["name"] + ("-" + _plain(wish["version"]) if wish["version"] else "")
            found.append(text + ("." + wish["arch"] if wish["arch"] else ""))
        return found

    def simulate(self, wishes, removals):
        """Return what the transaction would do: {"install", "upgrade", "downgrade", "remove", "download_bytes", "disk_bytes"}."""
        code, text = self._transaction(wishes, removals, ["--assumeno"], simulate=True)
        answer = parse(text)
        quiet = any(answer[key] for key in ("install", "upgrade", "downgrade", "remove"))
        if not quiet and code and "Nothing to do" not in text:
            raise HostFailure(
                "GS-463", "dnf cannot put this set of packages together", " ".join(self.words(wishes)), _reasons(text)
            )
        return answer

    def _transaction(self, wishes, removals, extra, simulate=False):
        """Run one transaction; removals beside installs need dnf's script mode."""
        base = ["dnf", *extra, *self.options, "--allowerasing"]
        words, removals = self.words(wishes), [_spec(name) for name in removals]
        script = None
        if removals and words and not self._is_dnf5():
            handle, script = tempfile.mkstemp(prefix="gpusetup-", suffix=".dnf")
            with os.fdopen(handle, "w") as stream:
                stream.write("install {}\nremove {}\nrun\n".format(" ".join(words), " ".join(removals)))
            argv = [*base, "shell", script]
        elif removals and words:
            actions = ["--action=install", *words, "--action=remove", *removals]
            argv = [*base, "do", *actions]
        else:
            argv = base + (["install", *words] if words else ["remove", "--noautoremove", *removals])
        try:
            if simulate:
                code, out, error = process.output(argv, self.env, 600)
                return code, out + error
            code, tail = process.stream(argv, self.env, self._line, log=self.log)
            return code, "\n".join(tail)
        finally:
            if script:
                os.unlink(script)

    def _is_dnf5(self):
        if self._dnf5 is None:
            self._dnf5 = "dnf5" in process.output(["dnf", "--version"], self.env)[1]
        return self._dnf5

    def transact(self, wishes, removals):
        """Install, change and remove in one transaction; return (ok, last lines)."""
        code, text = self._transaction(wishes, removals, ["-y"])
        return code == 0, text.splitlines()

    def purge(self, names):
        """Take packages away; return (ok, last lines)."""
        code, tail = process.stream(
            ["dnf", "-y"] + self.options + ["remove", "--noautoremove"] + [_spec(name) for name in names],
            self.env,
            self._line,
            log=self.log,
        )
        return code == 0, tail

    def autoremovable(self, among):
        """Return the packages of a set that nothing needs any more."""
        _code, text, _error = process.output(["dnf", "--assumeno", *self.options, "autoremove"], self.env, 300)
        return [name for name in parse(text)["remove"] if name in among]

    def _line(self, line):
        match = re.match(
            r"^\s*(Installing|Upgrading|Downgrading|Erasing|Removing|Running scriptlet|Verifying|Cleanup)\s*:?\s*(\S+)?.*?(\d+)/(\d+)",
            line,
        )
        if match:
            done, total = int(match.group(3)), int(match.group(4))
            self.tell(
                "install", "{} {}".format(match.group(1), match.group(2) or "").strip(), 100 * done // max(1, total)
            )
            return
        match = re.match(r"^\((\d+)/(\d+)\): (\S+)", line)
        if match:
            self.tell("download", match.group(3), 100 * int(match.group(1)) // int(match.group(2)))

    def repair(self):
        """Rpm finishes or rolls back by itself; a transaction that was cut is reported by the next one."""
        return {}

    def lock_name(self, name, version):
        """Return the name by which a package is locked: of all architectures and versions that are there at once."""
        return packages.listed(name, version)["name"]

    def hold(self, names):
        """Lock packages at their installed version."""
        self._versionlock("add", names)

    def unhold(self, names):
        """Release packages."""
        self._versionlock("delete", names)

    def _versionlock(self, what, names):
        if not names:
            return
        code, text, error = process.output(["dnf", "-q", *self.plain, "versionlock", what, *sorted(names)], self.env)
        if code:
            note = (error or text).strip()
            hint = "install python3-dnf-plugin-versionlock" if "versionlock" in note else ""
            raise HostFailure("GS-464", f"dnf versionlock {what} failed", ", ".join(sorted(names)), note, hint)

    def streams(self, wanted):
        """Enable exactly the wanted module streams (none: back to the default); return those that had to be changed."""
        changed = []
        for item in wanted:
            if self._enabled_stream(item["module"]) == item["stream"]:
                continue
            enable = [["module", "enable", "{module}:{stream}".format(**item)]] if item["stream"] else []
            for words in [["module", "reset", item["module"]], *enable]:
                code, text, error = process.output(["dnf", "-y", "-q", *self.options, *words], self.env, 300)
                if code:
                    raise HostFailure(
                        "GS-465", "dnf {} failed".format(" ".join(words)), "", (error or text).strip()[-800:]
                    )
            if not item["stream"] and os.path.exists(_module_file(item["module"])):
                os.unlink(_module_file(item["module"]))  # what a reset leaves says nothing, and was not there before
            changed.append("{}:{}".format(item["module"], item["stream"] or "(default)"))
        return changed

    def enabled_streams(self, modules):
        """Return what is enabled of some modules, in the form that `streams` takes."""
        return [{"module": module, "stream": self._enabled_stream(module)} for module in modules]

    def _enabled_stream(self, module):
        if not os.path.exists(_module_file(module)):
            return None
        with open(_module_file(module)) as stream:
            fields = dict(re.findall(r"^(\w+)=(.*)$", stream.read(), re.MULTILINE))
        return fields.get("stream") if fields.get("state") == "enabled" else None

    def automatic_upgrades(self, names):
        """Return no file: dnf-automatic respects the version locks."""
        return {}


def _module_file(module):
    return f"/etc/dnf/modules.d/{module}.module"


def parse(text):
    """Read dnf's transaction table: dnf 4 and dnf 5 print one headed block per kind of change."""
    answer = {"install": {}, "upgrade": {}, "downgrade": {}, "remove": {}, "download_bytes": 0, "disk_bytes": 0}
    kind, pending = None, []
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"^Transaction Summary", stripped):
            kind = None
        heading = re.match(r"^([A-Z][\w/ ]+):$", line)
        if heading:
            kind, pending = _HEADINGS.get(heading.group(1).lower()), []
            continue
        size = re.match(r"^Total download size: ([\d.]+) ?(\w*)$", stripped)
        if size:
            answer["download_bytes"] = _bytes(size)
        size = re.match(r"^(Installed|Freed) size: ([\d.]+) ?(\w*)$", stripped, re.IGNORECASE)
        if size:
            answer["disk_bytes"] = _bytes(size, 2) * (1 if size.group(1).lower() == "installed" else -1)
        if kind is None or not stripped or stripped.startswith(("replacing", "=", "-")):
            continue
        pending += stripped.split()
        at = next((index for index, word in enumerate(pending) if word in _ARCHES and index), None)
        if at is not None and len(pending) > at + 2:
            name, version = pending[at - 1], pending[at + 1]
            if kind in ("install", "remove"):
                answer[kind][name] = version
            elif kind in ("upgrade", "downgrade"):
                answer[kind][name] = ["", version]
            pending = []
    return answer


def _bytes(match, group=1):
    unit = match.group(group + 1).rstrip("B")
    return int(float(match.group(group)) * _UNITS.get(unit, 1))


def _plain(version):
    return re.sub(r"^0:", "", version)


def _spec(name):
    """Return a package's name as dnf takes it: with a dot before a foreign architecture."""
    return _FOREIGN.sub(r".\1", name)


def _locked_name(line):
    match = re.match(r"^!?(.+?)-(?:\d+:)?[^-]+-[^-]+$", line)
    return match.group(1) if match else None


def _reasons(text):
    keep = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"Error|Problem|nothing provides|No match|conflict|filtered|requires", line)
    ]
    return "; ".join(keep)[:1500]
