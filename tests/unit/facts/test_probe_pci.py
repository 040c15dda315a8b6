"""BIOS, IOMMU and the way to a GPU, from a folder that stands in for /sys and /proc."""

import pytest

from gpusetup.content import host_code

pci = host_code("gpu_probe.pci")
GPU = "0000:18:00.0"

BRIDGE = "/sys/devices/pci0000:17/0000:17:01.0"


@pytest.fixture
def gpu_machine(machine):
    place = f"{BRIDGE}/{GPU}"
    machine.put(f"{place}/config", config({0x10: (8, 0x2810 | 1 << 5)})).put(f"{BRIDGE}/config", config({}, acs=0x1D))
    machine.put(f"{place}/resource", "0x1000 0x1fff 0x14\n0x0 0x0 0x0\n0x100000000000 0x101fffffffff 0x14220c\n")
    machine.link(f"/sys/bus/pci/devices/{GPU}", f"../../../devices/pci0000:17/0000:17:01.0/{GPU}")
    machine.put("/sys/kernel/iommu_groups/42/type", "DMA-FQ\n")
    machine.link(f"{place}/iommu_group", "../../../../kernel/iommu_groups/42")
    machine.put("/sys/class/dmi/id/bios_version", "2.1\n").put("/sys/class/dmi/id/bios_vendor", "American Megatrends\n")
    machine.put("/sys/devices/system/cpu/smt/active", "0\n").put("/sys/class/iommu/dmar0/x")
    cpu = "processor : 0\nmodel name\t: Some  CPU @ 2 GHz\nmicrocode\t: 0x2b000590\nmodel name : Other\n"
    machine.put("/proc/cpuinfo", cpu)
    for node in range(2):
        machine.put(f"/sys/devices/system/node/node{node}/cpulist", "0\n")
    return machine


def test_what_the_owner_chose(gpu_machine):
    assert pci.settings(gpu_machine.live()) == {
        "bios_vendor": "American Megatrends", "bios_version": "2.1", "bios_date": None, "board": None, "cpu": "Some CPU @ 2 GHz",
        "microcode": "0x2b000590", "smt": False, "governor": None, "numa_nodes": 2, "iommu": True,
    }  # fmt: skip


def test_the_way_to_a_gpu(gpu_machine):
    assert pci.way_to(gpu_machine.live(), GPU) == {
        "iommu": "DMA-FQ", "bridges": 1, "above": ["0000:17:01.0"], "acs_redirect": ["0000:17:01.0"], "max_payload": 256, "max_read_request": 512,
        "bar_mib": 131072,
    }  # fmt: skip


def test_a_broken_chain_of_capabilities_ends(gpu_machine):
    raw = bytearray(config({0x99: (8, 0)}, acs=0))
    raw[0x41] = 0x40  # points at itself
    raw[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    gpu_machine.put(f"{BRIDGE}/config", bytes(raw)).put(f"{BRIDGE}/{GPU}/config", bytes(raw))
    told = pci.way_to(gpu_machine.live(), GPU)
    assert (told["acs_redirect"], told["max_payload"]) == ([], None)


def config(capabilities, acs=None):
    """A device's configuration: capabilities as id → (offset, 16 bits), and the control bits of ACS."""
    raw, place = bytearray(4096), 0x40
    for number, (offset, value) in capabilities.items():
        raw[0x34] = place
        raw[place] = number
        raw[place + offset : place + offset + 2] = value.to_bytes(2, "little")
    if acs is not None:
        raw[0x100:0x104] = (0x0001 | 0x148 << 20 | 1 << 16).to_bytes(4, "little")  # another capability first
        raw[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        raw[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(raw)


STATUS = """GPU 0: NVIDIA H200 (UUID: GPU-a)
\t Link 0: 26.562 GB/s
\t Link 1: 25 GB/s
\t Link 2: <inactive>
GPU 1: NVIDIA H200 (UUID: GPU-b)
"""


def test_nvlinks_of_each_gpu(machine):
    asked = []

    def run(_label, argv, _seconds):
        asked.append(argv)
        return {"rc": 0, "out": STATUS}

    host = machine.put("/usr/bin/nvidia-smi").live(run=run)
    smi = host_code("gpu_probe.smi")
    assert smi.nvlinks(host, loaded=True) == {
        "GPU-a": {"up": 2, "down": 1, "slowest": 25.0}, "GPU-b": {"up": 0, "down": 0, "slowest": None},
    }  # fmt: skip
    assert smi.nvlinks(host, loaded=False) == {}
    assert asked == [["/usr/bin/nvidia-smi", "nvlink", "--status"]]
