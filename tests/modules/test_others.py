"""What others do to a host between two runs: drift names it, the same apply mends it or says why not, nothing is lost."""

import hashlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import record
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

from tests.modules import cuts
from tests.modules.stand_ins import replace, write

UNIT, DAEMON, CHOSEN = "etc/systemd/system/ours.service", "etc/docker/daemon.json", "/usr/local/cuda-13.0"
THEIRS, SOURCE, MIG = "srv/theirs", "etc/apt/sources.list.d/theirs.list", "usr/local/lib/gpusetup/mig"


class Host(cuts.Host):
    """A host that an apply compares with its record."""

    def _deviations(self, *_words):
        state = record.read(LiveHost(), self.state + "/state.json")
        units = [unit for unit in state["services"] if unit in cuts._PACKAGED or (self.root / UNIT).exists()]
        states = {unit: "enabled" if unit in self.memory.enabled else "disabled" for unit in units}
        facts = {
            "packages": {"installed": self.memory.packages.seen[0], "held": self.memory.packages.seen[1], "problems": []},
            "services": {unit: {"unit": unit, "enabled": states[unit], "active": "active"} for unit in units},
            "pythons": [{"path": f"{self.root}/opt/gpusetup/bin/python", "packages": {}}], "boot": {}, "containers": {},
        }  # fmt: skip
        found = drift.differences(facts, {**state, "mig": {}})
        return [item.id.replace(f"{self.root}/", "") for item in found]

    def lead(self, path, target, text=None):
        """Put a link in the place of a file; what it leads to has that file's content, or this one."""
        there = self.root / path
        write(self.root, {target: there.read_text() if text is None else text})
        if target == "srv/socket":
            (self.root / target).unlink()
            os.mknod(self.root / target, stat.S_IFSOCK | 0o644)
        there.unlink()
        there.symlink_to(self.root / target)


class Act(NamedTuple):
    do: Callable
    drift: str
    stays: Callable = lambda _host: True
    lasts: bool = True
    """Whether an apply respects it, too."""


def move_away(host):
    (host.root / MIG).rename(host.root / "opt/moved")
    (host.root / MIG).symlink_to(host.root / "opt/moved")


ACTS = {
    "our file edited": Act(lambda host: (host.root / UNIT).write_text("# Written by gpusetup\nfirst\nmine\n"),
                           "file-" + UNIT, lambda host: "mine" in next(host.root.rglob("*-saved")).read_text(), lasts=False),
    "our file opened": Act(lambda host: (host.root / UNIT).chmod(0o666), "file-" + UNIT),
    "our file linked": Act(lambda host: host.lead(UNIT, THEIRS), "", lambda host: (host.root / THEIRS).exists()),
    "our file theirs": Act(lambda host: host.lead(UNIT, THEIRS, "mine\n"), "file-" + UNIT,
                           lambda host: (host.root / THEIRS).read_text() == "mine\n"),
    "our file a socket": Act(lambda host: host.lead(UNIT, "srv/socket"), "file-" + UNIT,
                            lambda host: (host.root / "srv/socket").stat().st_mode == stat.S_IFSOCK | 0o644),
    "our folder moved": Act(move_away, ""),
    "their file closed": Act(lambda host: (host.root / DAEMON).chmod(0o600), "",
                             lambda host: (host.root / DAEMON).stat().st_mode & 0o777 == 0o600),
    "their source again": Act(lambda host: (host.root / SOURCE).write_text("deb mine\n"), "file-" + SOURCE,
                              lambda host: (host.root / SOURCE).read_text() == "deb mine\n"),
    "another alternative": Act(lambda host: setattr(host.memory, "chosen", CHOSEN), "",
                               lambda host: host.memory.chosen == CHOSEN, lasts=False),
}  # fmt: skip


@pytest.mark.parametrize("order", [("remove",), ("apply", "remove"), ("update", "remove")], ids=" ".join)
@pytest.mark.parametrize("name", ACTS)
def test_what_others_did_is_named_and_not_lost(tmp_path, monkeypatch, name, order):
    host, act = Host(tmp_path / "host", monkeypatch), ACTS[name]
    assert (host.run("apply"), host._deviations()) == (None, [])
    act.do(host)
    assert host._deviations() == ([act.drift] if act.drift else [])
    for command in order:
        assert host.run(command) is None
        assert command == "remove" or host._deviations() == []
    assert not (act.lasts or len(order) == 1) or act.stays(host)


@pytest.mark.parametrize(("theirs", "left"), [({"cuda": "12"}, "11"), ({"cuda": "13"}, "13"), ({}, None)])
def test_a_package_that_others_moved_or_removed_after_us_stays_so(tmp_path, monkeypatch, theirs, left):
    host = Host(tmp_path / "host", monkeypatch)
    packages = host.memory.packages
    packages.installed["cuda"], packages.offered["cuda"] = "11", ["11", "12", "13"]
    assert (host.run("apply"), packages.installed["cuda"]) == (None, "12")
    del packages.installed["cuda"]
    packages.installed.update(theirs)
    assert (host.run("remove"), packages.installed.get("cuda")) == (None, left)


def test_the_settings_of_a_package_that_somebody_edited_are_named_before_a_purge(tmp_path, monkeypatch):
    digest = hashlib.md5(b"theirs", usedforsecurity=False).hexdigest()
    write(tmp_path, {"edited": "mine", "same": "theirs"})
    listed = "".join(f"\n {tmp_path}/{name} {digest}" for name in ("edited", "same", "gone"))
    real = process.output
    replace(monkeypatch, process, output=lambda argv, env: (0, listed, "") if argv[0] != "md5sum" else real(argv, env))
    assert apt.Apt().edited_settings(["cuda"]) == [f"{tmp_path}/edited"]
