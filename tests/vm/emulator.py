"""QEMU here: with hardware virtualisation where it really boots something, else in plain emulation."""

import contextlib
import os
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

from tests.lab.places import STATE, locked
from tests.lab.process import run

QEMU = "qemu-system-x86_64"
DEADLINE = 20.0
EMULATED = ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max")
VIRTUALISED = ("-accel", "kvm", "-cpu", "host")
_PROOF = b"Kernel panic - not syncing: VFS"  # the whole kernel has started, and finds no disk


def command(
    fast: tuple[str, ...], folder: Path, disk: Path, *, memory_mib: int, network: str, hardware_address: str, asset: str
) -> list[str]:
    """QEMU's words for a machine whose seed, console and emulator's log are in `folder`; `network` is its netdev, without an id."""
    return [
        QEMU, *fast, "-smp", "2", "-m", str(memory_mib), "-nodefaults",
        "-smbios", f"type=3,asset={asset}",
        "-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe",
        "-drive", f"file={folder / 'seed.iso'},if=virtio,format=raw,readonly=on",
        "-netdev", f"{network},id=lab",
        "-device", f"virtio-net-pci,netdev=lab,mac={hardware_address}",
        "-device", "virtio-rng-pci", "-vga", "std", "-display", "none", "-monitor", "none",
        "-chardev", f"file,id=serial,path={folder / 'console.log'},append=on", "-serial", "chardev:serial",
    ]  # fmt: skip


def start(argv: list[str], folder: Path) -> Popen[bytes]:
    """Switch a machine on; what the emulator says is in its folder."""
    with (folder / "emulator.log").open("ab") as log:
        return Popen(argv, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True)


def layer(base: Path, kind: str, disk: Path, size: str = "") -> None:
    """Make a disk of its own over an image that stays as it is; `size` as qemu-img writes it, where it shall be larger."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", base.resolve(), disk, *([size] if size else [])])


def tail(path: Path) -> str:
    return f"{path.name}: " + (path.read_text(errors="replace")[-2500:] if path.exists() else "none")


def accelerator(kernel: Path) -> tuple[str, ...]:
    """QEMU's words for the faster way that works. A device that opens proves nothing: a kernel is booted."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return EMULATED
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with locked("vm-accelerator"):
        kept = STATE / "vm-accelerator"
        known = kept.read_text().split() if kept.exists() else []
        if known[:1] != [boot]:
            known = [boot, "kvm" if _boots(kernel) else "tcg"]
            kept.write_text(" ".join(known) + "\n")
    return VIRTUALISED if known[1] == "kvm" else EMULATED


def _boots(kernel: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / "console"
        console.touch()
        argv = [
            QEMU, *VIRTUALISED, "-m", "512", "-display", "none", "-no-reboot", "-kernel", str(kernel),
            "-append", "console=ttyS0 panic=-1", "-serial", f"file:{console}",
        ]  # fmt: skip
        machine = Popen(argv, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        try:
            end = time.monotonic() + DEADLINE
            while time.monotonic() < end and machine.poll() is None and _PROOF not in console.read_bytes():
                time.sleep(0.1)
            return _PROOF in console.read_bytes()
        finally:
            with contextlib.suppress(ProcessLookupError):
                machine.kill()
            machine.wait()
