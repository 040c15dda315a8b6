"""A recorded package that somebody took away is asked for again: in check mode, in the transaction, before an apply begins."""

import json
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import planning
from ansible_collections.gpusetup.stack.plugins.modules import gpu_packages

VERSION = "535.1-1"
BOTH = {"nvidia-driver": VERSION, "nvidia-smi": VERSION}
RECORD = {"packages": {"nvidia-driver": VERSION}, "brought": BOTH, "holds": list(BOTH)}


@pytest.mark.parametrize("there", [True, False])
def test_the_wish_names_the_version_that_was_there_and_a_rehearsal_tells_it(run_module, tmp_path, monkeypatch, there):
    (tmp_path / "state.json").write_text(json.dumps(RECORD))
    installed = dict(BOTH) if there else {"nvidia-driver": VERSION}
    wish = {"name": "nvidia-driver", "version": VERSION}
    lost = planning.lost({"optional": False, "remove": []}, installed, RECORD, [{**wish, "arch": ""}])
    assert lost == ([] if there else [{"name": "nvidia-smi", "arch": "", "version": VERSION}])
    host = SimpleNamespace(installed=lambda: installed, held=list, architecture=lambda: "amd64")
    monkeypatch.setattr(gpu_packages.planning, "manager", lambda *_a, **_k: host)
    given = {"host": {"state_dir": str(tmp_path)}, "manager": "apt", "packages": [wish]}
    result = run_module(gpu_packages, check=True, **given)
    assert result["changed"] is not there
    assert ("nvidia-smi 535.1-1" in result["diff"]["after"]) is not there
