"""What a failed apply had changed comes back with its files; what a cut left open and nobody asks for is closed."""

import os
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    boot_arguments,
    lifecycle,
    process,
    transaction,
    undo,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.alternatives import Link
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.journal import Journal
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.machine import Machine
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.services import Unit

from tests.modules.cuts import Cut, Host, differences
from tests.modules.stand_ins import refused

PACKAGES = ("installed", "held", "record", "gpu", "finished", "digest")
"""What the transaction, or nobody, brings back after a failure."""


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path / "host", monkeypatch)


def seen(host):
    there = {key: value for key, value in host.snapshot().items() if key not in PACKAGES}
    there["tree"] = {name: what for name, what in there["tree"].items() if not name.startswith("opt/")}
    return there


@pytest.mark.parametrize("earlier", [(), ("apply",)], ids=["the first apply", "an update"])
def test_an_apply_that_fails_leaves_nothing_of_what_it_had_changed(host, monkeypatch, earlier):
    for command in earlier:
        assert host.run(command) is None
    before = seen(host)
    monkeypatch.setattr(lifecycle.Lifecycle, "finish", Mock(side_effect=Cut))
    assert isinstance(host.run("update" if earlier else "apply"), Cut)
    assert list(differences(before, seen(host), "")) != []
    with refused():
        host.run_packages(("nowhere", "1"))
    assert list(differences(before, seen(host), "")) == []
    assert [item for item in Ledger(host.state).state["open"] if not item.startswith("packages")] == []


def test_a_unit_that_packages_switched_off_is_as_before_the_apply_that_failed(host, monkeypatch):
    assert host.run("apply") is None
    before, packages = seen(host), host.memory.packages
    change = packages.stream

    def switches_off(*words, **named):
        installed = dict(packages.installed)
        answer = change(*words, **named)
        if packages.installed != installed:
            host.memory.enabled.discard("driver.service")
            host.memory.active.discard("driver.service")
        return answer

    monkeypatch.setattr(packages, "stream", switches_off)
    monkeypatch.setattr(transaction.dkms, "missing", lambda *_words: "it does not compile")
    assert isinstance(host.run("update"), HostFailure)
    assert list(differences(before, seen(host), "")) == []


def _opens(site, root):
    argument = boot_arguments.argument("silent=no", site.ledger, site.machine, [], site.env)
    return {
        "unit": (Unit("elsewhere.service", site.env), {"enabled": True, "active": True}),
        "link": (Link(str(root / "usr/local/other")), "cuda-11.8"),
        "kernel argument": (argument, argument.wanted()),
    }


@pytest.mark.parametrize("kind", ["unit", "link", "kernel argument"])
def test_what_nobody_asks_for_any_more_goes_when_an_apply_is_finished(host, kind):
    (host.root / "etc/systemd/system/elsewhere.service").write_text("")
    host.memory.read["elsewhere.service"] = b""
    site = undo.Site(Ledger(host.state), None, Machine(), process.environment())
    thing, wanted = _opens(site, host.root)[kind]
    before, make = thing.look(), thing.make

    def cut(wanted):
        make(wanted)
        raise Cut

    thing.make = cut
    with pytest.raises(Cut):
        site.ledger.change(thing, wanted)
    assert len(Ledger(host.state).state["open"]) == 1
    assert host.run("apply") is None
    assert Ledger(host.state).state["open"] == {}
    assert _opens(site, host.root)[kind][0].look() == before


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_file_that_a_cut_left_open_is_looked_at_when_an_apply_is_finished(host, cut):
    path = host.root / "etc/elsewhere/password"
    with pytest.MonkeyPatch.context() as patch:
        real = os.rename

        def rename(old, new):
            if new != str(path) or cut == "after":
                real(old, new)
            if new == str(path):
                raise Cut

        patch.setattr(os, "rename", rename)
        with pytest.raises(Cut):
            Ledger(host.state).write(str(path), "made once")
    assert len(Ledger(host.state).state["open"]) == 1
    assert host.run("apply") is None
    ledger = Ledger(host.state)
    assert ledger.state["open"] == {}
    assert path.exists() == (cut == "after") == (str(path) in ledger.state["files"])
    assert path.parent.exists() == (cut == "after")
    assert host.run("remove") is None
    assert not path.parent.exists()


def test_an_entry_says_what_was_to_become_of_the_thing(tmp_path):
    class Fails(Link):
        make = Mock()  # leaves the host as it was, so nothing stays open; one that is cut does

    journal, link = Journal(str(tmp_path)), Fails(str(tmp_path / "cuda"))
    with refused():
        journal.change(link, "cuda-12")
    assert journal.state["open"] == {}
    with refused("leads to nothing, not to cuda-12"), pytest.MonkeyPatch.context() as blind:
        blind.setattr(Fails, "look", Mock(side_effect=[None, None, HostFailure("GS-1", "nobody answers")]))
        journal.change(link, "cuda-12")
    Fails.make.side_effect = Cut
    with pytest.raises(Cut):
        journal.change(link, "cuda-12")
    (entry,) = Journal(str(tmp_path)).state["open"].values()
    assert entry["aim"] == "lead to cuda-12"


@pytest.mark.parametrize("trouble", [HostFailure("GS-465", "the second failure"), OSError(30, "the second failure")])
@pytest.mark.parametrize(
    ("where", "step"),
    [
        (transaction.package_state, "enable_streams"),
        (transaction.way_back, "restore"),
        (transaction.Transaction, "_left_over"),
        (transaction.services, "bring_up"),
        (transaction.Holds, "look"),
        (Link, "look"),
        (Ledger, "restore"),
    ],
)
def test_a_failure_on_the_way_back_is_noted_beside_the_first_and_ends_nothing_else(
    host, monkeypatch, where, step, trouble
):
    assert host.run("apply") is None
    monkeypatch.setattr(lifecycle.Lifecycle, "finish", Mock(side_effect=Cut))
    assert isinstance(host.run("update"), Cut)
    done, real = [], {name: getattr(transaction.Transaction, name) for name in ("_roll_back", "_give_up")}

    def breaks(self, *words):
        monkeypatch.setattr(where, step, Mock(side_effect=trouble))
        return real["_roll_back"](self, *words)

    def gives_up(self, *words):
        done.append("given up")
        return real["_give_up"](self, *words)

    monkeypatch.setattr(transaction.Transaction, "_roll_back", breaks)
    monkeypatch.setattr(transaction.Transaction, "_give_up", gives_up)
    monkeypatch.setattr(transaction.dkms, "missing", lambda *_words: "it does not compile")
    with refused("GS-456", "it does not compile", "the second failure"):
        host.run_packages(("driver", "1"))
    assert done == ["given up"]
