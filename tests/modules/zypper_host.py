"""A host in memory that answers the command lines of zypper, with --xmlout and without."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import zypper
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge.versions import bare

from tests.modules.rpm_host import NOTHING, RpmHost
from tests.modules.stand_ins import replace


class ZypperHost(RpmHost):
    """A host with rpm and zypper: one that offers less than it is asked for changes nothing, nor does one with a lock."""

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().stand_in(monkeypatch)
        replace(monkeypatch, zypper.probe_packages, zypper_locks=lambda *_words: sorted(self.locked))
        replace(monkeypatch, zypper, LOCKS="/nonexistent/locks")
        replace(monkeypatch, zypper.Zypper, architecture=lambda _self: "x86_64")

    def output(self, argv: Sequence[str], env: Any, *more: Any, **named: Any) -> tuple[int, str, str]:
        words = list(argv)
        if words[0] != "zypper":
            return super().output(argv, env, *more, **named)
        self.said.append(words)
        if "search" in words:
            return self._search(words[words.index("--match-exact") + 1 :])
        if "addlock" in words or "removelock" in words:
            names = words[words.index("package") + 1 :]
            self.locked = [name for name in self.locked if name not in names] + names * ("addlock" in words)
            return NOTHING
        return self._change(words, env) if "install" in words or "remove" in words else NOTHING

    def stream(self, argv: Sequence[str], env: Any, *_more: Any, **_named: Any) -> tuple[int, list[str]]:
        if self.breaks_off:
            self.breaks_off -= 1
            return 8, ["Download (curl) error for 'http://x/y':", "Problem occurred during or after installation"]
        code, text, _error = self.output(argv, env)
        return code, text.splitlines()

    def _search(self, names: list[str]) -> tuple[int, str, str]:
        rows = [(name, version) for name in names for version in reversed(self.offered.get(name, []))]
        lines = [
            f'<solvable name="{name}" kind="package" edition="{bare(version)}" arch="x86_64" repository="x"/>'
            for name, version in rows
        ]
        return 0 if rows else 104, "\n".join(["<stream>", *lines, "</stream>"]), ""

    def _change(self, words: list[str], env: dict[str, str]) -> tuple[int, str, str]:
        locks = "ZYPP_CONF" not in env or "locksfile.apply = no" not in Path(env["ZYPP_CONF"]).read_text()
        at = words.index("install" if "install" in words else "remove")
        asked = [word for word in words[at + 1 :] if not word.startswith("-")]
        plan: dict[str, str | None] = {}
        for word in asked:
            name, _equals, version = word.lstrip("!").partition("=")
            if word.startswith("!") or words[at] == "remove":
                plan.update({name: None} if bare(self.installed.get(name, "")) == version else {})
                continue
            fitting = [one for one in self.offered.get(name, []) if version in ("", bare(one))]
            if not fitting and self.installed.get(name, "") not in (version, f"0:{version}"):
                return 104, f"<message type=\"error\">No provider of '{word}' found.</message>", ""
            if fitting and self.installed.get(name) != fitting[-1]:
                plan[name] = fitting[-1]
        wrong = [f"nothing provides what is needed by {name}" for name in plan if name in self.uninstallable]
        wrong += ["conflicting requests" for name in plan if locks and name in self.locked]
        if wrong:
            return 4, f"<description>Problem: {wrong[0]}\n Solution 1: x</description>", ""
        if "--dry-run" not in words and "--download-only" not in words:
            self._do(plan)
            return (8, "Installation failed:", "") if self.fails & set(plan) else NOTHING
        return 0, self._summary(plan), ""

    def _do(self, plan: dict[str, str | None]) -> None:
        for name, version in plan.items():
            if name not in self.fails:
                self.installed.pop(name, None)
                self.installed.update({name: version} if version else {})

    def _summary(self, plan: dict[str, str | None]) -> str:
        lines = [f'<install-summary download-size="0" space-usage-diff="0" packages-to-change="{len(plan)}">']
        for name, version in plan.items():
            there = self.installed.get(name, "")
            newer = version and self.offered[name][-1] == version
            kind = "remove" if not version else "install" if not there else "upgrade" if newer else "downgrade"
            old = f' edition-old="{bare(there)}"' * (kind in {"upgrade", "downgrade"})
            row = f'name="{name}" edition="{bare(version or there)}" arch="x86_64"{old}'
            lines.append(f'<to-{kind}>\n<solvable type="package" {row}/>\n</to-{kind}>')
        return "\n".join([*lines, "</install-summary>"])
