"""What drivers are installed, whether their parts fit together, and what else a diagnosis asks of a machine."""

import json

import msgspec
import pytest

from gpusetup.content import host_code
from gpusetup.model.diagnosis import Symptoms

OS_RELEASE = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian 12"\n'


@pytest.fixture
def symptoms(machine):
    def look(environment=None):
        host = machine.put("/etc/os-release", OS_RELEASE).host()
        part = host_code("gpu_probe.symptoms")
        surroundings = part.surroundings(host) if environment is None else environment
        told = part.collect(host, host_code("gpu_probe.facts").collect(host, None, False), surroundings)
        # It travels as JSON, and the model takes every field of it.
        return msgspec.convert(json.loads(json.dumps(told)), Symptoms)

    return look


def test_of_the_environment_only_what_is_asked_is_taken(machine, symptoms):
    machine.put("/etc/environment", "export LD_LIBRARY_PATH='/a:/b'\nHF_TOKEN=planted\n# CUDA_VISIBLE_DEVICES=9\n")
    machine.answer("environment", {"CUDA_VISIBLE_DEVICES": "0"})
    assert symptoms().environment == {"LD_LIBRARY_PATH": "/a:/b", "CUDA_VISIBLE_DEVICES": "0"}


def test_a_recording_keeps_of_the_environment_file_only_what_is_asked(machine):
    machine.put("/etc/environment", "HF_TOKEN=planted\nVIRTUAL_ENV=/opt/venv\n").host()
    recorder = host_code("gpu_probe.host").FolderRecorder(str(machine.root))
    assert host_code("gpu_probe.symptoms").surroundings(recorder) == {"VIRTUAL_ENV": "/opt/venv"}
    assert recorder.files["/etc/environment"] == b"VIRTUAL_ENV=/opt/venv\n"


def test_secrets_stay_on_the_machine(machine, symptoms):
    machine.put("/var/log/dmesg", "NVRM: loading\npassword=planted\nhttp://user:planted@host/\n")
    machine.put("/etc/environment", "LD_LIBRARY_PATH=https://user:planted@host/\n")
    machine.put("/var/lib/dkms/nvidia/580.1/source/dkms.conf", 'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="580.1"\n')
    machine.put("/var/lib/dkms/nvidia/580.1/build/make.log", "token: planted\nx.c:1:1: error: no\n")
    found = symptoms()
    assert "NVRM: loading" in found.kernel_log
    assert "x.c:1:1: error: no" in found.builds[0].text
    assert "planted" not in str(found)


def test_only_the_messages_since_the_last_boot_count(machine, symptoms):
    machine.put("/var/log/kern.log", "Linux version 5\nNVRM: old\nLinux version 6\nNVRM: new\n")
    assert symptoms().kernel_log == "Linux version 6\nNVRM: new\n"


def test_the_loaders_choices_follow_links_and_the_path(machine, symptoms):
    folder = "/usr/lib/x86_64-linux-gnu"
    machine.put(f"{folder}/libcuda.so.580.1").link(f"{folder}/libcuda.so.1", "libcuda.so.580.1")
    machine.put("/opt/compat/libcuda.so.535.1").link("/opt/path/libcuda.so.1", "../compat/libcuda.so.535.1")
    files = symptoms({"LD_LIBRARY_PATH": "/nowhere:/opt/path/"}).libraries["libcuda.so.1"]
    assert [(file.path, file.leads_to) for file in files] == [
        ("/opt/path/libcuda.so.1", "/opt/compat/libcuda.so.535.1"),
        (f"{folder}/libcuda.so.1", f"{folder}/libcuda.so.580.1"),
    ]


drivers = host_code("gpu_probe.drivers")


def driver(machine, *there, kernels=()):
    """What is installed, by name, version and origin, and what kernels there are."""
    packages = {name: {"version": version, "state": "installed", "origin": origin} for name, version, origin in there}
    return drivers.collect(machine.host(), {"installed": list(kernels), "next": "6.1"}, packages, "x86_64-linux-gnu")


def test_two_origins_are_both_named(machine):
    distribution = ("nvidia-driver", "535.309.01-0+deb12u1", "distribution")
    told = driver(machine, distribution, ("libnvidia-compute-580", "580.95.05-1", "nvidia"))
    assert told["origins"] == ["distribution", "nvidia"]
    versions = {item["origin"]: item["version"] for item in told["installs"]}
    assert versions == {"distribution": "535.309.01", "nvidia": "580.95.05"}


def test_a_module_of_the_next_kernel_decides_the_version(machine):
    old = {"release": "6.0", "nvidia": {"version": "550.1", "flavour": "open"}}
    new = {"release": "6.1", "nvidia": {"version": "580.95.05", "flavour": "proprietary"}}
    told = driver(machine, kernels=[old, new])
    assert (told["version"], told["flavour"], told["module"]) == ("580.95.05", "proprietary", "580.95.05")
