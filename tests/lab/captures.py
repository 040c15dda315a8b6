"""Simulated machines: what PCI, the firmware and the kernel of a GPU machine show, as a miniature root to put on a lab host.

The H200 machines repeat what real ones printed (guests: their switches are run by the outer host, so no NVSwitch on
their PCI); the others are written from NVIDIA's PCI ids.
"""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

DISPLAY_3D, DISPLAY_VGA, AUDIO, BRIDGE_OTHER, HOST_BRIDGE, STORAGE, NETWORK = (
    "0x030200", "0x030000", "0x040300", "0x068000", "0x060000", "0x018000", "0x020000",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    device: str
    subsystem: str
    memory_mib: int
    capability: str
    architecture: str
    power_w: int
    fabric: bool = False
    display: bool = False
    mig: str = ""
    """Memory of the MIG profiles in GB: 1g, 1g with twice the memory, 2g, 3g, 4g, 7g."""


_CUTS = (
    ("1g.{0}gb", 19, 7, range(7), 1), ("1g.{0}gb+me", 20, 1, range(7), 1), ("1g.{1}gb", 15, 4, (0, 2, 4, 6), 2),
    ("2g.{2}gb", 14, 3, (0, 2, 4), 2), ("3g.{3}gb", 9, 2, (0, 4), 4), ("4g.{4}gb", 5, 1, (0,), 4),
    ("7g.{5}gb", 0, 1, (0,), 8),
)  # fmt: skip
"""MIG profiles with their numbers, how many there can be, where they begin, their memory slices: as a real H100 says."""

T4 = Gpu(
    name="Tesla T4", device="0x1eb8", subsystem="0x12a2", memory_mib=15360, capability="7.5", architecture="Turing",
    power_w=70,
)  # fmt: skip
V100 = Gpu(
    name="Tesla V100-SXM2-16GB", device="0x1db1", subsystem="0x1212",
    memory_mib=16384, capability="7.0", architecture="Volta", power_w=300,
)  # fmt: skip
RTX4090 = Gpu(
    name="NVIDIA GeForce RTX 4090", device="0x2684", subsystem="0x16f4",
    memory_mib=24564, capability="8.9", architecture="Ada Lovelace", power_w=450, display=True,
)  # fmt: skip
H200 = Gpu(
    name="NVIDIA H200", device="0x2335", subsystem="0x18bf",
    memory_mib=143771, capability="9.0", architecture="Hopper", power_w=700, fabric=True, mig="18 35 35 71 71 141",
)  # fmt: skip


GH200 = Gpu(
    name="NVIDIA GH200 480GB", device="0x2342", subsystem="0x16eb",
    memory_mib=97871, capability="9.0", architecture="Hopper", power_w=900,
)  # fmt: skip
A100 = Gpu(
    name="NVIDIA A100-SXM4-80GB", device="0x20b2", subsystem="0x1463",
    memory_mib=81920, capability="8.0", architecture="Ampere", power_w=400, mig="10 20 20 40 40 80",
)  # fmt: skip


def mig_profiles(sizes: str) -> list[dict[str, object]]:
    """Return what the stand-in nvidia-smi knows of a board's MIG profiles."""
    names = sizes.split()
    return [
        {"name": form.format(*names), "id": number, "total": total, "starts": list(starts), "size": size,
         "gib": f"{size * 9.75:.2f}", "sm": 16 * int(form[0])}
        for form, number, total, starts, size in (_CUTS if names else ())
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: str
    gpus: tuple[Gpu, ...] = ()
    nvswitches: int = 0
    vendor: str = "QEMU"
    product: str = "Standard PC (Q35 + ICH9, 2009)"
    guest: bool = True
    secure_boot: bool = False
    arm: bool = False


MACHINES = {
    machine.name: machine
    for machine in (
        Machine(name="none"),
        Machine(name="t4", gpus=(T4,)),
        Machine(name="t4-secure-boot", gpus=(T4,), secure_boot=True),
        Machine(name="t4-x4", gpus=(T4,) * 4),
        Machine(name="v100", gpus=(V100,)),
        Machine(name="v100-x8", gpus=(V100,) * 8),
        Machine(name="rtx4090", gpus=(RTX4090,), vendor="ASUS", product="System Product Name", guest=False),
        Machine(name="h200-x2", gpus=(H200,) * 2),
        Machine(name="h200-x8", gpus=(H200,) * 8),
        Machine(
            name="h200-x8-nvswitch", gpus=(H200,) * 8, nvswitches=4, guest=False,
            vendor="Dell Inc.", product="PowerEdge XE9680",
        ),
        Machine(
            name="gh200", gpus=(GH200,), arm=True, guest=False, vendor="Quanta Cloud Technology Inc.", product="S74G-2U",
        ),
    )
}  # fmt: skip


def write(machine: Machine, root: Path) -> None:
    """Make the miniature root of MACHINE in the folder ROOT."""
    _device(root, "0000:00:00.0", HOST_BRIDGE, "0x8086", "0x0d57", "0x0000", "0x0000")
    _device(root, "0000:00:01.0", STORAGE, "0x1af4", "0x1042", "0x1af4", "0x1042")
    _device(root, "0000:00:03.0", NETWORK, "0x1af4", "0x1041", "0x1af4", "0x1041")
    described = []
    for index, gpu in enumerate(machine.gpus):
        slot = f"00:{6 + index:02x}"
        address = f"0000:{slot}.0"
        kind = DISPLAY_VGA if gpu.display else DISPLAY_3D
        _device(root, address, kind, "0x10de", gpu.device, "0x10de", gpu.subsystem, link=True)
        if gpu.display:
            _device(root, f"0000:{slot}.1", AUDIO, "0x10de", "0x22ba", "0x10de", gpu.subsystem)
        described.append({**_smi(gpu, index), "address": address})
    for index in range(machine.nvswitches):
        _device(root, f"0000:80:{index:02x}.0", BRIDGE_OTHER, "0x10de", "0x22a3", "0x10de", "0x1796", link=True)
    flags = "fpu vme sse sse2 ht syscall nx lm" + (" hypervisor" if machine.guest else "")
    processor = f"vendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: {flags}"
    if machine.arm:
        processor = "Features\t: fp asimd aes sve2\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f"
    _write(root, "proc/cpuinfo", f"processor\t: 0\n{processor}\n\n")
    _write(root, "proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/vda1 ro quiet\n")
    _write(
        root, "proc/modules", "virtio_net 73728 0 - Live 0x0000000000000000\next4 983040 1 - Live 0x0000000000000000\n"
    )
    _write(root, "sys/class/dmi/id/sys_vendor", machine.vendor + "\n")
    _write(root, "sys/class/dmi/id/product_name", machine.product + "\n")
    _write(root, "sys/class/dmi/id/chassis_type", "1\n" if machine.guest else "23\n")
    if machine.secure_boot:
        place = root / "sys/firmware/efi/efivars"
        place.mkdir(parents=True)
        (place / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\6\0\0\0\1")
        (place / "SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\6\0\0\0\0")
    # For the stand-in nvidia-smi: what the driver would read from the boards.
    _write(root, "lab/gpus.json", json.dumps(described, indent=1) + "\n")


def _smi(gpu: Gpu, index: int) -> dict[str, object]:
    return {
        "name": gpu.name, "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'lab {gpu.name} {index}')}",
        "pci_device_id": f"0x{gpu.device[2:].upper()}10DE", "pci_sub_device_id": f"0x{gpu.subsystem[2:].upper()}10DE",
        "architecture": gpu.architecture, "compute_cap": gpu.capability, "memory_mib": gpu.memory_mib,
        "power_w": gpu.power_w, "fabric": gpu.fabric, "mig": mig_profiles(gpu.mig),
    }  # fmt: skip


def _device(
    root: Path, address: str, kind: str, vendor: str, device: str, subvendor: str, subdevice: str, *, link: bool = False
) -> None:
    folder = f"sys/bus/pci/devices/{address}"
    values = {
        "class": kind, "vendor": vendor, "device": device, "subsystem_vendor": subvendor, "subsystem_device": subdevice,
        "revision": "0xa1", "numa_node": "-1",
    }  # fmt: skip
    if link:
        values |= {"current_link_width": "16", "current_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}
    for name, value in values.items():
        _write(root, f"{folder}/{name}", value + "\n")
    # Configuration space with an empty list of capabilities: a whole device, no virtual one.
    (root / folder / "config").write_bytes(bytes(256))


def _write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
