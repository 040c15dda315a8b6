"""The IMEX domain of a host; systemctl is a stand-in."""

import os
import time
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import names
from ansible_collections.gpusetup.stack.plugins.modules import gpu_imex

from tests.modules.gpu_host_stand_in import Units
from tests.modules.stand_ins import below, write

UNIT = "gpusetup-imex-channels.service"
IP = "#!/bin/sh\necho '1: lo    inet 127.0.0.1/8 scope host lo'\necho '2: eth0    inet6 fd00::2/64 scope global'\n"
DEVICES = "Character devices:\n195 nvidia\n242 nvidia-caps-imex-channels\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = Units(tmp_path, monkeypatch, {"ip": IP})
    made.unit("nvidia-imex.service", "inactive")
    below(tmp_path, monkeypatch, {names: "IMEX_NODES IMEX_UNIT", gpu_imex: "DEVICES"})
    write(tmp_path, {"proc/devices": DEVICES})
    return made


@pytest.fixture
def configure(host, run_module):
    return lambda *nodes, **more: run_module(gpu_imex, host=host.given, nodes=list(nodes), **more)


def test_the_list_the_channels_and_the_service(host, configure):
    configure("192.0.2.1", "192.0.2.2", fails="GS-439")
    assert (Path(names.IMEX_NODES).exists(), host.did()) == (False, [])
    result = configure("127.0.0.1", "10.9.8.7", channels=4)
    assert (result["changed"], result["pending"]) == (True, [])
    assert Path(names.IMEX_NODES).read_text() == "127.0.0.1\n10.9.8.7\n"
    assert "seq 0 3" in Path(names.IMEX_UNIT).read_text()
    assert {f"enable --now {UNIT}", "enable --now nvidia-imex.service", "daemon-reload"} <= set(host.did())
    os.utime(host.root / "units" / UNIT, (1, 1))  # it ran before its file was written, and made no channels
    host.forget()
    assert configure("127.0.0.1", "10.9.8.7", channels=4)["changed"] is True
    assert host.did() == [f"restart {UNIT}"]


def test_what_was_there_before_comes_back(configure):
    path = Path(names.IMEX_NODES)
    write(path.parent, {path.name: "# NVIDIA's own\n"})
    configure("127.0.0.1")
    assert configure()["changed"] is True
    assert path.read_text() == "# NVIDIA's own\n"
    assert not Path(names.IMEX_UNIT).exists()
    assert configure()["changed"] is False


def test_before_the_driver_runs_it_waits_for_the_boot(host, configure):
    write(host.root, {"proc/devices": "Character devices:\n195 nvidia\n"})
    assert configure("127.0.0.1")["pending"] == ["IMEX starts with the driver, at the next boot"]
    assert f"enable {UNIT}" in host.did()
    assert not [line for line in host.did() if "--now" in line]


def test_the_shell_of_the_unit_makes_the_device_files(tmp_path):
    """The unit's own line, with folders of ours and a mknod that makes plain files."""
    line = next(item for item in names.imex_unit(3).split("ExecStart=")[1:])
    text = line.partition("\n\n")[0].replace("\\\n", "").partition("-c '")[2].rpartition("'")[0].replace("$$", "$")
    text = text.replace("/dev/", f"{tmp_path}/dev/").replace("/proc/devices", f"{tmp_path}/devices")
    write(tmp_path, {"devices": DEVICES, "mknod": '#!/bin/sh\necho "$@" >"$3"\n'}, 0o755)
    assert os.system(f"PATH={tmp_path}:$PATH; {text}") == 0
    made = sorted((tmp_path / "dev/nvidia-caps-imex-channels").iterdir())
    assert [item.name for item in made] == ["channel0", "channel1", "channel2"]
    assert made[2].read_text().split()[:2] + made[2].read_text().split()[3:] == ["-m", "0666", "c", "242", "2"]


def test_a_list_that_changed_restarts_the_service_until_it_has_it(host, configure):
    configure("127.0.0.1")
    os.utime(host.root / "units/nvidia-imex.service", (time.time() - 9,) * 2)  # it has run for a while
    longer = partial(configure, "127.0.0.1", "10.9.8.7")
    host.refuse("start", "nvidia-imex.service")
    for _time in range(2):
        longer(fails="GS-487")
    host.refuse()
    host.forget()
    assert longer()["changed"] is True
    assert "restart nvidia-imex.service" in host.did()
    assert longer()["changed"] is False
