"""The lab beside another checkout's lab, whose hosts this one may not know."""

import dataclasses
import json

import pytest

from tests.lab import host, network
from tests.lab.host import Host
from tests.lab.places import LabError
from tests.lab.spec import HostSpec


def test_a_host_of_another_checkout_is_passed_over_with_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(host, "HOSTS", tmp_path)
    ours = dataclasses.asdict(HostSpec(name="ours", address="10.0.0.1"))
    theirs = ours | {"name": "theirs", "flavour": "beos", "address": "10.0.0.2"}
    newer = ours | {"name": "newer", "cooled_by": "water", "address": "10.0.0.3"}
    for told in (ours, theirs, newer):
        (tmp_path / told["name"]).mkdir()
        (tmp_path / told["name"] / "host.json").write_text(json.dumps(told))
    assert [spec.name for spec in Host.all_specs()] == ["ours"]
    Host.all_specs()
    words = capsys.readouterr().err.splitlines()
    assert len(words) == 2, "each is named once"
    assert "theirs" in words[1]
    assert "unknown flavour 'beos'" in words[1]
    with pytest.raises(LabError, match="exists already"):
        Host.reserve(HostSpec(name="theirs"))
    seen: list[set[str]] = []
    monkeypatch.setattr(network, "free_address", lambda taken: seen.append(set(taken)) or "10.0.0.4")
    monkeypatch.setattr(host, "locked", lambda _name: pytest.MonkeyPatch().context())
    Host.reserve(HostSpec(name="next"))
    assert seen == [{"10.0.0.1", "10.0.0.2", "10.0.0.3"}], "their addresses are taken all the same"
