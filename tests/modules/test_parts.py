"""What one run recorded of its parts: the next whole run does the rest, and nothing of an earlier one is wiped."""

from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched, lifecycle, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift, driver, record_form

WANTED = {
    "packages": [{"name": "nvidia-driver"}], "driver": ["580.95.05", "open", []], "container": [["docker"], True],
    "python": {"path": "/opt/gpusetup", "environments": []}, "monitoring": {"exporter": "dcgm"},
}  # fmt: skip
DRIVER = {"driver_version": "580.95.05", "driver_module": "open", "kernels": []}
HOST = SimpleNamespace(installed=lambda: {"bash": "5"}, held=list)


class Run:
    """One run of a play: what it wants, which parts its tags did, and what they told."""

    def __init__(self, folder):
        self.folder = str(folder)

    def request(self, **more):
        return {
            "state_dir": self.folder, "simulated_root": "", "wanted": WANTED, "manager": "apt", "network": {}, "lock": {},
            "id": "", "keep": 10, "python": None, "remove": [], **DRIVER, **more,
        }  # fmt: skip

    def begin(self, **more):
        return lifecycle.Lifecycle(self.request(mode="begin", **more)).begin()

    def __call__(self, *ran, **more):
        begun = self.begin(**more)
        if begun["converged"]:
            return "unchanged"
        request = self.request(ran=list(ran) if ran else None, token=begun["owner"], **more)
        return lifecycle.Lifecycle(request).finish()["gpu_result"]

    @property
    def expect(self):
        return dict(Ledger(self.folder).state["expect"])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle.planning, "manager", lambda *_more, **_named: HOST)
    monkeypatch.setattr(fetched, "PLACE", str(tmp_path / "looks"))
    monkeypatch.setattr(lifecycle, "deviations", lambda *_more: [])
    monkeypatch.setattr(lifecycle.Machine, "facts", lambda _self: {"kernel": {"running": "6.1", "next": "6.1"}})
    monkeypatch.setattr(driver, "reboot_reasons", lambda *_more: [])
    return Run(tmp_path / "state")


def test_nothing_that_another_run_recorded_is_wiped(run, tmp_path):
    made = {"path": "/opt/gpusetup", "packages": {"torch": "2.9"}, "adopted": False}
    named = tmp_path / "serve"
    named.symlink_to(tmp_path)
    wanted = {**WANTED, "python": {"path": "/opt/gpusetup", "environments": [{"path": str(named)}]}}
    run(python=made, environments=[{"path": str(named), "packages": {}}], wanted=wanted)
    whole = run.expect
    assert whole["python"] == made
    for tags in (["monitoring"], ["driver"], ["container"]):
        for wish in (wanted, WANTED):
            changed = {**wish, "monitoring": {"exporter": tags[0]}, "driver": ["580.95.05", "open", tags]}
            run(*tags, wanted=changed, driver_version="580.95.05" if tags == ["driver"] else "")
            assert {**run.expect, "parts": None} == {**whole, "parts": None}, tags
            assert named.is_symlink()


@pytest.mark.parametrize("kind", ["waits", "pending"])
def test_what_waits_is_told_and_looked_at_again(run, kind):
    what = ["docker runs with its old settings"]
    told = run(**{kind: {"container": what, "imex": []}})
    assert told["waits" if kind == "waits" else "reboot"] in (what, {"needed": True, "reasons": what})
    assert told["state"] == ("done" if kind == "waits" else "pending-reboot")
    record = Ledger(run.folder).state
    assert record_form.wrong(record) == ""
    here = {"boot": {"id": owner.boot()}}
    assert [item.what for item in drift.waits(here, record)] == what
    assert list(drift.waits({"boot": {"id": "a later one"}}, record)) == []
    assert not run.begin()["converged"]
    assert what[0] in run("driver")["waits"], "another part's run does not forget it"
    run()
    assert run.begin()["converged"]
    assert list(drift.waits(here, Ledger(run.folder).state)) == []


@pytest.mark.parametrize(("brought", "back"), [({}, "ours"), ({"nvidia-driver": "580"}, "of a cut apply")])
def test_another_wish_after_a_cut_goes_back_to_what_the_cut_one_found(run, tmp_path, monkeypatch, brought, back):
    source = tmp_path / "cuda.list"
    source.write_text("ours")
    cut = run.begin()
    Ledger(run.folder).write(str(source), "of a cut apply")
    monkeypatch.setattr(HOST, "installed", lambda: {"bash": "5", **brought})  # whether its packages came
    owner.release(run.folder, cut["owner"])
    run.begin(wanted={"driver": ["570.1", "open", []]})
    other = Ledger(run.folder)
    other.write(str(source), "of another")
    other.revert_apply()
    assert source.read_text() == back
