"""Where a kernel's initramfs is, and what is in it: images built here byte by byte, unified kernel images."""

import bz2
import gzip
import lzma
import shutil
import struct
import subprocess

import pytest

from gpusetup.content import host_code

initramfs = host_code("gpu_probe.initramfs")

NOUVEAU = "usr/lib/modules/6.1.0-50-amd64/kernel/drivers/gpu/drm/nouveau/nouveau.ko"


def cpio(members):
    """A newc archive with its trailer."""
    out = b""
    for number, (name, content) in enumerate([*members.items(), ("TRAILER!!!", b"")], 1):
        raw = name.encode() + b"\x00"
        fields = [number, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0]
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        out += b"\x00" * (-len(out) % 4)
        out += content + b"\x00" * (-len(content) % 4)
    return out


EARLY = cpio({"kernel/x86/microcode/GenuineIntel.bin": bytes(range(256)) * 40})
EARLY += bytes(-len(EARLY) % 512)
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


NOVA, OTHER = "lib/modules/7.0/kernel/drivers/gpu/nova-core.ko", "lib/modules/6/kernel/drivers/gpu/drm/nouveau_x.ko"


@pytest.mark.parametrize(("name", "counts"), [(NOUVEAU + ".zst", True), (NOVA, True), (OTHER, False)])
def test_compressed_modules_and_nova_count_and_other_modules_do_not(tmp_path, name, counts):
    (tmp_path / "initrd.img").write_bytes(cpio({name: b"x"}))
    assert initramfs.inspect(str(tmp_path / "initrd.img"), 20)["nouveau"] is counts


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
