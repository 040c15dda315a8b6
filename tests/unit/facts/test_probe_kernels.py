"""Where a kernel's initramfs is: /boot, the folder of a boot entry, a unified kernel image."""

import struct

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import initramfs, kernels

from tests.unit.facts.test_probe_initramfs import EARLY, PACKERS, cpio

R = "6.1.0-9-amd64"
ID = "0123456789abcdef0123456789abcdef"
ENTRY = "title x\nversion {version}\noptions root=/dev/x quiet {options}\nlinux {linux}\n{initrd}"


def entry(*initrds, version=R, linux=f"/{ID}/{R}/linux", options=""):
    lines = "".join(f"initrd {name}\n" for name in initrds)
    return ENTRY.format(version=version, linux=linux, initrd=lines, options=options)


@pytest.mark.parametrize("root", kernels.ROOTS)
@pytest.mark.parametrize("name", ["initrd", f"initrd.img-{R}", "initrd-0a1b2c"])
def test_what_a_boot_entry_names(machine, root, name):
    path = f"/{ID}/{R}/{name}"
    machine.put(f"{root}/loader/entries/{ID}-{R}.conf", entry(path)).put(f"{root}{path}").put(f"{root}/{ID}/{R}/linux")
    machine.put(f"/boot/initrd.img-{R}")  # update-initramfs writes it; what boots is the copy
    assert kernels.initramfs_of(machine.host(), R) == root + path
    assert kernels.bootable(machine.host(), R)
    assert kernels.initramfs_of(machine.host(), "6.1.0-9") is None
    assert kernels.initramfs_of(machine.host(), "6.1.0-9-amd64-rt") is None


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([f"/boot/initrd.img-{R}"], f"/boot/initrd.img-{R}"),
        ([f"/boot/initramfs-{R}.img"], f"/boot/initramfs-{R}.img"),
        ([f"/boot/initrd-{R}"], f"/boot/initrd-{R}"),
        ([f"/boot/{ID}/{R}/initrd"], f"/boot/{ID}/{R}/initrd"),
        ([f"/efi/{ID}/{R}/microcode", f"/efi/{ID}/{R}/initrd"], f"/efi/{ID}/{R}/initrd"),
        ([f"/boot/efi/debian/{R}/initrd.img-{R}"], f"/boot/efi/debian/{R}/initrd.img-{R}"),
        ([f"/efi/EFI/Linux/{ID}-{R}.efi"], f"/efi/EFI/Linux/{ID}-{R}.efi"),
        ([f"/boot/efi/EFI/Linux/{ID}-{R}+3-0.efi"], f"/boot/efi/EFI/Linux/{ID}-{R}+3-0.efi"),
        ([f"/efi/EFI/Linux/{ID}-{R}-rt.efi", f"/efi/EFI/Linux/{ID}-16.1.0-9-amd64.efi"], None),
        ([f"/boot/vmlinuz-{R}"], None),
    ],
)
def test_without_an_entry_it_is_looked_for(machine, files, found):
    for path in files:
        machine.put(path)
    assert kernels.initramfs_of(machine.host(), R) == found
    machine.put(f"/lib/modules/{R}/modules.dep")
    (kernel,) = (item for item in kernels.collect(machine.host())["installed"] if item["release"] == R)
    assert kernel["initramfs"] == found


def test_grubs_entries_and_microcode(machine):
    """Red Hat's entries name files of /boot, with variables of GRUB's among them."""
    machine.put(f"/boot/initramfs-{R}.img").put(f"/boot/vmlinuz-{R}").put("/boot/intel-ucode.img")
    text = entry("/intel-ucode.img", f"/initramfs-{R}.img $tuned_initrd", linux=f"/vmlinuz-{R}")
    machine.put(f"/boot/loader/entries/{ID}-{R}.conf", text)
    assert kernels.initramfs_of(machine.host(), R) == f"/boot/initramfs-{R}.img"


def test_the_arguments_of_entries_anywhere_count(machine):
    machine.put(f"/efi/loader/entries/{ID}-{R}.conf", entry(options="nouveau.modeset=0 secret=1"))
    assert kernels.collect(machine.host())["cmdline_next"] == ["nouveau.modeset=0"]
    assert "secret" not in kernels.entry_text(machine.host(), f"/efi/loader/entries/{ID}-{R}.conf")


def unified(**sections):
    begin = 64 + 24 + 40 * len(sections)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64)
    head += struct.pack("<4sHH12xH2x", b"PE\0\0", 0x8664, len(sections), 0)
    body = b""
    for name, content in sections.items():
        at = begin + len(body)
        head += struct.pack("<8sI4xII16x", b"." + name.encode(), len(content), len(content), at)
        body += content
    return head + body


@pytest.mark.parametrize("carries", [False, True])
@pytest.mark.parametrize("packer", PACKERS)
def test_a_unified_image_is_looked_into(tmp_path, packer, carries):
    files = {f"usr/lib/modules/6.1/kernel/{'nouveau' if carries else 'e1000'}.ko": b"x"}
    initrd = EARLY + PACKERS[packer](cpio(files))
    path = tmp_path / "linux.efi"
    path.write_bytes(unified(osrel=b"ID=x\n", cmdline=b"quiet", initrd=initrd, linux=b"\x7fkernel" * 99))
    assert initramfs.inspect(str(path), 9) == {"nouveau": carries, "blacklist": False, "why": None}


@pytest.mark.parametrize("raw", [b"MZ", b"MZ" + bytes(90), unified(cmdline=b"quiet"), unified(initrd=b"strange")])
def test_a_unified_image_that_cannot_be_read_is_unknown(tmp_path, raw):
    (tmp_path / "linux.efi").write_bytes(raw)
    told = initramfs.inspect(str(tmp_path / "linux.efi"), 9)
    assert (told["nouveau"], told["blacklist"], bool(told["why"])) == (None, None, True)
