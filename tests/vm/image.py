"""The machines' disk: Debian 12 with its own kernel, GRUB and cloud-init, made once, cached, never written to again."""

import hashlib
import os
import shutil
import sys
import time
import uuid
from pathlib import Path

from tests.lab import mirror
from tests.lab.places import CACHE, HOSTS, LabError, locked
from tests.lab.process import run
from tests.lab.roots import MAX_AGE_DAYS

HERE = Path(__file__).resolve().parent
PARTS = HERE / "image"
FOLDER = CACHE / "vm"
SIZE_MIB = 4096
FIRST_SECTOR = 2048
SECTOR = 512

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "python3", "python3-apt", "python3-venv", "iproute2",
    "ifupdown", "ca-certificates", "procps", "kmod", "zstd", "gnupg", "linux-image-amd64", "linux-headers-amd64",
    "initramfs-tools", "grub-pc", "dkms", "cloud-init",
)  # fmt: skip


def ready() -> Path:
    """The image, built first when needed; an older one is taken when a new one cannot be made."""
    with locked("vm-image"):
        path = FOLDER / f"debian12-{_digest()}.raw"
        if not path.exists() or time.time() - path.stat().st_mtime > MAX_AGE_DAYS * 86400:
            try:
                _build(path)
            except LabError as error:
                if not path.exists():
                    raise
                print(f"lab: {error}\nlab: the older image is taken", file=sys.stderr)
        if not any(HOSTS.glob("*/disk.qcow2")):  # machines stand on the image that they were made with
            for other in FOLDER.glob("debian12-*"):
                if other not in {path, kernel_of(path)}:
                    other.unlink()
        return path


def kernel_of(path: Path) -> Path:
    """The image's kernel once more outside: to find out whether hardware virtualisation boots it."""
    return path.with_suffix(".vmlinuz")


def _digest() -> str:
    seen = hashlib.sha256(repr((PACKAGES, SIZE_MIB)).encode())
    for path in sorted(PARTS.iterdir()):
        seen.update(path.name.encode() + b"\0" + path.read_bytes())
    return seen.hexdigest()[:12]


def _build(path: Path) -> None:
    """Without loop devices: the file system is made from a folder, GRUB's two pieces are put before it."""
    tree, part = FOLDER / f"tree-{os.getpid()}", path.with_suffix(".part")
    FOLDER.mkdir(parents=True, exist_ok=True)
    identifier = str(uuid.uuid4())
    sources = mirror.sources("bookworm")
    argv = [
        "mmdebstrap", "--variant=minbase", "--components=main,non-free-firmware", f"--include={','.join(PACKAGES)}",
        f'--customize-hook=sh {PARTS / "customize.sh"} "$1" {identifier}', *mirror.apt_options(),
        "bookworm", tree, *(["-"] if sources else []),
    ]  # fmt: skip
    # The initramfs is made by the hook, after the pruning of modules.
    env = {**os.environ, "INITRD": "No", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    try:
        run(argv, timeout=1800, env=env, text="\n".join(sources) + "\n" if sources else None)
        _lay(tree, part, identifier)
        newest = max((tree / "boot").glob("vmlinuz-*"), key=lambda kernel: kernel.stat().st_mtime)
        shutil.copyfile(newest, kernel_of(path))
        part.rename(path)
    except LabError as error:
        raise LabError(f"the virtual machines' image could not be made from the Debian mirror:\n{error}") from None
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        part.unlink(missing_ok=True)


def _lay(tree: Path, image: Path, identifier: str) -> None:
    offset = FIRST_SECTOR * SECTOR
    boot = (tree / "usr/lib/grub/i386-pc/boot.img").read_bytes()
    core = (tree / "boot/grub/i386-pc/core.img").read_bytes()
    if len(boot) != SECTOR or len(core) > offset - SECTOR:
        raise LabError(f"GRUB's pieces have {len(boot)} and {len(core)} bytes: no room before the partition")
    with image.open("wb") as file:
        file.truncate(SIZE_MIB * 1024**2)
    run(["sfdisk", "-q", image], text=f"label: dos\nstart={FIRST_SECTOR}, type=83, bootable\n")
    blocks = (SIZE_MIB * 1024**2 - offset) // 1024
    options = ["-q", "-F", "-L", "root", "-U", identifier, "-E", f"offset={offset}", "-d", tree]
    run(["mkfs.ext4", *options, image, f"{blocks}k"], timeout=600)
    with image.open("r+b") as file:
        # GRUB's first sector finds the rest in the next one; the partition table behind byte 440 stays.
        file.write(boot[:440])
        file.seek(SECTOR)
        file.write(core)
