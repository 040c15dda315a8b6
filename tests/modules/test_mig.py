"""GPUs cut into MIG instances by the module and at boot; nvidia-smi is a stand-in that keeps state, in captured words."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import mig, mig_kept, process
from ansible_collections.gpusetup.stack.plugins.modules import gpu_mig

from gpusetup.content import host_code
from tests.lab.captures import A100, H200
from tests.modules.gpu_host_stand_in import FIRST, SECOND
from tests.modules.stand_ins import refused

PROGRAM = host_code("programs").packed("gpu_mig")


@pytest.fixture
def lay(host, run_module):
    """Run the module; layouts by address as {profile: how many or its compute instances}, None for off."""

    def call(layouts=None, **more):
        rows = []
        for address, wish in (layouts or {}).items():
            instances = [
                {"profile": name, **({"count": what} if isinstance(what, int) else {"compute": what})}
                for name, what in (wish or {}).items()
            ]
            rows.append({"gpu": address, "enabled": wish is not None, "instances": instances})
        given = {"host": host.given, "layouts": rows, "gpus": [FIRST, SECOND], "program": PROGRAM}
        return run_module(gpu_mig, **given, **more)

    return call


def of(profile, count):
    return {"enabled": True, "instances": [{"profile": profile, "count": count, "compute": []}]}


def test_gpus_are_cut_once_and_neither_a_check_nor_a_second_time_changes_anything(host, lay):
    assert lay({FIRST: {"1g.18gb": 7}}, check=True)["changed"]
    assert (host.layouts[FIRST], (host.root / "etc").exists()) == ("off", False)
    assert lay({FIRST: {"1g.18gb": 0}, SECOND: {"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}})["changed"]
    assert host.layouts == {FIRST: "7 x 1g.18gb", SECOND: "1 x 2g.35gb, 2 x 1g.18gb, 1 x 3g.71gb"}
    assert not lay({FIRST: {"1g.18gb": 7}, SECOND: {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}})["changed"]
    assert "enable gpusetup-mig.service" in host.did()
    lay({FIRST: {"3g.71gb": ["1c.3g.71gb", "2c.3g.71gb"]}})
    assert host.layouts[FIRST] == "1 x 3g.71gb (1c.3g.71gb + 2c.3g.71gb)"


def test_a_failure_gives_every_gpu_back_what_it_had(host, lay):
    lay({FIRST: {"3g.71gb": 2}, SECOND: {"1g.18gb": 2}})
    before = host.layouts
    host.state(fails_after=2)
    wish = {FIRST: {"1g.18gb": 7}, SECOND: None}
    lay(wish, fails=("GS-437", "note: ", "Insufficient Resources", "the GPUs have their old layout again"))
    assert host.layouts == before
    kept = {"enabled": True, "instances": [{"profile": "9g.1gb", "start": 0, "compute": ["9g.1gb"]}]}
    with refused("has no profile 9g.1gb"):  # of another driver: nothing is lost
        mig.lay({FIRST: kept}, process.environment())
    assert host.layouts == before


def test_what_a_gpu_had_before_a_cut_apply_comes_back(host, lay, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(mig_kept, "keep", Mock(side_effect=mig.HostFailure("GS-487", "the unit cannot be enabled")))
        lay({FIRST: {"1g.18gb": 7}}, fails="GS-487")
    lay({FIRST: {"1g.18gb": 7}})
    assert host.ledger.state["mig"]["found"][FIRST] == {"enabled": False, "instances": []}
    mig_kept.undo(host.ledger, process.environment())
    assert host.layouts[FIRST] == "off"


def test_programs_on_a_gpu_are_named_and_a_gpu_that_is_gone_is_said(host, lay):
    host.state(apps=[{"gpu": 0, "pid": 4242, "name": "/usr/bin/python3"}])
    lay({FIRST: {"1g.18gb": 7}}, fails=("GS-438", "python3 (4242)"))
    lay({SECOND: {"1g.18gb": 7}})  # the program is on the other one
    lay({"0000:00:20.0": {"1g.18gb": 7}}, fails=": no GPU answers at 0000:00:20.0")


@pytest.mark.parametrize(
    ("gpu", "profile", "stopped"),
    [(H200, "1g.18gb", ["nvidia-dcgm"]), (A100, "1g.10gb", ["nvidia-dcgm", "nvidia-persistenced"])],
    ids=["Hopper", "Ampere, which is reset for its mode"],
)
def test_services_that_watch_are_stopped_for_it_and_started_again(host, lay, gpu, profile, stopped):
    host.boards(gpu, gpu)
    for name in ("nvidia-dcgm.service", "nvidia-persistenced.service"):
        host.unit(name)
    assert lay({FIRST: {profile: 7}})["reboot"] == []
    assert host.layouts == {FIRST: f"7 x {profile}", SECOND: "off"}
    for verb in ("stop", "start"):
        assert {line for line in host.did() if line.startswith(verb)} == {f"{verb} {name}.service" for name in stopped}


def boot(host):
    """Run what the unit runs, from the files that the module wrote; return what it prints."""
    (host.root / "mig.json").unlink(missing_ok=True)
    argv = [sys.executable, "-B", f"{mig_kept.FOLDER}/mig_at_boot.py", mig_kept.LAYOUT]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ampere_that_cannot_be_reset_waits_for_a_reboot_and_its_unit_ends_the_work(host, lay):
    host.boards(A100)
    host.state(no_reset=True)
    why = "Resetting GPU 00000000:00:06.0 is not supported."
    wish = {FIRST: {"3g.40gb": 2}}
    assert lay(wish)["reboot"] == [f"MIG of {FIRST} becomes enabled at the next reset: {why}"]
    assert boot(host) == f"{FIRST}: 2 x 3g.40gb\n"
    assert host.layouts[FIRST] == "2 x 3g.40gb"
    assert not lay(wish)["changed"]


def test_files_of_other_parts_of_gpusetup_stay(host, lay):
    ledger = host.ledger
    of_textfile = Path(mig_kept.FOLDER).parent / "gpu/gpu_textfile/look.py"
    ledger.write(str(of_textfile), "the textfile's")
    assert [lay({FIRST: {"1g.18gb": 7}})["changed"] for _time in range(2)] == [True, False]
    assert of_textfile.read_text() == "the textfile's"


def test_a_gpu_that_is_no_longer_named_gets_back_what_it_had(host, lay):
    mig.lay({SECOND: of("2g.35gb", 1)}, process.environment())
    lay({FIRST: {"1g.18gb": 7}, SECOND: {"7g.141gb": 1}})
    lay({FIRST: {"1g.18gb": 7}})
    assert host.layouts == {FIRST: "7 x 1g.18gb", SECOND: "1 x 2g.35gb"}
    assert sorted(host.ledger.state["mig"]["found"]) == [FIRST]
    assert lay()["changed"]
    assert (host.layouts[FIRST], host.ledger.state["mig"]) == ("off", {})
    assert not (host.root / "usr/local/lib/gpusetup").exists()
    assert not Path(mig_kept.UNIT).exists()
    assert not lay()["changed"]


def test_nvidia_s_own_unit_brings_it_back_where_it_is_installed(host, lay):
    host.unit("nvidia-mig-manager.service", "inactive")
    lay({SECOND: {"1g.18gb": 7}, FIRST: None})
    assert "enable nvidia-mig-manager.service" in host.did()
    assert not Path(mig_kept.UNIT).exists()
    assert Path(mig_kept.MANAGER_CONFIG).read_text() == (
        "# Written by gpusetup\nversion: v1\nmig-configs:\n  gpusetup:\n"
        "    - devices: [0]\n      mig-enabled: false\n      mig-devices: {}\n"
        '    - devices: [1]\n      mig-enabled: true\n      mig-devices: {"1g.18gb": 7}\n'
    )
    drop_ins = Path(mig_kept.MANAGER_DROP_INS)
    assert "MIG_PARTED_SELECTED_CONFIG=gpusetup" in (drop_ins / "override.conf").read_text()
    assert f"MIG_PARTED_CONFIG_FILE={mig_kept.MANAGER_CONFIG}" in (drop_ins / "zz-gpusetup.conf").read_text()


def test_before_the_driver_runs_the_layout_is_kept_for_the_boot(host, lay):
    (host.root / "version").unlink()
    assert lay({FIRST: {"1g.18gb": 0}})["changed"]
    (host.root / "version").write_text("NVRM version: x  580.159.04  y\n")
    boot(host)
    assert host.layouts[FIRST] == "7 x 1g.18gb"


def test_what_does_not_fit_is_refused_with_what_would(host, lay):
    failure = lay({FIRST: {"4g.71gb": 2}}, fails="GS-436")["gpu_failure"]
    assert "what fits: 1 x 4g.71gb, and beside it one of 1g.18gb," in failure["hint"]
