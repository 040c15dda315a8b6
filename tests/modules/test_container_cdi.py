"""Container runtimes are told of the GPUs (CDI): by the unit that is there, of the driver that is loaded. nvidia-ctk is a stand-in."""

import os
import time

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import cdi, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

from tests.modules.container_host import Host, made_call, made_host  # noqa: F401 - fixtures

DRIVER = "580.178.04"


@pytest.fixture(autouse=True)
def _loaded(host):
    host.load(DRIVER)
    host.units()


def described():
    return containers.collect(LiveHost(), {})["cdi_drivers"]


def test_podman_needs_the_specification_alone(call, host):
    assert call("podman", check=True)["changed"]
    assert not host.file("run/cdi").exists()
    assert call("podman")["changed"]
    assert (containers.collect(LiveHost(), {})["configured"], described()) == (["podman"], [DRIVER])
    assert not call("podman")["changed"]
    assert not host.tree()  # the toolkit's own units do it: nothing of ours is left behind


def test_before_the_driver_is_loaded_the_next_boot_describes_it_and_another_driver_is_described_anew(call, host):
    """The unit stays active once it has run: to start it does nothing."""
    host.load("")
    assert [call(cdi=True)["changed"] for _time in range(2)] == [True, False]
    assert "restart nvidia-cdi-refresh" not in host.did
    host.load(DRIVER)
    call(cdi=True)
    host.load("590.48.01")
    assert call(cdi=True, check=True)["changed"]
    assert call(cdi=True)["changed"]
    assert described() == ["590.48.01"]
    assert not call(cdi=True)["changed"]


def test_a_unit_that_will_not_is_not_waited_for(call, host):
    """Its conditions look for packages' modules: a driver from a .run file has none there."""
    host.file("unwilling", "")
    assert call(cdi=True)["changed"]
    assert host.file("run/cdi/nvidia.yaml").exists()


def test_a_toolkit_that_cannot_describe_says_so(call, host):
    host.program("nvidia-ctk", "#!/bin/sh\necho 'failed to initialize NVML' >&2\nexit 1\n")
    call(cdi=True, fails=("does not describe the GPUs", "failed to initialize NVML"))


def test_an_older_toolkit_gets_a_unit_that_goes_again(call, host):
    host.toolkit("1.17.8")
    for unit in cdi.REFRESH:
        (host.root / "units" / unit).unlink()
    assert call(cdi=True)["changed"]
    unit = host.file("etc/systemd/system/gpusetup-cdi.service").read_text()
    assert f"ExecStart={host.root}/bin/nvidia-ctk cdi generate --output={host.root}/run/cdi/nvidia.yaml" in unit
    assert "daemon-reload" in host.did
    assert "enable gpusetup-cdi.service" in host.did
    (host.root / "units/gpusetup-cdi.service").write_text("active")
    assert not call(cdi=True)["changed"]
    host.remove()
    assert not host.tree()


def test_a_persons_own_description_stays(call, host):
    text = "libcuda.so." + DRIVER
    file = host.file("etc/cdi/nvidia.yaml", text)
    for _time in range(2):
        call(cdi=True)
    assert file.read_text() == text


def test_without_its_toolkit_a_description_goes(host):
    place = host.file("run/cdi/nvidia.yaml", "{}")
    assert cdi.forget(False, {"PATH": f"{host.root}/bin"}) == []
    (host.root / "bin/nvidia-ctk").unlink()
    assert cdi.forget(True, {"PATH": f"{host.root}/bin"}) == [str(place)]
    assert place.exists()
    assert cdi.forget(False, {"PATH": f"{host.root}/bin"}) == [str(place)]
    assert not place.exists()


def test_a_description_that_is_older_than_the_layouts_of_the_gpus_is_made_anew(call, host):
    for unit in cdi.REFRESH:
        (host.root / "units" / unit).unlink()
    call(cdi=True)
    layouts, env = host.file("etc/gpusetup/mig.json"), process.environment()
    assert not cdi.describe_again([str(host.root / "bin")], env)
    layouts.parent.mkdir(parents=True)
    layouts.write_text("{}")
    os.utime(cdi.PLACE, (5, 5))
    assert cdi.describe_again([str(layouts)], env)
    os.utime(layouts, (time.time() + 99,) * 2)
    assert not cdi.describe_again([str(layouts)], env), "a clock that was wrong does not have it made on every run"
    os.utime(layouts, (1, 1))
    assert not cdi.describe_again([str(layouts)], env)
