"""Where a kernel's initramfs is, and what is in it: images built here byte by byte, boot entries, unified kernel images."""

import bz2
import gzip
import lzma
import shutil
import struct
import subprocess

import pytest

from gpusetup.content import host_code

initramfs, kernels = host_code("gpu_probe.initramfs"), host_code("gpu_probe.kernels")

NOUVEAU = "usr/lib/modules/6.1.0-50-amd64/kernel/drivers/gpu/drm/nouveau/nouveau.ko"
BLACKLIST = "etc/modprobe.d/blacklist-nouveau.conf"


def cpio(members):
    """A newc archive with its trailer; text, not bytes, makes a symbolic link to there."""
    out = b""
    for number, (name, member) in enumerate([*members.items(), ("TRAILER!!!", b"")], 1):
        raw = name.encode() + b"\x00"
        content = member.encode() if isinstance(member, str) else member
        mode = 0o120777 if isinstance(member, str) else 0o100644
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0]
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        out += b"\x00" * (-len(out) % 4)
        out += content + b"\x00" * (-len(content) % 4)
    return out


def padded(archive, size=512):
    return archive + b"\x00" * (-len(archive) % size)


EARLY = padded(cpio({"kernel/x86/microcode/GenuineIntel.bin": bytes(range(256)) * 40}))
PACKERS = {
    "none": lambda raw: raw,
    "gzip": gzip.compress,
    "xz": lambda raw: lzma.compress(raw, check=lzma.CHECK_CRC32),
    "lzma": lambda raw: lzma.compress(raw, format=lzma.FORMAT_ALONE),
    "bzip2": bz2.compress,
    "zstd": lambda raw: packed(raw, "zstd", "-q", "-c"),
    "lz4": lambda raw: packed(raw, "lz4", "-q", "-l", "-c"),
}


def packed(raw, *argv):
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not installed here")
    return subprocess.run(argv, input=raw, stdout=subprocess.PIPE, check=True).stdout


def image(tmp_path, members, packer="gzip", early=b""):
    path = tmp_path / "initrd.img"
    path.write_bytes(early + PACKERS[packer](cpio(members)))
    return str(path)


NOVA, OTHER = "lib/modules/7.0/kernel/drivers/gpu/nova-core.ko", "lib/modules/6/kernel/drivers/gpu/drm/nouveau_x.ko"


@pytest.mark.parametrize(("name", "counts"), [(NOUVEAU + ".zst", True), (NOVA, True), (OTHER, False)])
def test_compressed_modules_and_nova_count_and_other_modules_do_not(tmp_path, name, counts):
    assert initramfs.inspect(image(tmp_path, {name: b"x"}), 20)["nouveau"] is counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"blacklist nouveau\noptions nouveau modeset=0\n", True), (b"install nouveau /bin/false\n", True),
        (b"# blacklist nouveau\n", False), (b"blacklist nouveaux\n", False), (b"blacklist lbm-nouveau\n", False),
    ],
)  # fmt: skip
def test_a_blacklist_counts_by_its_effect(tmp_path, text, expected):
    assert initramfs.inspect(image(tmp_path, {NOUVEAU: b"ko", BLACKLIST: text}), 20)["blacklist"] is expected


GLX, TARGET = "etc/alternatives/glx.conf", "../nvidia/current/nouveau.conf"


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ({"./" + BLACKLIST: f"/{GLX}", GLX: TARGET}, True),
        ({BLACKLIST: "../nvidia/gone.conf"}, False),
        ({"etc/other/x.conf": TARGET}, False),
        ({BLACKLIST: "blacklist-nouveau.conf"}, False),
    ],
    ids=["by-alternative", "dangling", "elsewhere", "in-a-circle"],
)
def test_a_link_in_modprobe_d_counts_by_what_it_leads_to(tmp_path, links, expected):
    links["etc/nvidia/current/nouveau.conf"] = b"blacklist nouveau\n"
    assert initramfs.inspect(image(tmp_path, {NOUVEAU: b"ko", **links}), 20)["blacklist"] is expected


WHOLE = cpio({"init": bytes(500_000), NOUVEAU: b"ko"})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (WHOLE[: len(WHOLE) // 2], "in the middle of init"),
        (b"MZ\x90\x00 a unified kernel image", ""),
        (b"0707XX" + bytes(200), ""),
        (b"\x1f\x8b broken gzip", ""),
        (gzip.compress(cpio({"init": b"x"})[:-124]), ""),  # cut between two members
        (b"\x28\xb5\x2f\xfd" + bytes(100), "zstd is needed"),
        (None, "No such file"),
    ],
    ids=["half", "uki", "archive", "gzip", "cut", "no-tool", "missing"],
)
def test_a_cut_or_strange_file_is_unknown_with_the_reason(tmp_path, monkeypatch, content, why):
    monkeypatch.setenv("PATH", str(tmp_path))
    if content is not None:
        (tmp_path / "initrd.img").write_bytes(content)
    answer = initramfs.inspect(str(tmp_path / "initrd.img"), 20)
    assert (answer["nouveau"], bool(answer["why"]), why in answer["why"]) == (None, True, True), answer


R = "6.1.0-9-amd64"
ID = "0123456789abcdef0123456789abcdef"
ENTRY = "title x\nversion {version}\noptions root=/dev/x quiet {options}\nlinux {linux}\n{initrd}"


def entry(*initrds, version=R, linux=f"/{ID}/{R}/linux", options=""):
    lines = "".join(f"initrd {name}\n" for name in initrds)
    return ENTRY.format(version=version, linux=linux, initrd=lines, options=options)


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
