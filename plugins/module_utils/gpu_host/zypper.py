"""zypper and rpm: read, simulate, change. Only command-line tools."""

import fnmatch
import glob
import os
import re
import tempfile
from contextlib import contextmanager
from html import unescape
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..gpu_judge import versions
from ..gpu_probe import packages as probe_packages
from ..gpu_probe.host import LiveHost
from . import files, openpgp, packages, process
from .failure import HostFailure
from .package_manager import Offers, Rpm, listed, note_removal
from .packages import Plan, Wish

_TAG = re.compile(r"<(/?)([a-z-]+)((?:\s+[\w-]+=\"[^\"]*\"|\s+[\w-]+='[^']*')*)\s*/?>")
_ATTRIBUTE = re.compile(r"([\w-]+)=[\"']([^\"']*)[\"']")
_MESSAGE = re.compile(r"<message type=\"(?:error|warning)\">(.*?)</message>", re.DOTALL)
_PROBLEM = re.compile(r"<description>(Problem: .*?)</description>", re.DOTALL)
_KINDS = ("install", "upgrade", "downgrade", "remove")


def solvables(text: str) -> Iterator[Tuple[str, Dict[str, str]]]:
    """Yield each solvable's attributes with the list that contains it (to-install, to-upgrade, …)."""
    section = ""
    for match in _TAG.finditer(text):
        closing, tag, rest = match.groups()
        if tag.startswith("to-"):
            section = "" if closing else tag
        elif tag == "solvable" and not closing:
            yield section, {name: unescape(value) for name, value in _ATTRIBUTE.findall(rest)}


def offered(text: str) -> List[Dict[str, str]]:
    """Return what a search found in repositories, newest first: name, edition, arch, repository."""
    rows = [row for _section, row in solvables(text) if row.get("kind") == "package" and row.get("repository")]
    return [row for row in rows if not row["repository"].startswith("(")]  # "(System Packages)"


def plan(text: str, native: str) -> Optional[Plan]:
    """Return the summary of a transaction, None if zypper reached none."""
    summary = re.search(r"<install-summary([^>]*)>", text)
    if summary is None:
        return None
    sizes = dict(_ATTRIBUTE.findall(summary.group(1)))
    answer: Plan = {kind: {} for kind in _KINDS}
    answer.update(download_bytes=_number(sizes.get("download-size")), disk_bytes=_number(sizes.get("space-usage-diff")))
    for section, row in solvables(text):
        kind = next((kind for kind in _KINDS if section.startswith("to-" + kind)), None)
        kind = "upgrade" if section == "to-change-arch" else kind
        if kind is None or row.get("type") != "package":
            continue
        name, version = listed(row["name"], row["arch"], native), row["edition"]
        if kind == "remove":
            note_removal(answer, name, version)
        else:
            answer[kind][name] = version if kind == "install" else [row.get("edition-old", ""), version]
    return answer


def reasons(text: str) -> List[str]:
    """Return zypper's problems, or if there are none its errors and warnings; one line each."""
    found = _PROBLEM.findall(text) or _MESSAGE.findall(text)
    lines = (" ".join(unescape(unescape(item)).split()) for item in found)
    return list(dict.fromkeys(line for line in lines if line))


def _number(text: Optional[str]) -> int:
    return int(text) if text and re.fullmatch(r"-?\d+", text) else 0


CONFIGURATION = ("/etc/zypp/zypp.conf", "/usr/etc/zypp/zypp.conf")
LOCKS = "/etc/zypp/locks"
# Done, though updates are pending, a reboot or a restart of zypper is due, or a repository was skipped.
_DONE = (0, 100, 101, 102, 103, 106)
_LOCKED = 7
_MEANING = {
    4: "the packages conflict",
    5: "it may not change packages",
    6: "there are no repositories",
    _LOCKED: "another program uses the package manager",
    8: "a package could not be fetched or installed",
    104: "a package is not offered",
    105: "it was stopped by a signal",
    107: "a package script failed",
}
_TELLING = re.compile(r"error|fail|problem|not found|no provider|locked|conflict|abort", re.IGNORECASE)
_ROUTINE = "Checking for file conflicts"
_OURS = "# Written by gpusetup."


