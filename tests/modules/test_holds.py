"""Holds are on record before they are made, and go when nobody asks for them."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.deb_host import DebHost
from tests.modules.test_transaction import site

__all__ = ["site"]


def test_holds_of_a_call_that_was_cut_are_ours(site, monkeypatch):
    host = DebHost({}, {"driver": ["1", "2"]})
    host.stand_in(monkeypatch)
    real = Ledger.save

    def cut(ledger):
        if host.held:
            raise KeyboardInterrupt
        real(ledger)

    monkeypatch.setattr(Ledger, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        site.transaction("apt", ("driver", "1"), hold=["driver"])
    assert host.held == {"driver"}
    monkeypatch.setattr(Ledger, "save", real)

    assert Ledger(str(site.folder)).unfinished() == ["holds of packages"]
    site.transaction("apt", ("driver", "1"), hold=["driver"])
    assert (site.state["holds"], site.state["open"]) == (["driver"], {})
    site.transaction("apt", ("driver", "2"), hold=["driver"])
    assert host.installed["driver"] == "2"
    site.transaction("apt")
    assert (host.held, site.state["holds"]) == (set(), [])


def test_the_list_for_automatic_upgrades_goes_when_nobody_asks_for_it(site, monkeypatch, tmp_path):
    host = DebHost({}, {"driver": ["1"]})
    host.stand_in(monkeypatch)
    path = tmp_path / "52gpusetup"
    monkeypatch.setattr(apt, "UNATTENDED_FILE", str(path))
    for block in (True, False):
        assert site.transaction("apt", ("driver", "1"), hold=["driver"], auto_upgrades_block=block)["changed"]
        assert path.exists() is block
