"""A host in memory that answers the command lines of dpkg and apt; test_stand_in_deb.py compares it with the real ones."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, process

from tests.modules.stand_ins import replace

NOTHING = (0, "", "")
_BESIDE = "-"  # no version: what cannot be beside a package


@dataclass(frozen=True)
class Deb:
    """A package without files: "needs" and "conflicts" are dpkg's own words."""

    name: str
    version: str
    arch: str = ""  # the host's own, where it says none
    needs: str = ""
    conflicts: str = ""
    fails: bool = False

    def control(self, native: str) -> str:
        same = "" if self.arch == "all" else "Multi-Arch: same\n"
        asked = {"Depends": self.needs, "Conflicts": self.conflicts}
        more = "".join(f"{field}: {words}\n" for field, words in asked.items() if words)
        return (
            f"Package: {self.name}\nVersion: {self.version}\nArchitecture: {self.arch or native}\n"
            f"Maintainer: x <x@x.invalid>\n{same}{more}Description: x\n"
        )


@dataclass
class DebHost:
    """A host with dpkg and apt. `interrupt` is called once inside the transaction, after half of it.

    A package is called NAME, or NAME:ARCH where its architecture is a foreign one. `needs` and `conflicts` say, by name,
    what each package needs (NAME, or "NAME (= VERSION)") and what it cannot be beside. What is in `everywhere` is of no
    architecture. What is `cached` was fetched once, in that version.
    """

    installed: dict[str, str]
    offered: dict[str, list[str]]
    held: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)  # cut while it was unpacked
    interrupt: Callable[[], int] | None = None
    fails: set[str] = field(default_factory=set)
    said: list[list[str]] = field(default_factory=list)
    breaks_off: int = 0
    journal: bool = False  # whether dpkg itself was cut
    needs: dict[str, str] = field(default_factory=dict)
    conflicts: dict[str, str] = field(default_factory=dict)
    everywhere: set[str] = field(default_factory=set)
    cached: dict[str, str] = field(default_factory=dict)
    native: str = "amd64"

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replace(monkeypatch, process, output=self.output, stream=self.stream, which="/usr/bin/{}".format)

    def package(self, key: str, version: str) -> Deb:
        name, _colon, arch = key.partition(":")
        arch = "all" if name in self.everywhere else arch
        needs, conflicts = (told.get(f"{name}={version}", told.get(name, "")) for told in (self.needs, self.conflicts))
        return Deb(name, version, arch, needs, conflicts, key in self.fails and self.installed.get(key) != version)

    def file(self, key: str) -> str:
        """Return how apt's cache calls what is there."""
        name, _colon, arch = self.whole(key).partition(":")
        return f"{name}_{self.cached[key].replace(':', '%3a')}_{arch}.deb"

    def lay_cache(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let apt's cache be a folder with the names of what was fetched once."""
        folder.mkdir()
        for key in self.cached:
            (folder / self.file(key)).touch()
        monkeypatch.setattr(apt.Apt, "caches", (str(folder),))

    def whole(self, key: str) -> str:
        """Return dpkg's own name of what is installed."""
        name, _colon, arch = key.partition(":")
        return f"{name}:{'all' if name in self.everywhere else arch or self.native}"

    def _key(self, word: str) -> str:
        """Return how a package set lists what a command line names."""
        return word.removesuffix(":" + self.native)

    @property
    def seen(self) -> tuple[dict[str, str], list[str]]:
        return dict(self.installed), sorted(self.held & set(self.installed))

    def output(self, argv: Sequence[str], _env: Any, _seconds: Any = 0, text: str = "") -> tuple[int, str, str]:
        words = list(argv)
        self.said.append(words)
        if words[0] == "dpkg-query":
            rows = []
            for key, version in self.installed.items():
                state = "ih"[key in self.held] + ("HR" if key in self.torn else "U " if key in self.half else "i ")
                rows.append("\t".join([state, *self.whole(key).split(":"), version]) + "\n")
            return 0, "".join(rows), ""
        if words == ["dpkg", "--print-architecture"]:
            return 0, self.native + "\n", ""
        if words == ["dpkg", "--set-selections"]:
            return self._selections(text or "")
        if "madison" in words:
            rows = [f"{name} | {one} | http://x" for name in words for one in self.offered.get(name, [])]
            return 0, "\n".join(rows), ""
        if "--print-uris" in words:
            answer = self._plan(words)
            return (100, "", answer) if isinstance(answer, str) else (0, self._said(answer), "")
        return NOTHING

    def _selections(self, text: str) -> tuple[int, str, str]:
        """Like dpkg: all or nothing where a name is not clear, and a warning for what it does not know."""
        chosen: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            word, state = line.split()
            fitting = [key for key in self.installed if word in (self.whole(key), key.partition(":")[0])]
            if len(fitting) > 1:
                return 2, "", f"dpkg: error: illegal package name at line {number}: ambiguous package name '{word}'\n"
            chosen.update(dict.fromkeys(fitting, state))
        for key, state in chosen.items():
            self.held = self.held | {key} if state == "hold" else self.held - {key}
        return NOTHING

    def stream(self, argv: Sequence[str], _env: Any, *_more: Any, **_named: Any) -> tuple[int, list[str]]:
        words = list(argv)
        self.said.append(words)
        if words[0] == "dpkg":
            self.journal, self.half = False, self._broken(self.installed)
            return (1, ["dpkg: error processing package"]) if self.half else (0, [])
        if "install" not in words and "purge" not in words:
            return 0, []
        if self.journal:
            return 100, ["E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem."]
        if self.breaks_off:
            self.breaks_off -= 1
            return 100, ["E: Failed to fetch http://x/a.deb  Error reading from server. Remote end closed connection"]
        plan = self._plan(words)
        if isinstance(plan, str):
            return 100, plan.splitlines()
        if "--download-only" in words:
            return 0, []
        self.half = self._broken(plan)
        self.torn -= {self._key(word) for word in words} if "--reinstall" in words else set()
        coming = {key: version for key, version in plan.items() if self.installed.get(key) != version}
        for number, (key, version) in enumerate(coming.items()):
            if key in self.fails:
                continue
            self.installed[key] = version
            self.held -= {key}  # whoever is allowed to move what is held takes the hold away
            if self.interrupt and number == len(coming) // 2:
                self.half, self.journal, interrupt, self.interrupt = {key}, True, self.interrupt, None
                return interrupt(), ["E: Sub-process /usr/bin/dpkg exited unexpectedly"]
        for key in set(self.installed) - set(plan):
            del self.installed[key]
        self.held &= set(self.installed)
        return 0, []

    def _broken(self, plan: dict[str, str]) -> set[str]:
        """Return what of the half done a set of packages does not let finish."""
        return {key for key in self.half & set(plan) if self._lacking(key, plan[key], plan)}

    def _plan(self, words: list[str]) -> dict[str, str] | str:
        """Return the packages that a command line leads to, or why apt will not."""
        verb = "purge" if "purge" in words else "install"
        if self._broken(self.installed) and "--fix-broken" not in words:
            return "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages (or specify a solution)."
        wanted: dict[str, str] = {}
        gone: set[str] = set()
        for word in words[words.index(verb) + 1 :]:
            key, _equals, version = self._of_file(word) if word.startswith("/") else word.partition("=")
            away = verb == "purge" or (key.endswith("-") and key not in self.offered)
            key = self._key(key.removesuffix("-") if away else key)
            file = word.startswith("/")
            if key not in self.installed and key not in self.offered and not file:
                return f"E: Unable to locate package {key}"
            known = [*self.offered.get(key, []), *([self.installed[key]] if key in self.installed else [])]
            if version and version not in known and not file:
                return f"E: Version '{version}' for '{key}' was not found"
            if away:
                gone.add(key)
            else:
                wanted[key] = version or self._candidate(key)
        plan = {key: version for key, version in self.installed.items() if key not in gone} | wanted
        while True:
            lacking = ((key, need) for key, version in plan.items() for need in self._lacking(key, version, plan))
            key, (other, version) = next(lacking, ("", ("", "")))
            if not key:
                break
            newest = self._candidate(other)
            if version == _BESIDE and not (key in wanted and other in wanted):
                del plan[other if key in wanted else key]
            elif newest and other not in gone and other not in wanted and version in ("", newest):
                plan[other] = wanted[other] = newest
            elif key in wanted:
                return f"The following packages have unmet dependencies:\n {key} : Depends: {other}\nE: Unable to correct problems"
            else:
                del plan[key]
        moved = [key for key in self.held if plan.get(key) != self.installed.get(key)]
        if moved and "--allow-change-held-packages" not in words:
            return "E: Held packages were changed and -y was used without --allow-change-held-packages."
        back = [key for key, version in plan.items() if self._older(version, self.installed.get(key, ""))]
        if back and "--allow-downgrades" not in words:
            return "E: Packages were downgraded and -y was used without --allow-downgrades."
        return plan

    def _of_file(self, path: str) -> tuple[str, str, str]:
        name, version, arch = path.rpartition("/")[2].removesuffix(".deb").split("_")
        key = name if arch in ("all", self.native) else f"{name}:{arch}"
        return key, "=", version.replace("%3a", ":")

    def _candidate(self, key: str) -> str:
        versions = [*self.offered.get(key, []), *([self.installed[key]] if key in self.installed else [])]
        return max(versions, key=_numbers, default="")

    def _older(self, one: str, other: str) -> bool:
        return bool(other) and _numbers(one) < _numbers(other)

    def _lacking(self, key: str, version: str, plan: dict[str, str]) -> list[tuple[str, str]]:
        """Return what a package needs and a plan does not have; what it cannot be beside is a need of the other's."""
        package = self.package(key, version)
        arch = ":" + package.arch if package.arch not in ("", "all") else ""
        found = []
        for need in filter(None, package.needs.split(", ")):
            name, _space, exactly = need.partition(" ")
            exactly = exactly.strip("(=) ")
            there = plan.get(name + arch, plan.get(name) if name in self.everywhere else None)
            if there is None or (exactly and there != exactly):
                found.append((name if name in self.everywhere else name + arch, exactly))
        bare = key.partition(":")[0]
        for other, there in plan.items():
            same = other.partition(":")[0] == bare and there != version  # architectures of one package move together
            if other != key and (same or bare in self.package(other, there).conflicts.split(", ")):
                found.append((other, _BESIDE))
        return found

    def _said(self, plan: dict[str, str]) -> str:
        gone = [key for key in self.installed if key not in plan]
        new = [f"   {key} ({version})" for key, version in plan.items() if key not in self.installed]
        moved = [key for key, version in plan.items() if key in self.installed and self.installed[key] != version]
        down = [key for key in moved if self._older(plan[key], self.installed[key])]
        up = [key for key in moved if key not in down]
        lines = ["The following packages will be REMOVED:", *[f"   {key}* (1)" for key in gone]] if gone else []
        lines += ["The following NEW packages will be installed:", *new] if new else []
        for title, keys in (("upgraded", up), ("DOWNGRADED", down)):
            rows = [f"   {key} ({self.installed[key]} => {plan[key]})" for key in keys]
            lines += [f"The following packages will be {title}:", *rows] if rows else []
        downs = f"{len(down)} downgraded, " if down else ""
        counts = f"{len(up)} upgraded, {len(new)} newly installed, {downs}{len(gone)} to remove and 0 not upgraded."
        return "\n".join([*lines, counts, ""])


def _numbers(version: str) -> list[int]:
    return [int(piece) for piece in re.findall(r"\d+", version)]
