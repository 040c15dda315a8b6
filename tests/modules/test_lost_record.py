"""A record that was lost: what it knew of is neither forgotten nor called removed."""

import json
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import lifecycle
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import record

THERE = {"nvidia-smi": "580.1-1", "bash": "5.2-1"}


@pytest.fixture
def there(monkeypatch):
    """What is installed on a host on which an apply held the driver."""
    there = dict(THERE)
    manager = SimpleNamespace(installed=lambda: dict(there), held=lambda: sorted({"nvidia-smi"} & set(there)))
    monkeypatch.setattr(lifecycle.planning, "manager", lambda *_more, **_named: manager)
    return there


def opened(folder, **more):
    request = {"state_dir": str(folder), "simulated_root": "", "wanted": {}, "manager": "apt", "network": {}, **more}
    return lifecycle.Lifecycle(request)


def test_removal_does_not_call_done_what_a_lost_record_knew_of(there, tmp_path, monkeypatch):
    folder, mark = tmp_path / "state", tmp_path / "gpusetup-nouveau.conf"
    mark.write_text("# Written by gpusetup: no step of the next apply touches it.\n")
    monkeypatch.setattr(record, "MARKS", (str(mark), str(tmp_path / "absent")))
    Ledger(str(folder)).write_history({"id": "20260101", "holds": ["nvidia-smi"]}, keep=3)
    (folder / "packages-before.json").write_text(json.dumps({"packages": {}, "counted": {}, "left": None}))
    assert opened(folder, mode="removal").removal()["known"] is False
    (folder / "state.json").write_text("half")
    token = opened(folder, mode="begin", id="run-1", lock={}).begin()["owner"]
    left = opened(folder, token=token).clean()["ours"]
    assert not mark.exists()
    assert left["packages of the record that was lost"] == ["nvidia-smi"]
    assert (folder / "state.json").exists()
    del there["nvidia-smi"]  # a person took it away
    assert opened(folder).clean()["ours"] == {}
    assert not folder.exists()


@pytest.mark.parametrize("text", ["# Written by gpusetup.\nold\n", "# Written by gpusetup.\nnew\n"])
def test_a_file_that_says_it_is_ours_goes_although_its_record_is_lost(tmp_path, text):
    path, theirs = tmp_path / "gpusetup-nouveau.conf", tmp_path / "theirs.conf"
    path.write_text(text)
    theirs.write_text("theirs\n")
    check = Ledger(str(tmp_path / "state"), check=True)
    check.write(str(path), "# Written by gpusetup.\nnew\n")
    assert check.state["files"] == {}
    assert [diff["after"] for diff in check.diffs] == ["# Written by gpusetup.\nnew\n"] * text.endswith("old\n")
    ledger = Ledger(str(tmp_path / "state"))
    assert ledger.write(str(path), "# Written by gpusetup.\nnew\n") == text.endswith("old\n")
    ledger.write(str(theirs), "ours\n")
    again = Ledger(ledger.folder)
    again.restore(str(path))
    again.restore(str(theirs))
    assert not path.exists()
    assert theirs.read_text() == "theirs\n"
