"""The host in memory answers as dpkg and apt themselves do: one table of cases, and each goes through both.

A case is a host, what is asked of it, whether that is done or refused, and what the host then has. A stand-in that takes
what the real programs refuse fails here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.apt import Apt
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

from tests.modules import real_deb
from tests.modules.deb_host import DebHost
from tests.modules.rpm_host import wish

DRIVERS = {
    "needs": {"driver=1": "gl (= 1)", "driver=2": "gl (= 2)"},
    "offered": {"driver": ["1", "2"], "gl": ["1", "2"], "gl:i386": ["1", "2"], "tool": ["5"]},
}
BOTH = {"driver": "1", "gl": "1", "gl:i386": "1", "doc": "1"}
TWO = {"driver": "2", "gl": "2"}
ONE = {"driver": "1", "gl": "1"}
RIVALS = {
    "offered": {"driver-580": ["2"]}, "conflicts": {"driver-580": "driver-570"}, "cached": {"driver-570": "1"},
}  # fmt: skip
OLD_THERE, NEW_THERE = {"driver-570": "1", "doc": "1"}, {"driver-580": "2", "doc": "1"}


def install(*words, remove=()):
    """Ask for packages, NAME[:ARCH][=VERSION]; what begins with / is the file that apt's cache has of it."""

    def ask(apt):
        wishes = []
        for word in words:
            (name, _colon, arch), version = word.partition("=")[0].strip("/").partition(":"), word.partition("=")[2]
            one = wish(name, version, arch)
            wishes.append({**one, "file": apt.archive(one)} if word.startswith("/") else one)
        return apt.transact(wishes, list(remove))

    return ask


def purge(*names):
    return lambda apt: apt.purge(list(names))


def hold(*names):
    return lambda apt: apt.hold(list(names))


def repair(apt):
    """Finish what is half done; nothing may go for it."""
    return (not apt.repair(sorted), [])


@dataclass
class Case:
    name: str
    ask: Callable[[Apt], Any]
    done: bool = True
    then: dict[str, str | None] = field(default_factory=dict)  # what is different, None: is gone
    held: tuple[str, ...] = ()
    installed: dict[str, str] = field(default_factory=lambda: dict(BOTH))
    host: dict[str, Any] = field(default_factory=dict)

    def stand_in(self):
        more = {"offered": DRIVERS["offered"], "needs": DRIVERS["needs"], "everywhere": {"doc"}, **self.host}
        return DebHost(dict(self.installed), **more)


