"""The parts of the probe that read text: one small machine per case, built in a folder."""

import gzip
import lzma
import struct

import pytest

from gpusetup.content import host_code

package = host_code("gpu_probe.host")


@pytest.mark.parametrize(
    ("text", "family", "label_id"),
    [
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n', "redhat", "rocky"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=24.04\n", "debian", "ubuntu"),
        ("ID='pop'\nID_LIKE='ubuntu debian'\n", "debian", "pop"),
        ('ID="amzn"\nVERSION_ID="2023"\n', "redhat", "amzn"),
        ('ID="opensuse-leap"\nVERSION_ID="15.6"\n', "suse", "opensuse-leap"),
        ("ID=arch\n", "unknown", "arch"),
        ("", "unknown", "unknown"),
    ],
)
def test_os_release(machine, text, family, label_id):
    told = host_code("gpu_probe.system").os_release(machine.put("/etc/os-release", text).host())
    assert (told["family"], told["id"]) == (family, label_id)


def kernels_of(machine, *releases, running=None):
    for release in releases:
        machine.put(f"/boot/vmlinuz-{release}").put(f"/lib/modules/{release}/modules.dep")
    machine.answer("kernel", running or releases[0])
    return host_code("gpu_probe.kernels").collect(machine.host())


def test_the_newest_kernel_boots_next_and_ten_is_newer_than_nine(machine):
    told = kernels_of(machine, "6.1.0-9-amd64", "6.1.0-10-amd64")
    assert (told["running"], told["next"]) == ("6.1.0-9-amd64", "6.1.0-10-amd64")
    assert [kernel["release"] for kernel in told["installed"]] == ["6.1.0-9-amd64", "6.1.0-10-amd64"]


def test_a_saved_default_wins_over_the_newest(machine):
    machine.put("/etc/default/grub", "GRUB_DEFAULT=saved\n")
    machine.put("/boot/grub/grubenv", "saved_entry=gnulinux-6.1.0-9-amd64-advanced\n")
    assert kernels_of(machine, "6.1.0-10-amd64", "6.1.0-9-amd64")["next"] == "6.1.0-9-amd64"


def test_a_saved_default_with_the_menu_of_a_real_machine(machine):
    entry = "gnulinux-advanced-1f0c>gnulinux-6.1.0-9-amd64-advanced-1f0c"
    machine.put("/etc/default/grub", "GRUB_DEFAULT=saved\n").put("/boot/grub/grubenv", f"saved_entry={entry}\n")
    assert kernels_of(machine, "6.1.0-10-amd64", "6.1.0-9-amd64")["next"] == "6.1.0-9-amd64"


@pytest.mark.parametrize("default", ["", "GRUB_DEFAULT=0\n", "GRUB_DEFAULT=saved\n"])
def test_the_kernel_of_grub_reboot_comes_before_every_default(machine, default):
    once = "saved_entry=gnulinux-6.1.0-10-amd64\nnext_entry=gnulinux-6.1.0-9-amd64\n"
    machine.put("/etc/default/grub", default).put("/boot/grub/grubenv", once)
    assert kernels_of(machine, "6.1.0-9-amd64", "6.1.0-10-amd64")["next"] == "6.1.0-9-amd64"


def test_a_named_default_entry(machine):
    machine.put("/etc/default/grub", "GRUB_DEFAULT=0  # the newest\n")
    named = 'GRUB_DEFAULT="Advanced options>Debian, with Linux 6.1.0-9-amd64"  # until 6.1.0-10 works\n'
    machine.put("/etc/default/grub.d/kernel.cfg", named)
    assert kernels_of(machine, "6.1.0-9-amd64", "6.1.0-10-amd64")["next"] == "6.1.0-9-amd64"


def test_boot_entries_of_red_hat(machine):
    machine.put("/boot/loader/entries/abc-5.14.0-1.el9.x86_64.conf", "options ro nouveau.modeset=0\n")
    machine.put("/boot/grub2/grubenv", "saved_entry=abc-5.14.0-1.el9.x86_64\n")
    told = kernels_of(machine, "5.14.0-1.el9.x86_64", "5.14.0-2.el9.x86_64")
    assert told["next"] == "5.14.0-1.el9.x86_64"
    assert told["cmdline_next"] == ["nouveau.modeset=0"]


