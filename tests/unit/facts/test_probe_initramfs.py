"""The initramfs reader, on images built here byte by byte: early archives, padding, every compression."""

import bz2
import gzip
import lzma
import shutil
import subprocess

import pytest

from gpusetup.content import host_code

initramfs = host_code("gpu_probe.initramfs")

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
    "zstd": lambda raw: subprocess.run(["zstd", "-q", "-c"], input=raw, stdout=subprocess.PIPE, check=True).stdout,
    "lz4": lambda raw: subprocess.run(["lz4", "-q", "-l", "-c"], input=raw, stdout=subprocess.PIPE, check=True).stdout,
}


def image(tmp_path, members, packer="gzip", early=b""):
    path = tmp_path / "initrd.img"
    path.write_bytes(early + PACKERS[packer](cpio(members)))
    return str(path)


@pytest.mark.parametrize("early", [b"", EARLY, EARLY + EARLY], ids=["plain", "microcode", "two-early"])
@pytest.mark.parametrize("packer", PACKERS)
def test_nouveau_is_found_behind_every_compression(tmp_path, packer, early):
    if packer in ("zstd", "lz4") and not shutil.which(packer):
        pytest.skip(f"{packer} is not installed here")
    members = {"init": b"#!/bin/sh\n", "bin/busybox": b"\x7fELF" + bytes(400_000), NOUVEAU: b"ko" * 1000, "z": b"end"}
    found = initramfs.inspect(image(tmp_path, members, packer, early), 20)
    assert found == {"nouveau": True, "blacklist": False, "why": None}
    del members[NOUVEAU]
    assert initramfs.inspect(image(tmp_path, members, packer, early), 20)["nouveau"] is False


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (NOUVEAU + ".xz", True),
        (NOUVEAU + ".zst", True),
        ("lib/modules/7.0/kernel/drivers/gpu/nova-core.ko", True),
        ("lib/firmware/nvidia/tu102/nvdec/scrubber.bin", False),
        ("lib/modules/6/kernel/drivers/gpu/drm/nouveau_x.ko", False),
    ],
)
def test_compressed_modules_and_nova_count_other_modules_and_firmware_do_not(tmp_path, name, counts):
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


@pytest.mark.parametrize("order", [1, -1], ids=["link-first", "link-last"])
@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ({BLACKLIST: TARGET}, True),
        ({"./" + BLACKLIST: f"/{GLX}", GLX: TARGET}, True),
        ({BLACKLIST: "../nvidia/gone.conf"}, False),
        ({BLACKLIST + ".bak": TARGET}, False),
        ({"etc/other/x.conf": TARGET}, False),
        ({BLACKLIST: "blacklist-nouveau.conf"}, False),
    ],
    ids=["as-debian", "by-alternative", "dangling", "backup", "elsewhere", "in-a-circle"],
)
def test_a_link_in_modprobe_d_counts_by_what_it_leads_to(tmp_path, links, expected, order):
    first, second = [links, {"etc/nvidia/current/nouveau.conf": b"blacklist nouveau\n"}][::order]
    assert initramfs.inspect(image(tmp_path, {NOUVEAU: b"ko", **first, **second}), 20)["blacklist"] is expected


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


def test_the_deadline_holds(tmp_path):
    answer = initramfs.inspect(image(tmp_path, {f"file{index}": b"x" * 100 for index in range(2000)}), -1)
    assert (answer["nouveau"], "time allowed" in answer["why"]) == (None, True)
