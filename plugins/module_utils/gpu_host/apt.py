"""apt and dpkg: read, simulate, change. Only command-line tools, so that it works on every release."""

import fnmatch
import glob
import os
import re
import tempfile
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ..gpu_probe.candidates import parse_policy
from . import files, packages, process
from .failure import FULL, HostFailure
from .package_manager import MayGo, Offers, PackageManager
from .packages import Installed, Plan, Wish

_SECTIONS = {
    "The following NEW packages will be installed:": "install",
    "The following packages will be upgraded:": "upgrade",
    "The following packages will be DOWNGRADED:": "downgrade",
    "The following packages will be REMOVED:": "remove",
}
_PACKAGE = re.compile(r"^ +(\S+?)\*?(?: \((\S*)(?: => (\S+))?\))?$")
_COUNTS = re.compile(
    r"^(\d+) upgraded, (\d+) newly installed, (?:\d+ reinstalled, )?(?:(\d+) downgraded, )?"
    r"(\d+) to remove and \d+ not upgraded\.$",
    re.MULTILINE,
)
_URI = re.compile(r"^'[^']+' (\S+) (\d+) ")
_OF_A_DRIVER = "*nvidia* *cuda* nv* libnv* *xnvctrl*"  # for all packages apt would need a second more each time
_FETCH_TROUBLE = re.compile(r"^(?:Err|E|W|N):")
# An interrupted download is resumed; a mirror that is silent for a minute is given up.
_PATIENCE = ("-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=60", "-o", "Acquire::https::Timeout=60")
_ONLY_SAY = ("--print-uris", "--verbose-versions", "-o", "Debug::NoLocking=1")
_PREFERENCES = "/etc/apt/preferences"
UNATTENDED_FILE = "/etc/apt/apt.conf.d/52gpusetup-unattended-upgrades"


