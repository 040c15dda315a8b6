"""The hosts in memory answer as dnf 4, zypper and rpm themselves do; both come to the same where they are asked the same."""

from dataclasses import dataclass, field

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import planning
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.dnf import Dnf
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.zypper import Zypper

from tests.modules import real_rpm
from tests.modules.rpm_host import RpmHost, wish
from tests.modules.zypper_host import ZypperHost

OFFERED = {"driver": ["0:1-1", "0:2-1"], "cuda": ["0:12-1"], "broken": ["0:1-1"]}
THERE = {"driver": "0:1-1", "old": "0:9-1"}


@dataclass
class Case:
    name: str
    install: list[dict[str, str]]
    remove: list[str] = field(default_factory=list)
    planned: bool = True
    """Whether a plan leads to all that was asked for."""
    then: dict[str, str | None] = field(default_factory=dict)
    """What is different after the transaction, planned or not; None: is gone."""
    installed: dict[str, str] = field(default_factory=lambda: dict(THERE))
    by: tuple[type[RpmHost], ...] = (RpmHost, ZypperHost)
    """Who does this."""
    locked: tuple[str, ...] = ()

    def stand_in(self, kind=RpmHost):
        offered = {name: list(several) for name, several in OFFERED.items()}
        return kind(dict(self.installed), offered, uninstallable={"broken"})

    def expected(self):
        return {name: version for name, version in {**self.installed, **self.then}.items() if version is not None}


CASES = [
    Case("the newest of what is not there", [wish("driver")], then={"driver": "0:2-1"}, installed={"old": "0:9-1"}),
    Case("the newest of what is there", [wish("driver")], then={"driver": "0:2-1"}),
    Case("an exact version", [wish("driver", "0:2-1")], then={"driver": "0:2-1"}),
    Case("back", [wish("driver", "0:1-1")], then={"driver": "0:1-1"}, installed={"driver": "0:2-1"}),
    Case("what is there already", [wish("driver", "0:1-1")]),
    Case("a version that nobody offers", [wish("driver", "0:3-1")], planned=False),
    Case("a name that nobody knows", [wish("nothing")], planned=False),
    Case("of two one is not offered", [wish("cuda"), wish("driver", "0:3-1")], planned=False),
    Case("what lacks something", [wish("broken")], planned=False),
    Case("of two one lacks something", [wish("cuda"), wish("broken")], planned=False),
    Case("install and remove in one", [wish("cuda")], ["old"], then={"cuda": "0:12-1", "old": None}),
    Case("a removal alone", [], ["old"], then={"old": None}),
    # in one script of dnf 4: what is offered is done all the same; where one lacks something nothing is
    Case("a script of which one is not offered", [wish("cuda"), wish("driver", "0:3-1")], ["old"], planned=False,
         then={"cuda": "0:12-1", "old": None}, by=(RpmHost,)),
    Case("a script whose one lacks something", [wish("broken")], ["old"], planned=False, by=(RpmHost,)),
    Case("a script of which one lacks something", [wish("cuda"), wish("broken")], ["old"], planned=False, by=(RpmHost,)),
    Case("what is locked", [wish("driver", "0:2-1"), wish("cuda")], locked=("driver",), by=(ZypperHost,)),
    Case("what is locked goes", [wish("cuda")], ["driver"], locked=("driver",), by=(ZypperHost,)),
    Case("beside what is locked", [wish("cuda")], ["old"], then={"cuda": "0:12-1", "old": None}, locked=("driver",), by=(ZypperHost,)),
]  # fmt: skip
DONE_BY = [
    pytest.param(case, kind, tool, id=f"{tool.name}: {case.name}")
    for case in CASES
    for kind, tool in ((RpmHost, Dnf), (ZypperHost, Zypper))
    if kind in case.by
]


def outcome(case, host):
    """Plan it and do it; say whether the plan led to all of it."""
    before = host.installed()
    host.hold(case.locked)
    try:
        planning.plan_for(host, case.install, case.remove, before)
        planned = True
    except HostFailure:
        planned = False
    host.transact(case.install, case.remove)
    return planned


@pytest.mark.parametrize(("case", "kind", "tool"), DONE_BY)
def test_of_the_stand_in(case, kind, tool, monkeypatch):
    host = case.stand_in(kind)
    host.stand_in(monkeypatch)
    assert (outcome(case, tool()), host.installed) == (case.planned, case.expected())


@real_rpm.NEEDED
@pytest.mark.parametrize(("case", "kind", "tool"), DONE_BY)
def test_of_the_program(case, kind, tool, monkeypatch, tmp_path):
    host = real_rpm.RealRpm(tmp_path, case.stand_in())
    host.use(monkeypatch)
    program = tool()
    assert kind is RpmHost or program.refresh() == []
    assert (outcome(case, program), host.seen) == (case.planned, case.expected())
