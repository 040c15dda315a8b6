"""An alternative that somebody had chosen before comes back, in the words of dpkg and of Red Hat."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.alternatives import Alternative
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

OLD, NEW, BEST = "/usr/local/cuda-11.8", "/usr/local/cuda-12.8", "/usr/local/cuda-13.0"


class Alternatives:
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
def change(request, tmp_path, monkeypatch):
    """A host with this choice, and its record."""

    def make(before):
        host = Alternatives(before, request.param)
        monkeypatch.setattr(process, "output", host.output)
        return host, Ledger(str(tmp_path))

    return make


@pytest.mark.parametrize(("before", "gone"), [("auto", False), (OLD, False), (OLD, True)])
def test_what_was_chosen_before_comes_back_and_what_is_gone_is_left_to_the_system(change, before, gone):
    host, ledger = change(before)
    assert [ledger.change(Alternative("cuda", {}), NEW) for _time in range(2)] == [True, False]
    assert host.chosen == NEW
    if gone:
        host.there.remove(before)
    assert ledger.undo(Alternative("cuda", {}))
    assert host.chosen == ("auto" if gone else before)
    assert (ledger.state["alternatives"], ledger.state["open"]) == ({}, {})