CASES = [
    # holds
    Case("hold of both architectures", hold("gl", "gl:i386", "doc"), held=("doc", "gl", "gl:i386")),
    Case("hold of one of two", hold("gl"), held=("gl",)),
    Case("hold of the foreign one of two", hold("gl:i386"), held=("gl:i386",)),
    Case("hold of what is not there", hold("nothing", "gl:i386"), held=(), installed={"gl": "1"}),
    Case("release of one of two, and of one that is gone", lambda apt: apt.unhold(["gl", "nothing"]),
         held=("gl:i386",), host={"held": {"gl", "gl:i386"}}),
    # transactions
    Case("the newest", install("driver=2"), then=TWO, installed=ONE),
    Case("what is not offered", install("driver=3"), done=False),
    Case("what nobody knows", install("nothing"), done=False),
    Case("of two one is not offered", install("tool=5", "driver=3"), done=False),
    Case("what is there and no longer offered", install("doc=1")),
    Case("back, with all that stands together", install("driver=1", "gl=1"), then=ONE, installed=TWO),
    Case("back, without what it needs: apt takes the newest of that", install("driver=1"), done=False, installed=TWO),
    Case("install and remove in one", install("tool", remove=["driver", "gl", "nothing"]), done=False),
    Case("install and remove in one, both known", install("tool", remove=["driver", "doc"]),
         then={"tool": "5", "driver": None, "doc": None}),
    Case("a removal takes along what needs it", install(remove=["gl"]), then={"gl": None, "driver": None}),
    Case("purge takes along what needs it", purge("gl"), then={"gl": None, "driver": None}),
    Case("purge of the foreign one", purge("gl:i386"), then={"gl:i386": None}),
    Case("purge of what nobody knows", purge("driver", "nothing"), done=False),
    Case("purge of what is not there", purge("tool", "driver"), then={"driver": None}),
    Case("purge of what is held", purge("driver"), then={"driver": None}, host={"held": {"driver"}}),
    Case("purge below what is held", purge("gl"), then={"gl": None, "driver": None}, host={"held": {"driver"}}),
    Case("a held one moves, and is held no more", install("driver=2", "gl=2"), then=TWO, installed=ONE, host={"held": {"driver"}}),
    Case("a download alone", lambda apt: apt.download([wish("tool", "5")])),
    # what cannot be beside each other
    Case("the new one takes the place of the old", install("driver-580=2"),
         then={"driver-570": None, "driver-580": "2"}, installed=OLD_THERE, host=RIVALS),
    Case("the old one comes back by its version alone if somebody offers it", install("driver-570=1"),
         done=False, installed=NEW_THERE, host=RIVALS),
    Case("which a cache has", install("/driver-570=1"),
         installed=NEW_THERE, then={"driver-570": "1", "driver-580": None}, host=RIVALS),
    Case("both at once", install("/driver-570=1", "driver-580=2"), done=False, installed={"doc": "1"}, host=RIVALS),
    Case("a file of an older version, and of another architecture", install("/tool=1:4", "/gl:i386=1"),
         then={"tool": "1:4", "gl:i386": "1"}, installed={"tool": "1:5"}, host={"cached": {"tool": "1:4", "gl:i386": "1"}, "offered": {}}),
    # half done
    Case("dpkg was cut", install("tool"), done=False, host={"half": {"driver"}, "journal": True}),
    Case("dpkg was cut, and finished", repair, host={"half": {"driver"}, "journal": True}),
    Case("apt finishes what it can", install("tool"), then={"tool": "5"}, host={"half": {"driver"}}),
    Case("and nothing else before the rest is finished", install("tool"), done=False,
         installed={"driver": "1"}, host={"half": {"driver"}}),
    Case("finished by dpkg", repair, host={"half": {"driver"}}),
    Case("cut while it was unpacked", repair, installed={"tool": "5"}, host={"torn": {"tool"}}),
    Case("finished by what comes", repair, then={"gl": "1"}, installed={"driver": "1"}, host={"half": {"driver"}, "offered": {"gl": ["1"]}}),
    Case("finished by what would go, which may not", repair, done=False,
         installed={"driver": "1", "doc": "1"}, host={"half": {"driver"}, "offered": {"tool": ["5"]}}),
    Case("finished by what goes, which may", lambda apt: apt.repair(lambda _names: []), then={"driver": None},
         installed={"driver": "1", "doc": "1"}, host={"half": {"driver"}, "offered": {"tool": ["5"]}}),
]  # fmt: skip


def outcome(case):
    """Ask, and say whether it was done."""
    try:
        answer = case.ask(Apt())
    except HostFailure:
        return False
    return answer[0] if isinstance(answer, tuple) else True


def expected(case):
    there = {**case.installed, **case.then}
    return {name: version for name, version in there.items() if version is not None}, sorted(case.held)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestCase:
    def test_of_the_stand_in(self, case, monkeypatch, tmp_path):
        host = case.stand_in()
        host.stand_in(monkeypatch)
        host.lay_cache(tmp_path / "archives", monkeypatch)
        assert (outcome(case), host.seen) == (case.done, expected(case))

    @real_deb.NEEDED
    def test_of_the_real_programs(self, case, monkeypatch, tmp_path, shelf):
        host = real_deb.RealDeb(tmp_path, case.stand_in(), shelf)
        host.use(monkeypatch)
        assert (outcome(case), host.seen) == (case.done, expected(case))
