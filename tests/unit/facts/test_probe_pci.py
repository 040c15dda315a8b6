"""BIOS, IOMMU and the way to a GPU, from a folder that stands in for /sys and /proc."""

import pytest

from gpusetup.content import host_code

GPU = "0000:18:00.0"
BRIDGE = "/sys/devices/pci0000:17/0000:17:01.0"


@pytest.fixture
def machine(tmp_path):
    def put(path, content):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    place = f"{BRIDGE}/{GPU}"
    put(f"{place}/config", config({0x10: (8, 0x2810 | 1 << 5)}))
    put(f"{place}/resource", "0x1000 0x1fff 0x14\n0x0 0x0 0x0\n0x100000000000 0x101fffffffff 0x14220c\n")
    put(f"{BRIDGE}/config", config({}, acs=0x1D))
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / f"sys/bus/pci/devices/{GPU}").symlink_to(f"../../../devices/pci0000:17/0000:17:01.0/{GPU}")
    put("/sys/kernel/iommu_groups/42/type", "DMA-FQ\n")
    (tmp_path / place.lstrip("/") / "iommu_group").symlink_to("../../../../kernel/iommu_groups/42")
    put("/sys/class/dmi/id/bios_version", "2.1\n")
    put("/sys/class/dmi/id/bios_vendor", "American Megatrends\n")
    put("/sys/devices/system/cpu/smt/active", "0\n")
    put(
        "/proc/cpuinfo", "processor : 0\nmodel name\t: Some  CPU @ 2 GHz\nmicrocode\t: 0x2b000590\nmodel name : Other\n"
    )
    for node in range(2):
        put(f"/sys/devices/system/node/node{node}/cpulist", "0\n")
    (tmp_path / "sys/class/iommu/dmar0").mkdir(parents=True)
    return tmp_path, put


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


class Root:
    """A host whose files lie below a folder and who looks for real."""

    def __init__(self, root):
        self.root = root

    def inside(self, path):
        return str(self.root) + path

    def observe(self, label, look):
        return look()


def test_what_the_owner_chose(machine):
    told = host_code("gpu_probe.pci").settings(Root(machine[0]))
    assert told == {
        "bios_vendor": "American Megatrends", "bios_version": "2.1", "bios_date": None, "board": None, "cpu": "Some CPU @ 2 GHz",
        "microcode": "0x2b000590", "smt": False, "governor": None, "numa_nodes": 2, "iommu": True,
    }  # fmt: skip


def test_the_way_to_a_gpu(machine):
    told = host_code("gpu_probe.pci").way_to(Root(machine[0]), GPU)
    assert told == {
        "iommu": "DMA-FQ", "bridges": 1, "above": ["0000:17:01.0"], "acs_redirect": ["0000:17:01.0"], "max_payload": 256, "max_read_request": 512,
        "bar_mib": 131072,
    }  # fmt: skip


def test_acs_that_does_not_redirect_is_none_and_what_only_root_reads_is_not_known(machine):
    root, put = machine
    pci = host_code("gpu_probe.pci")
    put(f"{BRIDGE}/config", config({}, acs=0x10))
    assert pci.way_to(Root(root), GPU)["acs_redirect"] == []
    put(f"{BRIDGE}/config", config({})[:64])
    assert pci.way_to(Root(root), GPU)["acs_redirect"] is None


def test_a_broken_chain_of_capabilities_ends(machine):
    root, put = machine
    raw = bytearray(config({0x99: (8, 0)}, acs=0))
    raw[0x41] = 0x40  # points at itself
    raw[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    put(f"{BRIDGE}/config", bytes(raw))
    put(f"{BRIDGE}/{GPU}/config", bytes(raw))
    told = host_code("gpu_probe.pci").way_to(Root(root), GPU)
    assert (told["acs_redirect"], told["max_payload"]) == ([], None)


def test_a_machine_that_tells_nothing(tmp_path):
    pci = host_code("gpu_probe.pci")
    assert set(pci.settings(Root(tmp_path)).values()) == {None, False}
    assert pci.way_to(Root(tmp_path), GPU)["bar_mib"] is None


STATUS = """GPU 0: NVIDIA H200 (UUID: GPU-a)
\t Link 0: 26.562 GB/s
\t Link 1: 25 GB/s
\t Link 2: <inactive>
GPU 1: NVIDIA H200 (UUID: GPU-b)
"""


def test_nvlinks_of_each_gpu():
    class Host:
        def exists(self, path):
            return path == "/usr/bin/nvidia-smi"

        def run(self, label, argv, seconds):
            assert argv == ["/usr/bin/nvidia-smi", "nvlink", "--status"]
            return {"rc": 0, "out": STATUS}

    smi = host_code("gpu_probe.smi")
    assert smi.nvlinks(Host(), loaded=True) == {
        "GPU-a": {"up": 2, "down": 1, "slowest": 25.0}, "GPU-b": {"up": 0, "down": 0, "slowest": None},
    }  # fmt: skip
    assert smi.nvlinks(Host(), loaded=False) == {}
