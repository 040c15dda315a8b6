"""An alternative that somebody had chosen before comes back, in the words of dpkg and of Red Hat."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.alternatives import Alternative
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

OLD, NEW, BEST = "/usr/local/cuda-11.8", "/usr/local/cuda-12.8", "/usr/local/cuda-13.0"


class Alternatives:
    """What update-alternatives keeps."""

    def __init__(self, chosen, words):
        self.chosen, self.words, self.there = chosen, words, {OLD, NEW, BEST}

    def output(self, argv, *_more):
        _program, verb, name, *path = argv
        if verb == "--set" and path[0] not in self.there:
            return 2, "", f"update-alternatives: error: alternative {path[0]} for {name} not registered"
        if verb != "--display":
            self.chosen = path[0] if verb == "--set" else "auto"
        leads = BEST if self.chosen == "auto" else self.chosen
        said = f"cuda - {self.words[self.chosen != 'auto']}\n link currently points to {leads}\n"
        said += "".join(f"{choice} - priority 1\n" for choice in sorted(self.there))
        return (0, said, "") if self.there else (2, "", "no alternatives for cuda")


@pytest.fixture(params=[("auto mode", "manual mode"), ("status is auto.", "status is manual.")], ids=["dpkg", "EL"])
def words(request):
    found: tuple[str, str] = request.param
    return found


@pytest.mark.parametrize("before", ["auto", OLD])
def test_what_was_chosen_before_comes_back(tmp_path, monkeypatch, words, before):
    host, ledger = Alternatives(before, words), Ledger(str(tmp_path))
    monkeypatch.setattr(process, "output", host.output)
    assert ledger.change(Alternative("cuda", {}), NEW)
    assert not ledger.change(Alternative("cuda", {}), NEW)
    assert host.chosen == NEW
    assert ledger.undo(Alternative("cuda", {}))
    assert (host.chosen, ledger.state["alternatives"], ledger.state["open"]) == (before, {}, {})


def test_a_choice_that_is_gone_is_left_to_the_system(tmp_path, monkeypatch, words):
    host, ledger = Alternatives(OLD, words), Ledger(str(tmp_path))
    monkeypatch.setattr(process, "output", host.output)
    ledger.change(Alternative("cuda", {}), NEW)
    host.there.remove(OLD)
    assert ledger.undo(Alternative("cuda", {}))
    assert host.chosen == "auto"


def test_what_cannot_be_set_is_a_failure_and_nothing_on_record(tmp_path, monkeypatch, words):
    host, ledger = Alternatives("auto", words), Ledger(str(tmp_path))
    monkeypatch.setattr(process, "output", host.output)
    with pytest.raises(HostFailure, match="could not be set") as caught:
        ledger.change(Alternative("cuda", {}), "/nowhere")
    assert "not registered" in caught.value.fields["note"]
    assert (ledger.state["alternatives"], ledger.state["open"]) == ({}, {})
