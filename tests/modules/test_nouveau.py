"""gpu_nouveau: while the initramfs is rebuilt its files are right already, and the step is not over all the same."""

import time
from pathlib import Path
from unittest.mock import Mock

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import jobs, lifecycle, preview
from ansible_collections.gpusetup.stack.plugins.modules import gpu_nouveau

from tests.modules.stand_ins import refused


class Slow:
    """Writes its file at once, then goes on until it is told to end, as a rebuild does in its own time."""

    def __init__(self, params, check=False, **_more):
        self.path = Path(params["state_dir"]) / "blacklist"
        self.check = check

    def run(self):
        changed = not self.path.exists()
        if not self.check:
            self.path.write_text("blacklist nouveau\n")
            until = time.monotonic() + 60
            while not self.path.with_name("end").exists() and time.monotonic() < until:
                time.sleep(0.05)
        return {"changed": changed, "warnings": []}


def test_a_rebuild_that_still_runs_is_waited_for(run_module, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_nouveau, "Nouveau", Slow)

    def told(poll):
        answer = run_module(gpu_nouveau, host={"state_dir": str(tmp_path)}, poll=poll)
        return answer["finished"], answer.get("changed")

    assert (told(1)[0], (tmp_path / "blacklist").exists()) == (False, True)
    request = {"state_dir": str(tmp_path), "simulated_root": "", "wanted": {}, "manager": "apt", "network": {}}
    with refused("already changing this host"):
        lifecycle.Lifecycle(request).clean()
    look = preview.Preview({"state_dir": str(tmp_path), "simulated_root": ""})
    look._sanity(Mock())  # it does not ask for packages while the job is at work
    (found,) = look.findings
    assert found["text"].startswith(f"gpusetup is changing this host: job {next((tmp_path / 'jobs').iterdir()).name}")
    (tmp_path / "end").touch()
    assert [told(20), told(20)] == [(True, True), (True, False)]
    jobs.refuse_while_running(str(tmp_path))


def test_what_only_the_work_itself_shows_is_told_once(run_module, monkeypatch, tmp_path):
    def run(self):
        return {"changed": True, "warnings": ["known before", *([] if self.check else ["the menu stays as it was"])]}

    monkeypatch.setattr(Slow, "run", run)
    monkeypatch.setattr(gpu_nouveau, "Nouveau", Slow)
    answer = run_module(gpu_nouveau, host={"state_dir": str(tmp_path)}, poll=20)
    assert (answer["finished"], answer["warnings"]) == (True, ["the menu stays as it was"])