class Apt(PackageManager):
    """One host's apt. `options` are apt's own `-o` settings; a preview uses them to point apt to its own folder."""

    name = "apt"
    caches = ("/var/cache/apt/archives",)

    def __init__(
        self, *common: Any, options: Iterable[str] = (), recommends: bool = False, together: str = "", **told: Any
    ) -> None:
        super().__init__(*common, **told)
        trust = ["Acquire::https::CaInfo=" + self.ca_file] if self.ca_file else []
        self.options = [piece for item in list(options) + trust for piece in ("-o", item)]
        self.pins = _pins(together) if together else None
        self.recommends = recommends
        self.native = ""

    def close(self) -> None:
        if self.pins and os.path.exists(self.pins):
            os.unlink(self.pins)

    def require(self) -> None:
        for name in ("apt-get", "dpkg"):
            if process.which(name, self.env) is None:
                raise HostFailure("GS-497", f"this host has no {name}", hint="is gpu_package_manager right?")

    # read

    def installed(self) -> Installed:
        """Return {name, or name:arch of a foreign architecture: version} of installed packages."""
        return self._status()[0]

    def damaged(self) -> Dict[str, str]:
        return self._status()[1]

    def _status(self) -> Tuple[Installed, Dict[str, str], List[str]]:
        good: Installed = {}
        bad: Dict[str, str] = {}
        held: List[str] = []
        for key, _name, status, version in self._rows():
            if status[0] == "h":
                held.append(key)
            if status[1] == "i":
                good[key] = version
            elif status[1] in "UFWtH":
                bad[key] = {"U": "unpacked", "F": "half configured", "H": "half installed"}.get(
                    status[1], "waits for triggers"
                )
                good[key] = version
        return good, bad, held

    def _rows(self) -> List[Tuple[str, str, str, str]]:
        """Return each package known to dpkg: its name in a package set, its full name, its wanted and present state,
        its version.
        """
        fields = "${db:Status-Abbrev}\t${Package}\t${Architecture}\t${Version}\n"
        native, found = self.architecture(), []
        for line in self.of_database("dpkg-query", "-W", "-f", fields).splitlines():
            status, name, arch, version = line.split("\t")
            whole = f"{name}:{arch}" if arch else name
            found.append((name if arch in (native, "all") else whole, whole, status, version))
        return found

    def architecture(self) -> str:
        """Return dpkg's architecture, which never changes."""
        if not self.native:
            self.native = self.of_database("dpkg", "--print-architecture").strip()
        return self.native

    def held(self) -> List[str]:
        return sorted(self._status()[2])

    def offered(self, names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        """Return {name: [{"version", "from"}]}: apt's own choice first, then the others, newest first.

        Backports are newer, but apt does not choose them by itself: they would bring another kernel with its headers.
        """
        found: Dict[str, List[Dict[str, str]]] = {name: [] for name in names}
        if not names:
            return found
        _code, text, _error = process.output(["apt-cache", *self.options, "madison", *sorted(names)], self.env)
        for line in text.splitlines():
            pieces = [piece.strip() for piece in line.split("|")]
            if len(pieces) == 3 and pieces[0] in found and not pieces[2].endswith("Sources"):
                found[pieces[0]].append({"version": pieces[1], "from": pieces[2]})
        _code, text, _error = process.output(["apt-cache", *self.options, "policy", *sorted(names)], self.env)
        for name, package in parse_policy(text).items():
            if package["candidate"] and name in found:
                taken = package["candidate"]
                found[name].sort(key=lambda offer: offer["version"] != taken)
        return found

    def matching(self, patterns: Sequence[str]) -> Offers:
        # apt's own pattern search takes a second for ten patterns.
        wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
        names = sorted(name for name in set(self._cache("pkgnames").split()) if wanted.match(name))
        policies = parse_policy(self._cache("policy", *names)) if names else {}
        found = {name: package["versions"] for name, package in policies.items() if package["candidate"]}
        details = {}
        for stanza in self._cache("show", *sorted(found)).split("\n\n") if found else []:
            fields = dict(
                re.findall(r"^(Package|Version|Size|Section|Description(?:-\w+)?): (.*)$", stanza, re.MULTILINE)
            )
            details[fields.get("Package"), fields.get("Version")] = fields
        return {
            name: [_offer(version, details.get((name, version["version"]), {})) for version in several]
            for name, several in found.items()
        }

    def _cache(self, *words: str) -> str:
        """Run apt-cache; fail if it cannot read its lists, which is not the same as an empty repository."""
        code, text, error = process.output(["apt-cache", *self.options, *words], self.env, 120)
        if code:
            said = "; ".join(line for line in error.splitlines() if line.startswith("E:")) or error.strip()[-300:]
            reference, hint = "GS-449", "run the same command again in a minute"
            if FULL.search(said):
                reference, hint = "GS-332", "free some space on the host: df -h / /tmp /var"
            raise HostFailure(reference, "apt cannot read the package lists", said, hint=hint)
        return text

    def file_names(self, wish: Wish) -> List[str]:
        version = wish["version"].replace(":", "%3a")
        arches = [wish["arch"]] if wish["arch"] else [self.architecture(), "all"]
        return ["{}_{}_{}.deb".format(wish["name"], version, arch) for arch in arches]

    # change

    def refresh(self) -> List[str]:
        """Fetch the lists; return problems as lines. Our own repositories are judged by what they offer afterwards."""
        self.tell("refresh", "fetching package lists")
        argv = ["apt-get", "-q", *_PATIENCE, *self.options, "update"]
        code, tail = self.patiently(lambda: process.stream(argv, self.env, log=self.log))
        trouble = [line for line in tail if _FETCH_TROUBLE.match(line) and not line.startswith("N:")]
        return trouble or (tail[-3:] if code else [])

    def arguments(self, wishes: Iterable[Wish], removals: Iterable[str]) -> List[str]:
        words = []
        for wish in wishes:
            word = packages.key(wish) + ("=" + wish["version"] if wish["version"] else "")
            words.append(wish.get("file") or word)
        return words + [name + "-" for name in removals]

    def _argv(self, verb: str, words: Iterable[str], *extra: str) -> List[str]:
        """Return the command line of a change: it waits for dpkg's lock, asks nothing, keeps existing configuration
        files, and moves held packages, whose holds were checked before.
        """
        settings = [
            "DPkg::Lock::Timeout=120",
            "Dpkg::Options::=--force-confdef",
            "Dpkg::Options::=--force-confold",
            "APT::Install-Recommends=" + ("true" if self.recommends else "false"),
        ]
        settings += ["Dir::Etc::preferences=" + self.pins] if self.pins else []
        return [
            "apt-get", "-q", "-y", *self.options, *extra, *(piece for item in settings for piece in ("-o", item)),
            "--allow-downgrades", "--allow-change-held-packages", "--ignore-hold", "--purge", verb, *words,
        ]  # fmt: skip

    def simulate(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Plan:
        """Return what the transaction would do: {"install", "upgrade", "downgrade", "remove", "download_bytes",
        "disk_bytes"}.

        With --print-uris apt prints the same as in its simulation, which takes three seconds more for sixty packages.
        """
        words = self.arguments(wishes, removals)
        argv = self._argv("install", words, *_ONLY_SAY)
        code, text, error = process.output(argv, self.env, 300)
        if code:
            raise HostFailure(
                "GS-463", "apt cannot install this set of packages together", " ".join(words), _reasons(text + error)
            )
        self.said = _reasons(text + error)
        answer = _plan(text)
        if answer is None:
            raise HostFailure(
                "GS-463", "cannot read apt's plan for this set of packages", " ".join(words), text[-1500:]
            )
        if answer["remove"]:  # apt prints the version that it would install instead, or none
            installed = self.installed()
            answer["remove"] = {name: installed.get(name, "") for name in answer["remove"]}
        answer.update(self._sizes(text))
        return answer

    def _sizes(self, text: str) -> Dict[str, int]:
        found = [_URI.match(line) for line in text.splitlines()]
        (folder,) = self.caches
        have = os.listdir(folder) if os.path.isdir(folder) else ()
        download = sum(int(match.group(2)) for match in found if match and match.group(1) not in have)
        match = re.search(
            r"After this operation, ([\d.,]+) ([kMG]?B) "
            r"(of additional disk space will be used|disk space will be freed)",
            text,
        )
        disk = 0
        if match:
            unit = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[match.group(2)]
            disk = int(float(match.group(1).replace(",", "")) * unit) * (1 if "additional" in match.group(3) else -1)
        return {"download_bytes": download, "disk_bytes": disk}

    def download(self, wishes: Iterable[Wish]) -> Tuple[bool, List[str]]:
        """Download what a transaction needs without changing anything; return (ok, last lines)."""
        return self._run("install", self.arguments(wishes, []), "--download-only", *_PATIENCE)

    def transact(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Tuple[bool, List[str]]:
        """Install, change and remove in one transaction; return (ok, last lines)."""
        return self._run("install", self.arguments(wishes, removals), *_PATIENCE)

    def purge(self, names: Iterable[str]) -> Tuple[bool, List[str]]:
        return self._run("purge", names)

    def _run(self, verb: str, words: Iterable[str], *extra: str) -> Tuple[bool, List[str]]:
        argv = self._argv(verb, words, "-o", "APT::Status-Fd={fd}", *extra)
        code, tail = self.patiently(lambda: process.stream(argv, self.env, self._line, self._progress, self.log))
        return code == 0, tail

    def _line(self, line: str) -> None:
        match = re.match(r"^(?:Building (?:initial )?module\b.*|Setting up (\S+).*|update-initramfs: .*)$", line)
        if match:
            self.tell("install", line[:120])

    def _progress(self, line: str) -> None:
        kind, _, rest = line.partition(":")
        pieces = rest.split(":", 2)
        if kind not in ("dlstatus", "pmstatus") or len(pieces) < 3:
            return
        try:
            percent = int(float(pieces[1]))
        except ValueError:
            return
        self.tell("download" if kind == "dlstatus" else "install", pieces[2].strip()[:120], percent)

    def repair(self, may_go: MayGo) -> Dict[str, str]:
        """Finish an interrupted dpkg run; return the packages that are still damaged.

        If dpkg alone cannot, apt tries, unless that would remove packages that `may_go` does not allow.
        """
        if not self.damaged() and not glob.glob("/var/lib/dpkg/updates/*"):
            return {}
        self.tell("repair", "finishing an interrupted package installation")
        argv = ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]
        self.patiently(lambda: process.stream(argv, self.env, log=self.log))
        if self.damaged():
            # What was cut while it was unpacked apt finishes only by name.
            torn = sorted(key for key, _name, status, _version in self._rows() if status[2:3] == "R")
            how = ["--fix-broken", *(["--reinstall"] if torn else [])]
            code, text, _error = process.output(self._argv("install", torn, *_ONLY_SAY, *how), self.env, 300)
            plan = None if code else _plan(text)
            if plan is None:
                return self.damaged()
            extra = may_go(plan["remove"])
            if extra:
                raise HostFailure(
                    "GS-467",
                    "half-installed packages could only be finished by removing packages without permission",
                    ", ".join(extra),
                    ", ".join("{} ({})".format(*item) for item in sorted(self.damaged().items())),
                    "finish them with apt-get --fix-broken install, or list those in gpu_packages_may_remove",
                )
            self._run("install", torn, *how)
        return self.damaged()

    def edited_settings(self, names: Iterable[str]) -> List[str]:
        """Return the settings files of packages that somebody has edited; apt purges them with their packages."""
        argv = ["dpkg-query", "-W", "-f", "${Conffiles}\n", *sorted(names)]
        rows = [line.split() for line in process.output(argv, self.env)[1].splitlines() if line.startswith(" /")]
        was = {row[0]: row[1] for row in rows if os.path.isfile(row[0])}
        now = process.output(["md5sum", *sorted(was)], self.env)[1] if was else ""
        return [path for digest, path in (line.split(None, 1) for line in now.splitlines()) if was.get(path) != digest]

    def lock_name(self, name: str, _version: str) -> str:
        return name

    def hold(self, names: Iterable[str]) -> None:
        self._select(names, "hold")

    def unhold(self, names: Iterable[str]) -> None:
        """Release packages; one that is gone has no hold."""
        self._select(names, "install")

    def _select(self, names: Iterable[str], state: str) -> None:
        """Set the state in dpkg directly: apt-mark would read all package lists first.

        Names carry their architecture: dpkg rejects the whole list for one name that is installed in two architectures,
        and ignores one that is installed in another.
        """
        wanted = set(names)
        there = {key: name for key, name, _status, _version in self._rows() if key in wanted} if wanted else {}
        if not there:
            return
        lines = "".join(f"{name} {state}\n" for name in sorted(there.values()))
        select = ["dpkg", "--set-selections"]
        code, _text, error = self.patiently(lambda: process.output(select, self.env, text=lines))
        if code:
            raise HostFailure("GS-464", "dpkg --set-selections failed", ", ".join(sorted(there)), error.strip())

    def automatic_upgrades(self, names: Iterable[str]) -> Dict[str, str]:
        """Return {path: content} of the file that excludes packages from automatic upgrades."""
        lines = ["// Written by gpusetup: the GPU stack moves only as a whole."]
        lines.append("Unattended-Upgrade::Package-Blacklist {")
        lines += ['  "^{}$";'.format(re.sub(r"([.+])", r"\\\1", name.split(":")[0])) for name in sorted(names)]
        lines.append("};")
        return {UNATTENDED_FILE: "\n".join(lines) + "\n"}


def _offer(version: Dict[str, Any], fields: Dict[str, str]) -> Dict[str, Any]:
    summary = next((value for key, value in fields.items() if key.startswith("Description")), "")
    return {
        "version": version["version"],
        "size": int(fields["Size"]) if fields.get("Size", "").isdigit() else None,
        "transitional": "transitional" in summary.lower() or fields.get("Section", "").endswith("oldlibs"),
        "source": ", ".join(version["sources"]),
    }


def _pins(version: str) -> str:
    """Write apt preferences that choose the exact driver version for every package of the driver that has it.

    By itself apt takes the newest of each dependency and then finds that they do not fit together.
    """
    handle, path = tempfile.mkstemp(prefix="gpusetup-", suffix=".pref")
    text = f"Package: {_OF_A_DRIVER}\nPin: version /^{re.escape(version)}(-|$)/\nPin-Priority: 1001\n\n"
    with os.fdopen(handle, "wb") as stream:
        stream.write(text.encode() + (files.read_bytes(_PREFERENCES) or b""))
    return path


def _plan(text: str) -> Optional[Plan]:
    """Parse the lists that apt-get prints before it acts; None if their lengths differ from apt's own counts."""
    answer: Plan = {"install": {}, "upgrade": {}, "downgrade": {}, "remove": {}}
    kind: Optional[str] = None
    for line in text.splitlines():
        match = _PACKAGE.match(line)
        if match and kind and (match.group(2) or kind == "remove"):
            name, old, new = match.groups()
            answer[kind][name] = [old, new] if kind in ("upgrade", "downgrade") else old
        elif not match:
            kind = _SECTIONS.get(line)
    said = _COUNTS.search(text)
    listed = [len(answer[kind]) for kind in ("upgrade", "install", "downgrade", "remove")]
    return answer if said and [int(count or 0) for count in said.groups()] == listed else None


def _reasons(text: str) -> str:
    telling = re.compile(r"^(E: |W: | .*(Depends|Conflicts|Breaks|PreDepends):)")
    return "; ".join(line.strip() for line in text.splitlines() if telling.match(line))[:1500]
