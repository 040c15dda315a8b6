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
    assert initramfs.inspect(image(tmp_path, members, packer, early), 20) == {
        "nouveau": True,
        "blacklist": False,
        "why": None,
    }
    clean = {name: content for name, content in members.items() if name != NOUVEAU}
    assert initramfs.inspect(image(tmp_path, clean, packer, early), 20)["nouveau"] is False


@pytest.mark.parametrize("name", [NOUVEAU + ".xz", NOUVEAU + ".zst", "lib/modules/7.0/kernel/drivers/gpu/nova-core.ko"])
def test_compressed_modules_and_nova_count(tmp_path, name):
    assert initramfs.inspect(image(tmp_path, {name: b"x"}), 20)["nouveau"] is True


def test_other_modules_and_firmware_do_not_count(tmp_path):
    members = {
        "lib/firmware/nvidia/tu102/nvdec/scrubber.bin": b"x",
        "lib/modules/6/kernel/drivers/gpu/drm/nouveau_x.ko": b"x",
    }
    assert initramfs.inspect(image(tmp_path, members), 20)["nouveau"] is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"blacklist nouveau\noptions nouveau modeset=0\n", True),
        (b"install nouveau /bin/false\n", True),
        (b"# blacklist nouveau\n", False),
        (b"blacklist nouveaux\n", False),
        (b"blacklist lbm-nouveau\n", False),
    ],
)
def test_a_blacklist_counts_by_its_effect(tmp_path, text, expected):
    answer = initramfs.inspect(image(tmp_path, {NOUVEAU: b"ko", BLACKLIST: text}), 20)
    assert answer["blacklist"] is expected


@pytest.mark.parametrize("order", [1, -1], ids=["link-first", "link-last"])
@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ({BLACKLIST: "../nvidia/current/nouveau.conf"}, True),
        (
            {
                "./" + BLACKLIST: "/etc/alternatives/glx.conf",
                "etc/alternatives/glx.conf": "../nvidia/current/nouveau.conf",
            },
            True,
        ),
        ({BLACKLIST: "../nvidia/gone.conf"}, False),
        ({BLACKLIST + ".bak": "../nvidia/current/nouveau.conf"}, False),
        ({"etc/other/x.conf": "../nvidia/current/nouveau.conf"}, False),
        ({BLACKLIST: "blacklist-nouveau.conf"}, False),
    ],
    ids=["as-debian", "by-alternative", "dangling", "backup", "elsewhere", "in-a-circle"],
)
def test_a_link_in_modprobe_d_counts_by_what_it_leads_to(tmp_path, links, expected, order):
    parts = [links, {"etc/nvidia/current/nouveau.conf": b"blacklist nouveau\n"}][::order]
    members = {NOUVEAU: b"ko", **parts[0], **parts[1]}
    assert initramfs.inspect(image(tmp_path, members), 20)["blacklist"] is expected


def test_a_cut_image_is_unknown_not_clean(tmp_path):
    members = {"init": bytes(500_000), NOUVEAU: b"ko"}
    path = image(tmp_path, members, "none")
    raw = (tmp_path / "initrd.img").read_bytes()
    (tmp_path / "initrd.img").write_bytes(raw[: len(raw) // 2])
    answer = initramfs.inspect(path, 20)
    assert answer["nouveau"] is None
    assert "in the middle of init" in answer["why"]


@pytest.mark.parametrize(
    "content",
    [
        b"MZ\x90\x00 a unified kernel image",
        b"0707XX" + bytes(200),
        b"\x1f\x8b broken gzip",
        gzip.compress(cpio({"init": b"x"})[:-124]),  # cut between two members
    ],
    ids=["uki", "archive", "gzip", "cut"],
)
def test_a_strange_file_is_unknown_with_the_reason(tmp_path, content):
    (tmp_path / "initrd.img").write_bytes(content)
    answer = initramfs.inspect(str(tmp_path / "initrd.img"), 20)
    assert answer["nouveau"] is None
    assert answer["why"]


def test_a_missing_file_is_unknown(tmp_path):
    assert "No such file" in initramfs.inspect(str(tmp_path / "gone"), 20)["why"]


def test_the_deadline_holds(tmp_path):
    members = {f"file{index}": b"x" * 100 for index in range(2000)}
    answer = initramfs.inspect(image(tmp_path, members), -1)
    assert answer["nouveau"] is None
    assert "time allowed" in answer["why"]


def test_a_missing_tool_is_named(tmp_path, monkeypatch):
    (tmp_path / "initrd.img").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "zstd is needed" in initramfs.inspect(str(tmp_path / "initrd.img"), 20)["why"]
