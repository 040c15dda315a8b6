"""The parts of the probe that read text, and what a diagnosis asks of a machine: one small machine per case, in a folder."""

import json

import msgspec
import pytest

from gpusetup.content import host_code
from gpusetup.model.diagnosis import Symptoms

kernels, modules, facts = (host_code(f"gpu_probe.{part}") for part in ("kernels", "modules", "facts"))


def kernels_of(machine, *releases):
    for release in releases:
        machine.put(f"/boot/vmlinuz-{release}").put(f"/lib/modules/{release}/modules.dep")
    return kernels.collect(machine.answer("kernel", releases[0]).host())


NINE = "6.1.0-9-amd64"


def test_boot_entries_of_red_hat(machine):
    for release, argument in (("5.14.0-1", "nouveau.modeset=0"), ("5.14.0-2", "iommu=off")):
        text = f"version {release}.el9.x86_64\noptions ro {argument}\n"
        machine.put(f"/boot/loader/entries/abc-{release}.el9.x86_64.conf", text)
    machine.put("/boot/grub2/grubenv", "saved_entry=abc-5.14.0-1.el9.x86_64\n")
    told = kernels_of(machine, "5.14.0-1.el9.x86_64", "5.14.0-2.el9.x86_64")
    assert (told["next"], told["cmdline_next"]) == ("5.14.0-1.el9.x86_64", ["nouveau.modeset=0"])


def test_only_arguments_that_matter_are_told():
    line = "root=UUID=abc ro quiet modprobe.blacklist=nouveau,foo rd.driver.blacklist=nouveau intel_iommu=on password=x"
    matter = ["modprobe.blacklist=nouveau,foo", "rd.driver.blacklist=nouveau", "intel_iommu=on"]
    assert kernels.gpu_arguments(line) == matter


PROC, SYS = "/proc/driver/nvidia/version", "/sys/module/nvidia/version"
NVRM = "NVRM version: NVIDIA UNIX {}\n"


@pytest.mark.parametrize(
    ("path", "text", "version", "flavour"),
    [
        (PROC, NVRM.format("Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)"), "580.159.04", "open"),
        (PROC, NVRM.format("x86_64 Kernel Module  535.309.01  Mon Jan  1"), "535.309.01", "proprietary"),
        (PROC, NVRM.format("Open Kernel Module for aarch64  590.48.01  Release Build"), "590.48.01", "open"),
        (PROC, NVRM.format("x86_64 Kernel Module  610.43  Release"), "610.43", "proprietary"),
        (SYS, "550.54.15\n", "550.54.15", None),
    ],
)
def test_the_loaded_module(machine, path, text, version, flavour):
    assert modules.loaded_nvidia(machine.put(path, text).host()) == {"version": version, "flavour": flavour}


def test_the_compiler_comes_from_the_configuration_of_the_next_kernel(machine):
    machine.put("/proc/version", "Linux version 6.1 (a@b) (gcc-12 (Debian) 12.2.0, GNU ld)")
    text = 'CONFIG_X=y\nCONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"\n'
    host = machine.put("/boot/config-6.12.0-1-amd64", text).host()
    assert [kernels.compiler(host, release) for release in ("6.12.0-1-amd64", NINE)] == ["gcc-14", "gcc-12"]


@pytest.mark.parametrize(
    ("files", "running", "boots"),
    [
        ((), "6.1.0-50-amd64", "6.1.0-50-amd64"),
        # Its kernel is never the outer machine's.
        (("lib/modules/6.1.0-56-amd64/build/Makefile", "lib/modules/6.1.0-9-amd64/build/Makefile"), "6.1.0-56-amd64", "6.1.0-56-amd64"),
        (("boot/vmlinuz-6.1.0-56-amd64", "boot/vmlinuz-6.1.0-50-amd64"), "6.1.0-50-amd64", "6.1.0-56-amd64"),
    ],
)  # fmt: skip
def test_a_simulated_host_is_its_captured_machine_with_its_own_packages(machine_in, files, running, boots):
    own, captured = machine_in("own"), machine_in("captured")
    own.answer("kernel", "5.4.0-outer-machine").put("/etc/os-release", "ID=debian\n")
    for path in files:
        own.put(path)
    own.put("/.dockerenv").put("/proc/modules", "nvidia 1 0 - Live 0x0\n")
    card = "/sys/bus/pci/devices/0000:00:04.0"
    captured.put("/sys/class/dmi/id/sys_vendor", "Google\n").put("/proc/sys/kernel/osrelease", "6.1.0-50-amd64\n")
    captured.put(f"{card}/class", "0x030200\n").put(f"{card}/vendor", "0x10de\n")
    told = facts.collect(own.host(), captured.host())
    assert (told["simulated"], told["modules"], len(told["gpus"])) == (True, ["nvidia"], 1)
    assert (told["virtualisation"]["driver_refused"], told["virtualisation"]["cloud"]) == (None, "gcp")
    kernel = told["kernel"]
    assert (kernel["running"], kernel["next"]) == (running, boots)
    assert ("lib" in "".join(files)) is (kernel["next_basis"] == "simulated: newest headers on the host")


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
