"""A vGPU's licence on the host: the daemon's settings, and the way back when none is granted."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_licence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "FeatureType=4\n"),
        ("# by the package\n#FeatureType=0", "# by the package\nFeatureType=4"),
        ("FeatureType=1\nEnableUI=FALSE\nFeatureType=2\n", "FeatureType=4\nEnableUI=FALSE\n"),
        ("EnableUI=FALSE", "EnableUI=FALSE\nFeatureType=4\n"),
        (
            "ServerAddress=a.example\nBackupServerPort=7070\nFeatureType=4\n",
            (
                "# taken out by gpusetup, a token names the server: ServerAddress=a.example\n"
                "# taken out by gpusetup, a token names the server: BackupServerPort=7070\nFeatureType=4\n"
            ),
        ),
        ("# ServerAddress=a.example\nFeatureType=4\n", "# ServerAddress=a.example\nFeatureType=4\n"),
    ],
)
def test_settings(before, after):
    assert gpu_licence.settings(before, 4) == after
    assert gpu_licence.settings(after, 4) == after, "a second time changes nothing"


@pytest.mark.parametrize(
    ("states", "granted"),
    [
        ([], False),
        (["Licensed (Expiry: 2027-1-1 0:0:0 GMT)"], True),
        (["Licensed (Expiry: 2027-1-1 0:0:0 GMT)", "Unlicensed (Unrestricted)"], False),
        (["Unlicensed (Restricted)"], False),
        (["N/A"], False),
    ],
)
def test_granted_is_every_gpu(states, *, granted):
    assert gpu_licence.granted(states) is granted


@pytest.fixture
def places(monkeypatch, tmp_path):
    token, conf = tmp_path / "etc/ClientConfigToken/ours.tok", tmp_path / "etc/gridd.conf"
    monkeypatch.setattr(gpu_licence, "TOKEN", str(token))
    monkeypatch.setattr(gpu_licence, "SETTINGS", str(conf))
    conf.parent.mkdir()
    conf.write_text("# of the site\n")
    return token, conf


def test_what_was_there_is_back_when_no_licence_is_granted(monkeypatch, tmp_path, places):
    token, conf = places
    restarts: list[str] = []
    monkeypatch.setattr(gpu_licence, "restart", lambda _env: restarts.append(conf.read_text()))
    monkeypatch.setattr(gpu_licence.systemd, "active_since", lambda *_words: 0.0)
    monkeypatch.setattr(gpu_licence, "state", lambda _env: ["Unlicensed (Unrestricted)"])
    monkeypatch.setattr(gpu_licence.systemd, "last_words", lambda _unit, _env: "server refused")
    ledger = Ledger(str(tmp_path / "state"))
    ledger.state["apply"] = {"id": "first"}
    assert gpu_licence.write(ledger, "secret-of-the-site", 2)
    assert token.stat().st_mode & 0o777 == 0o600
    with pytest.raises(HostFailure) as stop:
        gpu_licence.license_now(ledger, {}, 0)
    assert "no licence was granted" in str(stop.value)
    assert not token.exists()
    assert conf.read_text() == "# of the site\n"
    assert restarts == ["# of the site\nFeatureType=2\n", "# of the site\n"]
    assert "secret" not in str(ledger.diffs)


def test_the_same_again_changes_nothing(tmp_path, places):
    ledger = Ledger(str(tmp_path / "state"))
    assert gpu_licence.write(ledger, "token", 1)
    assert not gpu_licence.write(ledger, "token", 1)
    assert gpu_licence.write(ledger, "another", 1)
    assert places[0].read_text() == "another"


def test_a_licence_that_is_given_up_leaves_what_was_there_before(monkeypatch, tmp_path, places):
    token, conf = places
    restarts: list[str] = []
    monkeypatch.setattr(gpu_licence, "restart", lambda _env: restarts.append(conf.read_text()))
    monkeypatch.setattr(gpu_licence.systemd, "active_since", lambda *_words: 0.0)
    gpu_licence.write(Ledger(str(tmp_path / "state")), "secret-of-the-site", 2)
    assert gpu_licence.give_up(Ledger(str(tmp_path / "state"), check=True), {}, start=False)
    assert token.exists()
    ledger = Ledger(str(tmp_path / "state"))
    assert gpu_licence.give_up(ledger, {}, start=True)
    assert (token.exists(), conf.read_text()) == (False, "# of the site\n")
    assert restarts == ["# of the site\n"]
    assert not gpu_licence.give_up(ledger, {}, start=True)
