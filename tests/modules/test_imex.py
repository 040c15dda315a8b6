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


def test_what_was_there_before_comes_back(configure):
    path = Path(names.IMEX_NODES)
    write(path.parent, {path.name: "# NVIDIA's own\n"})
    configure("127.0.0.1")
    assert configure()["changed"] is True
    assert path.read_text() == "# NVIDIA's own\n"
    assert not Path(names.IMEX_UNIT).exists()
    assert configure()["changed"] is False


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
