"""QEMU here: with hardware virtualisation where it really boots something, else in plain emulation."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL, Popen

from tests.lab.places import STATE, locked

QEMU = "qemu-system-x86_64"
DEADLINE = 20.0
EMULATED = ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max")
VIRTUALISED = ("-accel", "kvm", "-cpu", "host")
_PROOF = b"Kernel panic - not syncing: VFS"  # the whole kernel has started, and finds no disk


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
