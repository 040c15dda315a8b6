"""What drivers are installed, from whom, and whether their parts fit together."""

import pytest

from gpusetup.content import host_code

drivers = host_code("gpu_probe.drivers")


def driver(machine, *there, kernels=()):
    """What is installed, by name, version and origin, and what kernels there are."""
    packages = {name: {"version": version, "state": "installed", "origin": origin} for name, version, origin in there}
    return drivers.collect(machine.host(), {"installed": list(kernels), "next": "6.1"}, packages, "x86_64-linux-gnu")


def test_no_trace_is_no_driver(machine):
    names = ("nvidia-container-toolkit", "nvidia-driver-assistant", "nvidia-driver-pinning-580")
    assert driver(machine, *((name, "580-1", "nvidia") for name in names)) is None


def test_two_origins_are_both_named(machine):
    distribution = ("nvidia-driver", "535.309.01-0+deb12u1", "distribution")
    told = driver(machine, distribution, ("libnvidia-compute-580", "580.95.05-1", "nvidia"))
    assert told["origins"] == ["distribution", "nvidia"]
    versions = {item["origin"]: item["version"] for item in told["installs"]}
    assert versions == {"distribution": "535.309.01", "nvidia": "580.95.05"}


LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def test_libraries_and_module_that_differ_are_a_mismatch(machine):
    machine.put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  x\n")
    machine.put(f"{LIBRARIES}/libnvidia-ml.so.550.54.15").put(f"{LIBRARIES}/libnvidia-ml.so.1")
    told = driver(machine)
    assert (told["mismatch"], told["library"], told["loaded"]["version"]) == (True, "550.54.15", "550.54.14")


def test_libraries_of_the_debian_alternative(machine):
    machine.put(f"{LIBRARIES}/nvidia/current/libcuda.so.535.309.01")
    assert driver(machine)["library"] == "535.309.01"


def test_a_module_of_the_next_kernel_decides_the_version(machine):
    old = {"release": "6.0", "nvidia": {"version": "550.1", "flavour": "open"}}
    new = {"release": "6.1", "nvidia": {"version": "580.95.05", "flavour": "proprietary"}}
    told = driver(machine, kernels=[old, new])
    assert (told["version"], told["flavour"], told["module"]) == ("580.95.05", "proprietary", "580.95.05")


@pytest.mark.parametrize(
    ("files", "states"),
    [
        ({"source/dkms.conf": ""}, ["added"]),
        ({"source/dkms.conf": "", "build/make.log": "error"}, ["failed"]),
        ({"source/dkms.conf": "", "6.1/x86_64/module/nvidia.ko": ""}, ["built"]),
    ],
)
def test_dkms_states(machine, files, states):
    for path, content in files.items():
        machine.put("/var/lib/dkms/nvidia/580.95.05/" + path, content)
    assert [item["state"] for item in drivers.dkms(machine.host())] == states
    machine.put("/lib/modules/6.1/updates/dkms/nvidia.ko")
    if states == ["built"]:
        assert drivers.dkms(machine.host())[0]["state"] == "installed"
