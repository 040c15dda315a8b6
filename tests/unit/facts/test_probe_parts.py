"""The parts of the probe that read text: one small machine per case, built in a folder."""

import gzip

import pytest

from gpusetup.content import host_code
from tests.lab.repository.elf import module
from tests.stored import stored_rows

system, kernels, modules, drivers, firmware, package, facts = (
    host_code(f"gpu_probe.{part}") for part in ("system", "kernels", "modules", "drivers", "firmware", "host", "facts")
)  # fmt: skip


@pytest.mark.parametrize(("text", "family", "label_id"), stored_rows("os-releases.json"))
def test_os_release(machine, text, family, label_id):
    told = system.os_release(machine.put("/etc/os-release", text).host())
    assert (told["family"], told["id"]) == (family, label_id)


def kernels_of(machine, *releases):
    for release in releases:
        machine.put(f"/boot/vmlinuz-{release}").put(f"/lib/modules/{release}/modules.dep")
    return kernels.collect(machine.answer("kernel", releases[0]).host())


NINE, TEN = "6.1.0-9-amd64", "6.1.0-10-amd64"
MENU = "saved_entry=gnulinux-advanced-1f0c>gnulinux-6.1.0-9-amd64-advanced-1f0c\n"
ONCE = f"saved_entry=gnulinux-{TEN}\nnext_entry=gnulinux-{NINE}\n"
NAMED = f'GRUB_DEFAULT="Advanced options>Debian, with Linux {NINE}"  # until 6.1.0-10 works\n'


@pytest.mark.parametrize(
    ("default", "saved", "boots"),
    [
        ("", "", TEN),  # ten is newer than nine
        ("GRUB_DEFAULT=saved\n", MENU, NINE),  # as a real machine has it
        ("GRUB_DEFAULT=0\n", ONCE, NINE),  # grub-reboot comes before every default
        (NAMED, "", NINE),
    ],
)
def test_the_newest_kernel_boots_next_unless_grub_is_told_another(machine, default, saved, boots):
    machine.put("/etc/default/grub.d/kernel.cfg", default).put("/boot/grub/grubenv", saved)
    told = kernels_of(machine.put(f"/boot/vmlinuz-{TEN}.old"), NINE, TEN)
    assert (told["running"], told["next"]) == (NINE, boots)
    assert [kernel["release"] for kernel in told["installed"]] == [NINE, TEN]


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


@pytest.mark.parametrize(("text", "compiler"), stored_rows("kernels-compilers.json"))
def test_the_compiler_of_the_kernel(text, compiler):
    assert kernels._compiler(text) == compiler


@pytest.mark.parametrize(
    ("licence", "flavour"),
    [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary"), ("MODULE_LICENSE_UNKNOWN", "proprietary")],
)
@pytest.mark.parametrize("name", ["nvidia.ko", "nvidia-current.ko", "nvidia-current-open.ko", "nvidia-tesla-535.ko"])
def test_version_and_flavour_of_a_module_file(machine, name, licence, flavour):
    path = f"/lib/modules/{NINE}/updates/dkms/{name}"
    machine.put(path, module({"license": licence, "version": "580.95.05"}))
    told = modules.modinfo(package.LiveHost(), str(machine.root) + path)
    assert told == {"version": "580.95.05", "license": licence, "signed": False, "signer": None, "key": None}
    found = modules.find(machine.answer(f"modinfo:{path}", told).host(), NINE)
    assert (found["version"], found["flavour"]) == ("580.95.05", flavour)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("nvidia.ko", b"not a module", "no 64-bit ELF file"),
        ("nvidia.ko", module({})[:62] + b"\t\0" + module({})[64:], "list index out of range"),
        ("nvidia.ko.gz", gzip.compress(bytes(99))[:10] + b"\xff" * 20, "invalid block type"),
    ],
    ids=["text", "sections", "gz"],
)
def test_a_damaged_module_file_is_noted(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    host = package.LiveHost()
    assert modules.modinfo(host, str(tmp_path / name)) is None
    assert words in host.unreadable["kernel.installed.nvidia"]


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


@pytest.mark.parametrize(("inside", "barred", "loads"), [(True, False, True), (True, True, False), (None, None, None)])
def test_what_the_next_boot_would_load(machine, inside, barred, loads):
    image = f"/boot/initrd.img-{NINE}"
    machine.put(f"/boot/vmlinuz-{NINE}").put(image).answer("kernel", NINE)
    machine.put("/etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\n")
    machine.put(f"/lib/modules/{NINE}/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko: x\n")
    machine.put(f"/lib/modules/{NINE}/kernel/drivers/gpu/drm/nouveau/nouveau.ko")
    why = "cut" if inside is None else None
    host = machine.answer("initramfs:" + image, {"nouveau": inside, "blacklist": barred, "why": why}).host()
    told = drivers.nouveau(host, kernels.collect(host), [])
    assert (told["blacklisted"], told["in_initramfs"], told["loads_at_boot"]) == (True, inside, loads)


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