def test_without_an_image_the_running_kernel_stays(machine):
    machine.answer("kernel", "6.18.0-custom")
    told = host_code("gpu_probe.kernels").collect(machine.host())
    assert told["next"] == "6.18.0-custom"
    assert "outside" in told["next_basis"]


def test_headers_need_their_makefile(machine):
    machine.put("/usr/src/linux-headers-6.1.0-10-amd64/Makefile")
    told = kernels_of(machine, "6.1.0-9-amd64", "6.1.0-10-amd64")
    assert [kernel["headers"] for kernel in told["installed"]] == [False, True]


def test_only_arguments_that_matter_are_told(machine):
    line = "root=UUID=abc ro quiet modprobe.blacklist=nouveau,foo rd.driver.blacklist=nouveau intel_iommu=on password=x"
    found = host_code("gpu_probe.kernels").gpu_arguments(line)
    assert found == ["modprobe.blacklist=nouveau,foo", "rd.driver.blacklist=nouveau", "intel_iommu=on"]


@pytest.mark.parametrize(
    ("text", "compiler"),
    [
        ("Linux version 6.1.0 (a@b) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld) #1", "gcc-12"),
        ("Linux version 6.8.0 (a@b) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0) 13.3.0, GNU ld) #1", "gcc-13"),
        ("Linux version 5.15.0 (a@b) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, GNU ld) #1", "gcc-11"),
        ("Linux version 5.14.0 (a@b) (gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-2), GNU ld) #1", "gcc-11"),
        ("Linux version 6.9 (a@b) (clang version 18.1.3) #1", None),
    ],
)
def test_the_compiler_of_the_kernel(text, compiler):
    assert host_code("gpu_probe.kernels")._compiler(text) == compiler


def elf_with_modinfo(fields):
    """A 64-bit ELF file with nothing but a .modinfo section."""
    info = b"\x00".join(f"{key}={value}".encode() for key, value in fields) + b"\x00"
    names = b"\x00.modinfo\x00.shstrtab\x00"
    body = info + names
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 3, 2)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 64, len(info), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, 64 + len(info), len(names), 0, 0, 1, 0)
    return header + body + sections


