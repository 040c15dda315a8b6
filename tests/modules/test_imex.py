"""The IMEX domain of a host; systemctl is a stand-in."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import names
from ansible_collections.gpusetup.stack.plugins.modules import gpu_imex

from tests.modules.gpu_host_stand_in import SYSTEMCTL

UNIT = "gpusetup-imex-channels.service"


@pytest.fixture
def root(tmp_path, monkeypatch):
    for folder in ("bin", "units"):
        (tmp_path / folder).mkdir()
    (tmp_path / "did").write_text("")
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    (tmp_path / "bin/ip").write_text(
        "#!/bin/sh\necho '1: lo    inet 127.0.0.1/8 scope host lo'\necho '2: eth0    inet6 fd00::2/64 scope global'\n"
    )
    (tmp_path / "bin/ip").chmod(0o755)
    (tmp_path / "units/nvidia-imex.service").write_text("inactive")
    (tmp_path / "devices").write_text("Character devices:\n195 nvidia\n242 nvidia-caps-imex-channels\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_ROOT", str(tmp_path))
    monkeypatch.setattr(names, "IMEX_NODES", f"{tmp_path}/etc/nvidia-imex/nodes_config.cfg")
    monkeypatch.setattr(names, "IMEX_UNIT", f"{tmp_path}/etc/systemd/system/{UNIT}")
    monkeypatch.setattr(systemd, "FOLDER", f"{tmp_path}/etc/systemd/system")
    monkeypatch.setattr(gpu_imex, "DEVICES", str(tmp_path / "devices"))
    return tmp_path


@pytest.fixture
def configure(root, run_module):
    def call(*nodes, **more):
        answer: tuple[bool, dict[str, Any]] = run_module(
            gpu_imex, host={"state_dir": str(root / "state")}, nodes=list(nodes), **more
        )
        return answer

    return call


def did(root):
    return [line for line in (root / "did").read_text().splitlines() if not line.startswith("show")]


def test_the_list_the_channels_and_the_service(root, configure):
    failed, result = configure("127.0.0.1", "10.9.8.7", channels=4)
    assert (failed, result["changed"], result["pending"]) == (False, True, []), result
    assert Path(names.IMEX_NODES).read_text() == "127.0.0.1\n10.9.8.7\n"
    assert "seq 0 3" in Path(names.IMEX_UNIT).read_text()
    assert {f"enable --now {UNIT}", "enable --now nvidia-imex.service", "daemon-reload"} <= set(did(root))


def test_channels_that_were_written_and_never_made_are_made_by_the_next_call(root, configure):
    configure("127.0.0.1", channels=4)
    os.utime(root / "units" / UNIT, (1, 1))  # it ran before its file was written
    (root / "did").write_text("")
    assert configure("127.0.0.1", channels=4)[1]["changed"] is True
    assert did(root) == [f"restart {UNIT}"]


def test_what_was_there_before_comes_back(root, configure):
    path = Path(names.IMEX_NODES)
    path.parent.mkdir(parents=True)
    path.write_text("# NVIDIA's own\n")
    assert not configure("127.0.0.1")[0]
    assert configure()[1]["changed"] is True
    assert path.read_text() == "# NVIDIA's own\n"
    assert not Path(names.IMEX_UNIT).exists()
    assert configure()[1]["changed"] is False


def test_a_list_without_this_host_is_refused_untouched(root, configure):
    failed, result = configure("192.0.2.1", "192.0.2.2")
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-439"
    assert not Path(names.IMEX_NODES).exists()
    assert did(root) == []


def test_before_the_driver_runs_it_waits_for_the_boot(root, configure):
    (root / "devices").write_text("Character devices:\n195 nvidia\n")
    failed, result = configure("127.0.0.1")
    assert (failed, result["pending"]) == (False, ["IMEX starts with the driver, at the next boot"])
    assert f"enable {UNIT}" in did(root)
    assert not [line for line in did(root) if "--now" in line]


def test_the_shell_of_the_unit_makes_the_device_files(tmp_path):
    """The unit's own line, with folders of ours and a mknod that makes plain files."""
    line = next(item for item in names.imex_unit(3).split("ExecStart=")[1:])
    text = line.partition("\n\n")[0].replace("\\\n", "").partition("-c '")[2].rpartition("'")[0].replace("$$", "$")
    (tmp_path / "devices").write_text("195 nvidia\n242 nvidia-caps-imex-channels\n")
    text = text.replace("/dev/", f"{tmp_path}/dev/").replace("/proc/devices", f"{tmp_path}/devices")
    (tmp_path / "mknod").write_text('#!/bin/sh\necho "$@" >"$3"\n')
    (tmp_path / "mknod").chmod(0o755)
    assert os.system(f"PATH={tmp_path}:$PATH; {text}") == 0
    made = sorted((tmp_path / "dev/nvidia-caps-imex-channels").iterdir())
    assert [item.name for item in made] == ["channel0", "channel1", "channel2"]
    assert made[2].read_text().split()[:2] + made[2].read_text().split()[3:] == ["-m", "0666", "c", "242", "2"]


def test_a_list_that_changed_restarts_the_service_until_it_has_it(root, configure):
    configure("127.0.0.1")
    os.utime(root / "units/nvidia-imex.service", (time.time() - 9, time.time() - 9))  # it has run for a while
    (root / "refused").write_text("start nvidia-imex.service\n")
    for _time in range(2):
        failed, result = configure("127.0.0.1", "10.9.8.7")
        assert (failed, result["gpu_failure"]["reference"]) == (True, "GS-487")
    (root / "refused").write_text("")
    (root / "did").write_text("")
    failed, result = configure("127.0.0.1", "10.9.8.7")
    assert (failed, result["changed"]) == (False, True)
    assert "restart nvidia-imex.service" in did(root)
    again = configure("127.0.0.1", "10.9.8.7")[1]
    assert again["changed"] is False
