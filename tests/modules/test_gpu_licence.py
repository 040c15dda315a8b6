"""A vGPU's licence on the host: the daemon's settings, and the way back when none is granted."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_licence

from tests.modules.stand_ins import refused, replace, write


@pytest.fixture
def places(monkeypatch, tmp_path):
    """The token, the settings, and the settings at each restart."""
    token, conf, restarts = tmp_path / "etc/ClientConfigToken/ours.tok", tmp_path / "etc/gridd.conf", []
    replace(monkeypatch, gpu_licence, TOKEN=str(token), SETTINGS=str(conf))
    restart = {"restart": lambda *_words: restarts.append(conf.read_text())}
    replace(monkeypatch, gpu_licence.systemd, active_since=lambda *_words: 0.0, **restart)
    write(tmp_path, {"etc/gridd.conf": "# of the site\n"})
    return token, conf, restarts


def test_what_was_there_is_back_when_no_licence_is_granted(monkeypatch, ledger, places):
    token, conf, restarts = places
    monkeypatch.setattr(gpu_licence, "state", lambda _env: ["Unlicensed (Unrestricted)"])
    monkeypatch.setattr(gpu_licence.systemd, "last_words", lambda _unit, _env: "server refused")
    ledger.state["apply"] = {"id": "first"}
    assert gpu_licence.write(ledger, "secret-of-the-site", 2)
    assert token.stat().st_mode & 0o777 == 0o600
    with refused("the licence server granted no licence", "the former token and settings are back"):
        gpu_licence.license_now(ledger, {}, 0)
    assert (token.exists(), conf.read_text()) == (False, "# of the site\n")
    assert restarts == ["# of the site\nFeatureType=2\n", "# of the site\n"]
    assert "secret" not in str(ledger.diffs)


def test_a_licence_that_is_given_up_leaves_what_was_there_before(ledger, places):
    token, conf, restarts = places
    gpu_licence.write(ledger, "secret-of-the-site", 2)
    assert gpu_licence.give_up(Ledger(ledger.folder, check=True), {}, start=False)
    assert token.exists()
    again = Ledger(ledger.folder)
    assert gpu_licence.give_up(again, {}, start=True)
    assert (token.exists(), conf.read_text(), restarts) == (False, "# of the site\n", ["# of the site\n"])
    assert not gpu_licence.give_up(again, {}, start=True)
