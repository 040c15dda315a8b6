"""A host in memory that answers the command lines of rpm, dnf 4 and dnf 5."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import dnf, process

from tests.modules.stand_ins import replace

NOTHING = (0, "", "")


def wish(name: str, version: str = "", arch: str = "") -> dict[str, str]:
    return {"name": name, "version": version, "arch": arch}


@dataclass
class RpmHost:
    """A host with rpm and dnf. `fails`: what the transaction does not do although the plan has it."""

    installed: dict[str, str]
    offered: dict[str, list[str]]
    generation: int = 4
    plugin: bool = True
    uninstallable: set[str] = field(default_factory=set)
    obsoletes: dict[str, str] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    locked: list[str] = field(default_factory=list)
    said: list[list[str]] = field(default_factory=list)
    breaks_off: int = 0
    fresh: bool = False  # whether its lists were fetched, and the keys of repositories accepted
    enabled: dict[str, str] = field(default_factory=dict)  # the stream of each module

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replace(monkeypatch, process, output=self.output, stream=self.stream, which="/usr/bin/{}".format)
        replace(monkeypatch, dnf.probe_packages, versionlocks=lambda _host: sorted(self.locked))
        replace(monkeypatch, dnf.Dnf, enabled_stream=lambda _self, module: self.enabled.get(module))
        replace(monkeypatch, dnf.Dnf, architecture=lambda _self: "x86_64")

    @property
    def seen(self) -> tuple[dict[str, str], list[str]]:
        return self.installed, self.locked

    def output(self, argv: Sequence[str], _env: Any, *_more: Any, **_named: Any) -> tuple[int, str, str]:
        words = list(argv)
        self.said.append(words)
        if words[:2] == ["rpm", "-qa"]:
            return 0, "".join(f"{name}\t{version}\tx86_64\n" for name, version in self.installed.items()), ""
        if words[0] == "rpm":
            return (0 if self.plugin else 1), "", ""
        if "--version" in words:
            return 0, "dnf5 version 5.4.6.0\n" if self.generation == 5 else "4.14.0\n", ""
        if "versionlock" in words:
            return self._versionlock(words)
        if "module" in words:
            return self._module(words)
        if "repoquery" in words:
            return 0, self._repoquery(words), ""
        if "--assumeno" in words:
            plan, skipped = self._plan(words)
            return (1 if plan else self._code(words, int(bool(skipped)))), self._table(plan, skipped), ""
        return NOTHING

    def stream(self, argv: Sequence[str], _env: Any, *_more: Any, **_named: Any) -> tuple[int, list[str]]:
        words = list(argv)
        self.said.append(words)
        if "makecache" in words or "--downloadonly" in words:
            self.fresh = True
            return 0, []
        if self.breaks_off:
            self.breaks_off -= 1
            return self._code(words, 1), [
                "Error: Error downloading packages:",
                "  Curl error (18): Transferred a partial file",
            ]
        plan, skipped = self._plan(words)
        for name, version in plan.items():
            if name in self.fails:
                continue
            if version:
                self.installed[name] = version
                self.installed.pop(self.obsoletes.get(name, ""), None)
            else:
                self.installed.pop(name, None)
        self.plugin = self.plugin or "python3-dnf-plugin-versionlock" in self.installed
        failed = bool(skipped) or bool(self.fails & set(plan))
        return self._code(words, int(failed)), ["Error: Transaction failed"] if failed else ["Complete!"]

    def _code(self, words: list[str], code: int) -> int:
        return 0 if "shell" in words else code  # whatever happens

    def _versionlock(self, words: list[str]) -> tuple[int, str, str]:
        if self.generation == 4 and not self.plugin:
            return 1, "", "No such command: versionlock. Please use /usr/bin/dnf --help\n"
        if words[-1] == "--help":
            return 0, "usage: dnf versionlock\n", ""
        assert "--disablerepo=*" in words
        what, names = words[words.index("versionlock") + 1], words[words.index("versionlock") + 2 :]
        self.locked = [name for name in self.locked if name not in names] + (names if what == "add" else [])
        return NOTHING

    def _module(self, words: list[str]) -> tuple[int, str, str]:
        what, (module, _, stream) = words[-2], words[-1].partition(":")
        self.enabled = {name: one for name, one in self.enabled.items() if name != module}
        self.enabled |= {module: stream} if what == "enable" else {}
        return NOTHING

    def _repoquery(self, words: list[str]) -> str:
        if "--whatprovides" in words:
            offered = "python3-dnf-plugin-versionlock" in self.offered
            return "python3-dnf-plugin-versionlock\n" * offered if self.fresh else "Is this ok [y/N]: \n"
        names = words[words.index("--qf") + 2 :]
        rows = [(name, version) for name in names for version in self.offered.get(name, [])]
        return "".join(f"{name}\t{version}\tx86_64\tcuda\t1000\tsummary\n" for name, version in rows)

    def _asked(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Return what a command line is to install and to take away."""
        if "shell" in words:
            lines = dict(line.partition(" ")[::2] for line in Path(words[-1]).read_text().splitlines())
            return lines["install"].split(), lines["remove"].split()
        if "do" in words:
            at, gone = words.index("--action=install"), words.index("--action=remove")
            assert words.index("--allowerasing") > words.index("do")
            return words[at + 1 : gone], words[gone + 1 :]
        if "remove" in words:
            return [], [word for word in words[words.index("remove") + 1 :] if not word.startswith("-")]
        return [word for word in words[words.index("install") + 1 :] if not word.startswith("-")], []

    def _plan(self, words: list[str]) -> tuple[dict[str, str | None], list[str]]:
        """Return {name: version, None when it goes}, and what dnf leaves out."""
        install, remove = self._asked(words)
        plan: dict[str, str | None] = {}
        skipped = []
        lacking = False
        for word in install:
            names = (name for name in self.offered if re.match(rf"{re.escape(name)}(-|$)", word))
            name = max(names, key=len, default="")
            text = word[len(name) + 1 :]
            fitting = [one for one in self.offered.get(name, []) if not text or one in (text, "0:" + text)]
            if not fitting:
                skipped.append(word)
            elif name in self.uninstallable:
                skipped.append(name)
                lacking = True
            elif self.installed.get(name) != fitting[-1]:
                plan[name] = fitting[-1]
        if lacking or (skipped and "shell" not in words):
            return {}, skipped  # where something is lacking dnf 4's script does nothing at all
        plan.update(dict.fromkeys((name for name in remove if name in self.installed), None))
        return plan, skipped

    def _table(self, plan: dict[str, str | None], skipped: list[str]) -> str:
        lines = [f"  - nothing provides what is needed by {name}" for name in skipped]
        for heading, rows in (
            ("Installing:", [(name, new) for name, new in plan.items() if new and name not in self.installed]),
            ("Upgrading:", [(name, new) for name, new in plan.items() if new and name in self.installed]),
            ("Removing:", [(name, self.installed[name]) for name, new in plan.items() if new is None]),
        ):
            lines += [heading] * bool(rows)
            for name, version in rows:
                lines.append(f" {name}  x86_64  {version}  cuda  1.0 k")
                gone = self.obsoletes.get(name)
                if gone in self.installed:
                    lines.append(f"     replacing  {gone}.x86_64 {self.installed[gone]}")
        return "\n".join([*lines, "", "Transaction Summary", "Operation aborted.", ""])
