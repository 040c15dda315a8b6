"""A recorded package that somebody took away is asked for again: in check mode, in the transaction, before an apply begins."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import planning
from ansible_collections.gpusetup.stack.plugins.modules import gpu_packages

RECORD = {
    "packages": {"nvidia-driver": "535.1-1"},
    "brought": {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1"},
    "holds": ["nvidia-driver", "nvidia-smi"],
}
PARAMS: dict[str, Any] = {"optional": False, "remove": []}
WISHES = [{"name": "nvidia-driver", "version": "535.1-1", "arch": ""}]


def test_the_wish_names_the_version_that_was_there():
    assert planning.lost(PARAMS, {"nvidia-driver": "535.1-1"}, RECORD, WISHES) == [
        {"name": "nvidia-smi", "arch": "", "version": "535.1-1"}
    ]
    assert planning.lost(PARAMS, {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1"}, RECORD, WISHES) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_rehearsal_tells_that_it_comes_back(run_module, tmp_path, monkeypatch, there):
    (tmp_path / "state.json").write_text(json.dumps(RECORD))
    installed = {"nvidia-driver": "535.1-1", **({"nvidia-smi": "535.1-1"} if there else {})}
    host = SimpleNamespace(installed=lambda: installed, held=list, architecture=lambda: "amd64")
    monkeypatch.setattr(gpu_packages.planning, "manager", lambda *_a, **_k: host)
    failed, result = run_module(
        gpu_packages,
        check=True,
        host={"state_dir": str(tmp_path)},
        manager="apt",
        packages=[{"name": "nvidia-driver", "version": "535.1-1"}],
    )
    assert (failed, result["changed"]) == (False, not there)
    assert ("nvidia-smi 535.1-1" in result["diff"]["after"]) is not there