@pytest.mark.parametrize(
    ("licence", "flavour"),
    [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary"), ("MODULE_LICENSE_UNKNOWN", "proprietary")],
)
@pytest.mark.parametrize("name", ["nvidia.ko", "nvidia-current.ko", "nvidia-current-open.ko", "nvidia-tesla-535.ko"])
def test_version_and_flavour_of_a_module_file(machine, tmp_path, name, licence, flavour):
    modules = host_code("gpu_probe.modules")
    path = tmp_path / "lib/modules/6.1.0-9-amd64/updates/dkms" / name
    machine.put(
        f"/lib/modules/6.1.0-9-amd64/updates/dkms/{name}",
        elf_with_modinfo([("license", licence), ("version", "580.95.05")]),
    )
    live = package.LiveHost()
    told = modules.modinfo(live, str(path))
    assert told == {"version": "580.95.05", "license": licence, "signed": False, "signer": None, "key": None}
    machine.answer(f"modinfo:/lib/modules/6.1.0-9-amd64/updates/dkms/{name}", told)
    found = modules.find(machine.host(), "6.1.0-9-amd64")
    assert (found["version"], found["flavour"]) == ("580.95.05", flavour)


@pytest.mark.parametrize("packer", [gzip, lzma], ids=["gz", "xz"])
def test_a_compressed_module_file(tmp_path, monkeypatch, packer):
    modules = host_code("gpu_probe.modules")
    monkeypatch.setattr(modules, "_has_modinfo", lambda: False)
    path = tmp_path / ("nvidia.ko.gz" if packer is gzip else "nvidia.ko.xz")
    path.write_bytes(packer.compress(elf_with_modinfo([("version", "535.309.01"), ("license", "NVIDIA")])))
    told = modules.modinfo(package.LiveHost(), str(path))
    assert (told["version"], told["license"]) == ("535.309.01", "NVIDIA")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("nvidia.ko", b"not a module", "no 64-bit ELF file"),
        ("nvidia.ko", elf_with_modinfo([])[:62] + b"\t\0" + elf_with_modinfo([])[64:], "list index out of range"),
        ("nvidia.ko.gz", gzip.compress(bytes(99))[:10] + b"\xff" * 20, "invalid block type"),
    ],
    ids=["text", "sections", "gz"],
)
def test_a_damaged_module_file_is_noted(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    host = package.LiveHost()
    assert host_code("gpu_probe.modules").modinfo(host, str(tmp_path / name)) is None
    assert words in host.unreadable["kernel.installed.nvidia"]


@pytest.mark.parametrize(
    "name", ["nvidia-uvm.ko", "nvidia-drm.ko", "nvidia_peermem.ko", "nvidiafb.ko", "nvidia-modeset.ko"]
)
def test_companions_are_not_the_driver(machine, name):
    machine.put(f"/lib/modules/6.1/updates/dkms/{name}")
    assert host_code("gpu_probe.modules").find(machine.host(), "6.1") is None


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\n",
            "580.159.04",
            "open",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Mon Jan  1\n", "535.309.01", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  590.48.01  Release Build\n", "590.48.01", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  610.43  Release\n", "610.43", "proprietary"),
    ],
)
def test_the_loaded_module(machine, text, version, flavour):
    machine.put("/proc/driver/nvidia/version", text)
    assert host_code("gpu_probe.modules").loaded_nvidia(machine.host()) == {"version": version, "flavour": flavour}


def test_the_loaded_module_by_sysfs_alone(machine):
    machine.put("/sys/module/nvidia/version", "550.54.15\n")
    assert host_code("gpu_probe.modules").loaded_nvidia(machine.host()) == {"version": "550.54.15", "flavour": None}


def test_an_own_file_hides_the_vendors_of_the_same_name(machine):
    machine.put("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\n").put(
        "/etc/modprobe.d/nvidia.conf", "# nothing\n"
    )
    assert host_code("gpu_probe.drivers").blacklist_files(machine.host()) == []


def test_what_the_next_boot_would_load(machine):
    release = "6.1.0-9-amd64"
    image = f"/boot/initrd.img-{release}"
    machine.put(f"/boot/vmlinuz-{release}").put(image).answer("kernel", release)
    machine.put("/etc/modprobe.d/blacklist-nouveau.conf", "blacklist nouveau\n")
    machine.put(f"/lib/modules/{release}/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko: x\n")
    machine.put(f"/lib/modules/{release}/kernel/drivers/gpu/drm/nouveau/nouveau.ko")
    machine.answer("initramfs:" + image, {"nouveau": True, "blacklist": False, "why": None})
    host = machine.host()
    kernels = host_code("gpu_probe.kernels").collect(host)
    stale = host_code("gpu_probe.drivers").nouveau(host, kernels, [])
    assert (stale["blacklisted"], stale["in_initramfs"], stale["loads_at_boot"]) == (True, True, True)
    machine.answer("initramfs:" + image, {"nouveau": True, "blacklist": True, "why": None})
    assert host_code("gpu_probe.drivers").nouveau(machine.host(), kernels, [])["loads_at_boot"] is False
    machine.answer("initramfs:" + image, {"nouveau": None, "blacklist": None, "why": "cut"})
    unknown = host_code("gpu_probe.drivers").nouveau(machine.host(), kernels, [])
    assert (unknown["in_initramfs"], unknown["loads_at_boot"]) == (None, None)


EFI = "/sys/firmware/efi/efivars/"


