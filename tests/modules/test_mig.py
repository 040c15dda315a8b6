"""GPUs cut into MIG instances by the module and at boot; nvidia-smi is a stand-in that keeps state, in captured words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import mig, mig_kept, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import mig as probe
from ansible_collections.gpusetup.stack.plugins.modules import gpu_mig

from gpusetup.content import host_code
from tests.lab.captures import A100
from tests.modules.gpu_host_stand_in import FIRST, SECOND, Host

PROGRAM = host_code("programs").packed("gpu_mig")


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


@pytest.fixture
def lay(host, run_module):
    """Run the module; layouts by address as {profile: how many or its compute instances}, None for off."""

    def call(check=False, **layouts):
        rows = []
        for address, wish in layouts.items():
            instances = [
                {"profile": name, **({"count": what} if isinstance(what, int) else {"compute": what})}
                for name, what in (wish or {}).items()
            ]
            rows.append({"gpu": address, "enabled": wish is not None, "instances": instances})
        state = {"state_dir": str(host.root / "state")}
        answer: tuple[bool, dict[str, Any]] = run_module(
            gpu_mig, check=check, host=state, layouts=rows, gpus=[FIRST, SECOND], program=PROGRAM
        )
        return answer

    return call


def test_a_real_h100_s_tables_are_read():
    captured = Path(__file__).with_name("captures")
    told = {"-lgip": "h100-mig-lgip.txt", "-lgipp": "h100-mig-lgipp.txt"}
    run = lambda arguments: {"rc": 0, "out": (captured / told[arguments[-1]]).read_text(), "err": ""}  # noqa: E731
    rows = probe.profiles(run, "0000:00:06.0")
    assert rows is not None
    assert [(row["name"], row["id"], row["total"], row["starts"], row["size"]) for row in rows] == [
        ("1g.10gb", 19, 7, [0, 1, 2, 3, 4, 5, 6], 1),
        ("1g.10gb+me", 20, 1, [0, 1, 2, 3, 4, 5, 6], 1),
        ("1g.20gb", 15, 4, [0, 2, 4, 6], 2),
        ("2g.20gb", 14, 3, [0, 2, 4], 2),
        ("3g.40gb", 9, 2, [0, 4], 4),
        ("4g.40gb", 5, 1, [0], 4),
        ("7g.80gb", 0, 1, [0], 8),
    ]


def test_gpus_are_cut_once_and_a_second_time_nothing_changes(host, lay):
    failed, result = lay(**{FIRST: {"1g.18gb": 0}, SECOND: {"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}})
    assert not failed, result
    assert result["changed"]
    assert host.layouts == {FIRST: "7 x 1g.18gb", SECOND: "1 x 2g.35gb, 2 x 1g.18gb, 1 x 3g.71gb"}
    failed, again = lay(**{FIRST: {"1g.18gb": 7}, SECOND: {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}})
    assert (failed, again["changed"]) == (False, False)
    assert "enable gpusetup-mig.service" in host.did()


def test_compute_instances_share_a_gpu_instance(host, lay):
    failed, result = lay(**{FIRST: {"3g.71gb": ["1c.3g.71gb", "2c.3g.71gb"]}})
    assert not failed, result
    assert host.layouts[FIRST] == "1 x 3g.71gb (1c.3g.71gb + 2c.3g.71gb)"


def test_a_check_changes_nothing(host, lay):
    failed, result = lay(check=True, **{FIRST: {"1g.18gb": 7}})
    assert (failed, result["changed"], host.layouts[FIRST]) == (False, True, "off")
    assert not (host.root / "etc").exists()


@pytest.mark.parametrize(
    ("wish", "message", "hint"),
    [
        ({"1g.10gb": 1}, "it has no profile 1g.10gb", "it has 1g.18gb (up to 7), "),
        ({"4g.71gb": 2}, "2 x 4g.71gb do not fit on one GPU", "what fits: 1 x 4g.71gb, and beside it one of 1g.18gb,"),
        ({"3g.71gb": 2, "1g.18gb": 1}, "2 x 3g.71gb, 1 x 1g.18gb do not fit", "what fits: 2 x 3g.71gb"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(host, lay, wish, message, hint):
    failed, result = lay(**{SECOND: {"7g.141gb": 1}, FIRST: wish})
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-436"
    assert message in result["gpu_failure"]["message"]
    assert hint in result["gpu_failure"]["hint"]
    assert host.layouts == {FIRST: "off", SECOND: "off"}
    assert host.did() == []


def test_a_failure_gives_every_gpu_back_what_it_had(host, lay):
    assert not lay(**{FIRST: {"3g.71gb": 2}, SECOND: {"1g.18gb": 2}})[0]
    before = host.layouts
    host.state(fails_after=2)
    failed, result = lay(**{FIRST: {"1g.18gb": 7}, SECOND: None})
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-437"
    assert "Insufficient Resources" in result["gpu_failure"]["note"]
    assert "the GPUs have their old layout again" in result["gpu_failure"]["note"]
    assert host.layouts == before


def test_a_profile_that_this_driver_does_not_have_is_said_and_nothing_is_lost(host, lay):
    assert not lay(**{FIRST: {"3g.71gb": 2}})[0]
    before = host.layouts
    kept = {"enabled": True, "instances": [{"profile": "9g.1gb", "start": 0, "compute": ["9g.1gb"]}]}
    with pytest.raises(mig.HostFailure, match=r"has no profile 9g\.1gb"):
        mig.lay({FIRST: kept}, process.environment())
    assert host.layouts == before


def test_what_a_gpu_had_before_a_cut_apply_comes_back(host, lay, monkeypatch):
    def cut(*_words, **_named):
        raise mig.HostFailure("GS-487", "the unit cannot be enabled")

    with monkeypatch.context() as patched:
        patched.setattr(mig_kept, "keep", cut)
        assert lay(**{FIRST: {"1g.18gb": 7}})[0]
    assert not lay(**{FIRST: {"1g.18gb": 7}})[0]
    assert host.ledger.state["mig"]["found"][FIRST] == {"enabled": False, "instances": []}
    mig_kept.undo(host.ledger, process.environment())
    assert host.layouts[FIRST] == "off"


def test_programs_on_a_gpu_are_named_and_nothing_is_touched(host, lay):
    host.state(apps=[{"gpu": 0, "pid": 4242, "name": "/usr/bin/python3"}])
    failed, result = lay(**{FIRST: {"1g.18gb": 7}})
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-438"
    assert "python3 (4242)" in result["gpu_failure"]["message"]
    assert not lay(**{SECOND: {"1g.18gb": 7}})[0], "the program is on the other one"


def test_services_that_watch_are_stopped_for_it_and_started_again(host, lay):
    host.unit("nvidia-dcgm.service")
    host.unit("nvidia-persistenced.service")
    assert not lay(**{FIRST: {"1g.18gb": 7}})[0]
    kept = [line for line in host.did() if "persistenced" in line or "dcgm" in line]
    assert kept == ["stop nvidia-dcgm.service", "start nvidia-dcgm.service"]


def test_ampere_is_reset_for_its_mode_with_persistence_stopped(host, lay):
    host.boards(A100, A100)
    host.unit("nvidia-persistenced.service")
    failed, result = lay(**{FIRST: {"1g.10gb": 7}})
    assert (failed, result["reboot"]) == (False, [])
    assert host.layouts == {FIRST: "7 x 1g.10gb", SECOND: "off"}
    assert "stop nvidia-persistenced.service" in host.did()
    assert "start nvidia-persistenced.service" in host.did()


def boot(host):
    """Run what the unit runs, from the files that the module wrote."""
    host.reboot()
    argv = [sys.executable, "-B", f"{mig_kept.FOLDER}/mig_at_boot.py", mig_kept.LAYOUT]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_ampere_that_cannot_be_reset_waits_for_a_reboot_and_its_unit_ends_the_work(host, lay):
    host.boards(A100)
    host.state(no_reset=True)
    failed, result = lay(**{FIRST: {"3g.40gb": 2}})
    assert not failed, result
    assert result["reboot"] == [
        f"MIG of {FIRST} becomes enabled at the next reset: Resetting GPU 00000000:00:06.0 is not supported."
    ]
    done = boot(host)
    assert (done.returncode, done.stdout) == (0, f"{FIRST}: 2 x 3g.40gb\n"), done.stderr
    assert host.layouts[FIRST] == "2 x 3g.40gb"
    assert not lay(**{FIRST: {"3g.40gb": 2}})[1]["changed"]


def test_the_unit_brings_the_layout_back_after_a_reboot(host, lay):
    assert not lay(**{FIRST: {"1g.18gb": 7}, SECOND: {"4g.71gb": 1, "3g.71gb": ["1c.3g.71gb"]}})[0]
    before = host.layouts
    done = boot(host)
    assert done.returncode == 0, done.stderr
    assert host.layouts == before
    assert mig_kept.FOLDER in Path(mig_kept.UNIT).read_text()


def test_files_of_other_parts_of_gpusetup_stay(host, lay):
    ledger = Ledger(str(host.root / "state"))
    of_textfile = Path(mig_kept.FOLDER).parent / "gpu/gpu_textfile/look.py"
    ledger.write(str(of_textfile), "the textfile's")
    ledger.save()
    assert not lay(**{FIRST: {"1g.18gb": 7}})[0]
    assert not lay(**{FIRST: {"1g.18gb": 7}})[1]["changed"]
    assert of_textfile.read_text() == "the textfile's"


def test_before_the_driver_runs_the_layout_is_kept_for_the_boot(host, lay):
    (host.root / "version").unlink()
    failed, result = lay(**{FIRST: {"1g.18gb": 0}})
    assert (failed, result["changed"]) == (False, True)
    (host.root / "version").write_text("NVRM version: x  580.159.04  y\n")
    done = boot(host)
    assert (done.returncode, host.layouts[FIRST]) == (0, "7 x 1g.18gb"), done.stderr
    assert lay(**{FIRST: {"1g.18gb": 0}})[0] is False
    assert host.ledger.state["mig"]["wanted"][FIRST]["instances"][0]["start"] == 0


def test_a_gpu_that_is_no_longer_named_gets_back_what_it_had(host, lay):
    env = process.environment()
    mig.lay({SECOND: {"enabled": True, "instances": [{"profile": "2g.35gb", "count": 1, "compute": []}]}}, env)
    assert not lay(**{FIRST: {"1g.18gb": 7}, SECOND: {"7g.141gb": 1}})[0]
    assert not lay(**{FIRST: {"1g.18gb": 7}})[0]
    assert host.layouts == {FIRST: "7 x 1g.18gb", SECOND: "1 x 2g.35gb"}
    assert sorted(host.ledger.state["mig"]["found"]) == [FIRST]
    failed, result = lay()
    assert (failed, result["changed"], host.layouts[FIRST]) == (False, True, "off")
    assert host.ledger.state["mig"] == {}
    assert not (host.root / "usr/local/lib/gpusetup").exists()
    assert not Path(mig_kept.UNIT).exists()
    assert lay()[1]["changed"] is False


def test_removal_brings_back_what_was_there_before_the_first_apply(host, lay):
    env = process.environment()
    mig.lay({FIRST: {"enabled": True, "instances": [{"profile": "3g.71gb", "count": 2, "compute": []}]}}, env)
    assert not lay(**{FIRST: {"1g.18gb": 7}})[0]
    assert not lay(**{FIRST: {"1g.18gb": 2}})[0]
    ledger = host.ledger
    assert mig_kept.undo(ledger, env) == [f"MIG layout of {FIRST}"]
    assert host.layouts[FIRST] == "2 x 3g.71gb"
    assert ledger.state["mig"] == {}


def test_who_comes_second_waits(host, lay):
    import fcntl
    import threading

    with (host.root / "lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        wish = {FIRST: {"enabled": True, "instances": [{"profile": "7g.141gb", "count": 1, "compute": []}]}}
        second = threading.Thread(target=mig.lay, args=(wish, process.environment()))
        second.start()
        second.join(0.5)
        assert second.is_alive()
        assert host.layouts[FIRST] == "off"
    second.join(20)
    assert host.layouts[FIRST] == "1 x 7g.141gb"


def test_nvidia_s_own_unit_brings_it_back_where_it_is_installed(host, lay):
    host.unit("nvidia-mig-manager.service", "inactive")
    assert not lay(**{SECOND: {"1g.18gb": 7}, FIRST: None})[0]
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


def test_a_gpu_that_is_gone_is_said(lay):
    failed, result = lay(**{"0000:00:20.0": {"1g.18gb": 7}})
    assert failed
    assert result["gpu_failure"]["message"] == "no GPU answers at 0000:00:20.0"