class Zypper(Rpm):
    """One host's zypper. `looking` is the folder of a preview, with its repositories, caches and zypper's lock."""

    name = "zypper"
    caches = ("/var/cache/zypp/packages/*", "/var/cache/zypp/packages/*/*")

    def __init__(self, *common: Any, recommends: bool = False, looking: str = "", **told: Any) -> None:
        super().__init__(*common, **told)
        self.looking = looking
        self.env["ZYPP_LOCK_TIMEOUT"] = "120"
        self.flags = ["--oldpackage", "--allow-vendor-change", "--force-resolution", "--auto-agree-with-licenses"]
        self.flags.append("--recommends" if recommends else "--no-recommends")
        self.options: List[str] = []
        if looking:
            # `_unproven` verifies what a preview downloads: zypper would need our keys in rpm's database first.
            self.options = ["--reposd-dir", self._repositories, "--cache-dir", looking + "/cache", "--no-gpg-checks"]
            self.env["ZYPP_LOCKFILE_ROOT"] = looking

    @property
    def _repositories(self) -> str:
        return self.looking + "/etc/zypp/repos.d"

    def require(self) -> None:
        if process.which("zypper", self.env) is None:
            raise HostFailure("GS-497", "this host has no zypper", hint="is gpu_package_manager right?")

    # read

    def held(self) -> List[str]:
        return probe_packages.zypper_locks(LiveHost(), [self.lock_name(*item) for item in self.installed().items()])

    def offered(self, names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        found: Dict[str, List[Dict[str, str]]] = {name: [] for name in names}
        bare = sorted({name.partition(":")[0] for name in names})
        for row in self._rows(bare, "--match-exact") if names else []:
            name = listed(row["name"], row["arch"], self.architecture())
            if name in found:
                found[name].append({"version": row["edition"], "from": row["repository"]})
        return found

    def matching(self, patterns: Sequence[str]) -> Offers:
        """Do so without sizes, which zypper reports only for a transaction; it sorts newest first."""
        found: Offers = {}
        for row in self._rows(patterns):
            of_this_host = row["arch"] in (self.architecture(), "noarch")
            if of_this_host and any(fnmatch.fnmatchcase(row["name"], pattern) for pattern in patterns):
                offer = {"version": row["edition"], "size": None, "transitional": False, "source": row["repository"]}
                found.setdefault(row["name"], []).append(offer)
        return found

    def _rows(self, patterns: Iterable[str], *how: str) -> List[Dict[str, str]]:
        _code, text = self._ask(["search", "--details", "--type", "package", *how, *patterns])
        return offered(text)

    def _ask(self, words: List[str], env: Optional[Dict[str, str]] = None) -> Tuple[int, str]:
        """Run a command that changes nothing; return (code, XML). A lock held by others is a failure."""
        argv = ["zypper", "--non-interactive", "--xmlout", "--no-refresh", *self.options, *words]
        code, text, error = process.output(argv, env or self.env, 600)
        if code in (_LOCKED, process.MISSING, process.TIMED_OUT):
            said = "; ".join(reasons(text)) or error.strip()
            raise HostFailure("GS-453", "zypper does not answer: " + _MEANING.get(code, "it gave no answer"), note=said)
        return code, text

    # change

    def refresh(self) -> List[str]:
        """Fetch the lists; return problems as lines. Import our keys, verified when they were written, into rpm."""
        self.tell("refresh", "fetching repository metadata")
        ours = _our_repositories(self._repositories)
        if not self.looking:
            for source in ours:
                code, _text, error = process.output(["rpm", "--import", source["key"]], self.env)
                if code:
                    return ["Error: {name}: rpm does not take its key {key}: ".format(**source) + error.strip()]
        argv = ["zypper", "--non-interactive", "--xmlout", *self.options, "refresh"]
        code, text, error = process.output(argv, self.env, 900)
        trouble = ["Error: " + line for line in reasons(text)] if code else []
        if code and not trouble:
            trouble = [f"Error: zypper refresh ended with {code}: {error.strip()[-300:]}"]
        for line in trouble:
            if self.log:
                self.log(line)
        return trouble + ([line for source in ours for line in self._unproven(source)] if self.looking else [])

    def _unproven(self, source: Dict[str, str]) -> List[str]:
        """Return why the list of one of our repositories is not proven by its key."""
        index = os.path.join(self.looking, "cache/raw", source["name"], "repodata/repomd.xml")
        if not source["signed"] or not os.path.exists(index):
            return []  # zypper verifies it again before anything is installed
        keyring = os.path.join(self.looking, source["name"] + ".keyring")
        try:
            files.write_atomically(keyring, openpgp.binary(files.read_bytes(source["key"]) or b""), 0o600)
        except openpgp.BadKey as error:
            return [f"Error: {source['name']}: its key {source['key']} cannot be read: {error}"]
        good, said = openpgp.proven(keyring, index + ".asc", index, self.env)
        why = f"the signature of its list is not by its key: {said}"
        return [f"Error: {source['name']}: {why}"] if good is False else []

    def words(self, wishes: Iterable[Wish]) -> List[str]:
        """Return wishes as words for zypper, with the release: without it zypper finds nothing if there is an epoch."""
        found = []
        for wish in wishes:
            text = wish["name"] + ("." + wish["arch"] if wish["arch"] else "")
            found.append(wish.get("file") or text + ("=" + versions.bare(wish["version"]) if wish["version"] else ""))
        return found

    def simulate(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Plan:
        """Return what the transaction would do: {"install", "upgrade", "downgrade", "remove", "download_bytes",
        "disk_bytes"}. Locks are ignored, because this must show what a lock would forbid.
        """
        command = self._transaction(wishes, removals, "--dry-run")
        with self._past_locks() as env:
            _code, text = self._ask(command, env)
        answer, self.said = plan(text, self.architecture()), "; ".join(reasons(text))[:1500]
        if answer is None:
            raise HostFailure(
                "GS-463", "zypper cannot install this set of packages together", " ".join(command), self.said
            )
        return answer

    @contextmanager
    def _past_locks(self) -> Iterator[Dict[str, str]]:
        """Yield an environment in which zypper ignores locks."""
        handle, path = tempfile.mkstemp(prefix="gpusetup-", suffix=".conf")
        try:
            text = next((text for text in map(files.read_text, CONFIGURATION) if text), "[main]\n")
            text = re.sub(r"^\s*locksfile\..*\n", "", text, flags=re.MULTILINE)
            text = re.sub(r"^\[main\]\s*\n", "[main]\nlocksfile.apply = no\n", text, count=1, flags=re.MULTILINE)
            with os.fdopen(handle, "wb") as stream:
                stream.write(text.encode("utf-8", "surrogateescape"))
            yield dict(self.env, ZYPP_CONF=path)
        finally:
            os.unlink(path)

    def _transaction(self, wishes: Iterable[Wish], removals: Iterable[str], how: str) -> List[str]:
        """Return the command of one transaction; in `install`, a name after an exclamation mark is removed.

        Options stand before the first name: after it, `-` means a removal.
        """
        words, gone = self.words(wishes), self._installed_as_zypper(removals)
        if not words:
            return ["remove", "--no-clean-deps", *([how] if how == "--dry-run" else []), *gone]
        return ["install", *self.flags, how, *words, *("!" + name for name in gone)]

    def _installed_as_zypper(self, names: Iterable[str]) -> List[str]:
        names = list(names)
        installed = self.installed() if names else {}
        return self.words(packages.listed(name, installed[name]) for name in names if name in installed)

    def download(self, wishes: Iterable[Wish]) -> Tuple[bool, List[str]]:
        with self._past_locks() as env:
            return self._run(self._transaction(wishes, [], "--download-only"), env)

    def transact(self, wishes: Sequence[Wish], removals: Sequence[str]) -> Tuple[bool, List[str]]:
        """Install, change and remove in one transaction; return (ok, last lines). Everything is downloaded first."""
        return self._run(self._transaction(wishes, removals, "--download-in-advance"))

    def purge(self, names: Iterable[str]) -> Tuple[bool, List[str]]:
        gone = self._installed_as_zypper(names)
        return self._run(["remove", "--no-clean-deps", *gone]) if gone else (True, [])

    def _run(self, words: List[str], env: Optional[Dict[str, str]] = None) -> Tuple[bool, List[str]]:
        argv = ["zypper", "--non-interactive", "--no-refresh", *self.options, *words]
        code, tail = process.stream(argv, env or self.env, self._line, log=self.log)
        if code in _DONE:
            return True, tail
        said = [line.strip() for line in tail if _TELLING.search(line) and not line.startswith(_ROUTINE)][:6]
        means = _MEANING.get(code, "see the log")
        return False, [*tail, f"Error: zypper ended with {code} ({means}): " + "; ".join(said)]

    def _line(self, line: str) -> None:
        match = re.match(r"^\((\d+)/(\d+)\) (?:Installing|Removing):? (\S+)", line)
        if match:
            self.tell("install", match.group(3), 100 * int(match.group(1)) // int(match.group(2)))
            return
        match = re.match(r"^Retrieving(?: package|:) (\S+) .*\((\d+)/(\d+)\)", line)
        if match:
            self.tell("download", match.group(1), 100 * int(match.group(2)) // int(match.group(3)))

    def hold(self, names: Iterable[str]) -> None:
        self._lock("addlock", names)

    def unhold(self, names: Iterable[str]) -> None:
        self._lock("removelock", names)
        if os.path.exists(LOCKS) and not os.path.getsize(LOCKS):
            os.unlink(LOCKS)  # zypper leaves an empty file where there was none

    def _lock(self, what: str, names: Iterable[str]) -> None:
        names = sorted(names)
        if not names:
            return
        argv = ["zypper", "--non-interactive", "--no-refresh", what, "--type", "package", *names]
        code, text, error = process.output(argv, self.env)
        if code:
            raise HostFailure("GS-464", f"zypper {what} failed", ", ".join(names), (error or text).strip()[-800:])


def _our_repositories(folder: str) -> List[Dict[str, str]]:
    """Return the repositories that we wrote into a folder: name, key, and whether the list is signed."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.repo"))):
        text = files.read_text(path) or ""
        key = re.search(r"^gpgkey=file://(.+)$", text, re.MULTILINE)
        if text.startswith(_OURS) and key:
            signed = "yes" if "\nrepo_gpgcheck=1\n" in text else ""
            found.append({"name": os.path.basename(path)[: -len(".repo")], "key": key.group(1), "signed": signed})
    return found