def test_secure_boot(machine):
    firmware = host_code("gpu_probe.firmware")
    assert firmware.collect(machine.host())["secure_boot"] is False
    machine.put("/sys/firmware/efi/systab")
    unknown = machine.host()
    assert firmware.collect(unknown)["secure_boot"] is None
    assert "SecureBoot" in unknown.unreadable["secure_boot"]
    machine.put(EFI + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\x00\x00\x00\x01")
    assert firmware.collect(machine.host())["secure_boot"] is True
    machine.put(EFI + "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\x00\x00\x00\x00")
    assert firmware.collect(machine.host())["secure_boot"] is False


def test_enrolled_machine_owner_keys():
    firmware = host_code("gpu_probe.firmware")
    owner, first, second = bytes(16), b"certificate one", b"certificate two!"

    def signature_list(certificate):
        item = 16 + len(certificate)
        return firmware._X509 + struct.pack("<III", 28 + item, 0, item) + owner + certificate

    digest_list = bytes(16) + struct.pack("<III", 28 + 48, 0, 48) + owner + bytes(32)

    raw = signature_list(first) + digest_list + signature_list(second)
    assert firmware._listed(raw) == [first, second]


@pytest.mark.parametrize("raw", [b"", b"\xff" * 40, bytes(27), bytes(28)])
def test_a_broken_key_list_is_an_empty_one(raw):
    assert host_code("gpu_probe.firmware")._listed(raw) == []


def test_the_compiler_comes_from_the_configuration_of_the_next_kernel(machine):
    machine.put("/proc/version", "Linux version 6.1 (a@b) (gcc-12 (Debian) 12.2.0, GNU ld)")
    machine.put(
        "/boot/config-6.12.0-1-amd64",
        'CONFIG_X=y\nCONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"\n',
    )
    assert host_code("gpu_probe.kernels").compiler(machine.host(), "6.12.0-1-amd64") == "gcc-14"
    assert host_code("gpu_probe.kernels").compiler(machine.host(), "6.1.0-9-amd64") == "gcc-12"


def simulated(machine_in, own_files, running=None):
    own, captured = machine_in("own"), machine_in("captured")
    own.answer("kernel", "5.4.0-outer-machine").put("/etc/os-release", "ID=debian\n")
    for path, content in own_files.items():
        own.put(path, content)
    own.put("/.dockerenv").put("/proc/modules", "nvidia 1 0 - Live 0x0\n")
    captured.put("/sys/class/dmi/id/sys_vendor", "Google\n").put(
        "/sys/bus/pci/devices/0000:00:04.0/class", "0x030200\n"
    )
    captured.put("/sys/bus/pci/devices/0000:00:04.0/vendor", "0x10de\n").put(
        "/proc/sys/kernel/osrelease", (running or "6.1.0-50-amd64") + "\n"
    )
    return host_code("gpu_probe.facts").collect(own.host(), captured.host())


def test_a_simulated_host_is_its_captured_machine_with_its_own_packages(machine_in):
    told = simulated(machine_in, {})
    assert told["simulated"] is True
    assert told["virtualisation"]["driver_refused"] is None
    assert told["virtualisation"]["cloud"] == "gcp"
    assert len(told["gpus"]) == 1
    assert told["modules"] == ["nvidia"]
    assert (told["kernel"]["running"], told["kernel"]["next"]) == ("6.1.0-50-amd64", "6.1.0-50-amd64")


def test_the_kernel_of_a_simulated_host_is_never_the_outer_machines(machine_in):
    files = {"/lib/modules/6.1.0-56-amd64/build/Makefile": "", "/lib/modules/6.1.0-9-amd64/build/Makefile": ""}
    told = simulated(machine_in, files)
    assert (told["kernel"]["running"], told["kernel"]["next"]) == ("6.1.0-56-amd64", "6.1.0-56-amd64")
    assert told["kernel"]["next_basis"] == "simulated: newest headers on the host"


def test_a_simulated_boot_says_which_kernel_runs(machine_in):
    files = {"/boot/vmlinuz-6.1.0-56-amd64": "", "/boot/vmlinuz-6.1.0-50-amd64": ""}
    told = simulated(machine_in, files, "6.1.0-50-amd64")
    assert (told["kernel"]["running"], told["kernel"]["next"]) == ("6.1.0-50-amd64", "6.1.0-56-amd64")
