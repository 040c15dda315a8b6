"""Host and controller judge alike: the same captured machine and record, the same verdict, whoever asks."""

import json
import shutil
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import lifecycle
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver as host_driver
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import kernels as probe
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost

from gpusetup.components import judge
from gpusetup.facts.collect import captured
from gpusetup.plan.lifecycle import differences

HERE = Path(__file__).parent
HOSTS = sorted(path.parent for path in HERE.glob("*/expected.json"))
NOUVEAU = judge.names.NOUVEAU_FILE


def record_of(facts):
    """A record that this machine fits in parts only, so that there is something to judge."""
    installed = dict(facts.packages.installed)
    names = sorted(installed)
    version = facts.driver.version if facts.driver is not None else "580.95.05"
    return {
        "apply": {"id": "20261121T010000Z-aaaaaa", "finished": "20261121T010100Z"},
        "packages": {name: installed[name] for name in names[:3]} | {"nvidia-gone": "1-1"},
        "brought": installed | {"nvidia-smi-gone": "1-1", **dict.fromkeys(names[3:4], "0-0")},
        "holds": [*names[:6], "nvidia-smi-gone"],
        "files": {NOUVEAU: {"sha256": "aa", "present": True, "original": None}},
        "services": {"nvidia-persistenced.service": {"enabled": True}, "own.service": {"enabled": True}},
        "expect": {"driver_version": version, "driver_module": "open", "kernels": []},
    }


@pytest.fixture(params=HOSTS, ids=lambda folder: folder.name)
def machine(request, tmp_path):
    """A captured machine on which an apply is on record."""
    root = tmp_path / "root"
    shutil.copytree(request.param / "root", root, symlinks=True)
    place = root / "var/lib/gpusetup/state.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(record_of(captured(root))))
    capture = json.loads((root / "gpusetup-capture.json").read_text())
    capture.setdefault("observations", {})["recorded-files"] = {NOUVEAU: "bb"}
    (root / "gpusetup-capture.json").write_text(json.dumps(capture))
    return root


def test_what_has_drifted_is_the_same_on_the_host_and_on_the_controller(machine):
    told = [(item.what, item.was, item.now) for item in differences(captured(machine))]
    host = SimpleNamespace(host=FolderHost(str(machine)), simulated=None)
    seen = lifecycle.deviations("/var/lib/gpusetup", host, {"remove": []})
    assert [(item["what"], item["was"], item["is"]) for item in seen] == told
    whats = [what for what, _was, _now in told]
    assert {"package nvidia-gone", "package nvidia-smi-gone", "own.service", NOUVEAU} <= set(whats)


@pytest.mark.parametrize("kernels", [(), ("5.99.0",)])
def test_the_driver_is_judged_alike_from_the_whole_facts_and_from_the_part_that_modules_read(machine, kernels):
    whole = judge.probed(captured(machine))
    part = probe.driver_state(FolderHost(str(machine)))
    own = (whole["driver"] or {}).get("version") or "580.95.05"
    for version, flavour in product(("", "535.1", own), ("open", "proprietary", "")):
        asked, same = (who.Wish(version, flavour, kernels) for who in (judge.driver, host_driver))
        for name in ("reboot_reasons", "module_problems", "obstacle", "loaded_problem"):
            assert getattr(judge.driver, name)(whole, asked) == getattr(host_driver, name)(part, same), name
    assert judge.driver.key_unknown(whole) == host_driver.key_unknown(part)
