"""What kind of machine it is: PCI, vGPU, NVSwitch, BIOS, IOMMU, the way to a GPU, clouds, containers, services."""

import platform
import venv
from types import SimpleNamespace

import pytest

from gpusetup.content import host_code
from tests.modules.stand_ins import write
from tests.stored import stored_rows

pci, smi, kinds, sessions = (host_code(f"gpu_probe.{part}") for part in ("pci", "smi", "virtualisation", "sessions"))
system, modules, services, libraries, probe_host = (
    host_code(f"gpu_probe.{part}") for part in ("system", "modules", "services", "libraries", "host")
)
PERSISTENCED, FABRIC_MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"


def device(machine, address, klass, vendor, number, config=None, **attributes):
    for name, value in {"class": f"0x{klass}", "vendor": f"0x{vendor}", "device": f"0x{number}", **attributes}.items():
        machine.put(f"/sys/bus/pci/devices/{address}/{name}", f"{value}\n")
    if config is not None:
        machine.put(f"/sys/bus/pci/devices/{address}/config", config)
    return machine


def config_space(capabilities):
    """256 bytes whose capability list holds (id, bytes after id and next)."""
    raw, at = bytearray(256), 0x60
    raw[0x34] = at
    for number, (kind, body) in enumerate(capabilities):
        following = at + 0x10 if number + 1 < len(capabilities) else 0
        raw[at : at + 2 + len(body)] = bytes([kind, following]) + body
        at += 0x10
    return bytes(raw)


def test_only_display_devices_of_the_vendor_are_gpus(machine):
    more = {"subsystem_vendor": "0x1043", "subsystem_device": "0x889e", "numa_node": "-1"}
    device(machine, "0000:01:00.0", "030000", "10de", "2684", config_space([]), **more)
    device(machine, "0000:01:00.1", "040300", "10de", "22ba")
    device(machine, "0000:02:00.0", "068000", "10de", "22a3")
    device(machine, "0000:03:00.0", "030000", "1a03", "2000")
    device(machine, "0000:04:00.0", "030200", "1002", "740f")
    device(machine, "0000:05:00.0", "020000", "15b3", "1021")
    told = pci.collect(machine.host())
    (gpu,) = told["gpus"]
    assert (gpu["pci_id"], gpu["subsystem"], gpu["numa_node"]) == ("10de:2684", "1043:889e", -1)
    assert (gpu["bound"], gpu["vgpu"]) == (None, False)
    assert told["nvswitches"] == [{"address": "0000:02:00.0", "pci_id": "10de:22a3"}]
    assert told["other_displays"] == [{"address": "0000:04:00.0", "pci_id": "1002:740f"}]


RING = bytearray(256)
RING[0x34], RING[0x41], RING[0x51] = 0x40, 0x50, 0x40


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (config_space([(1, b"\x03\x00"), (9, b"\x08VF\x00")]), True),
        (config_space([(1, b"\x03\x00"), (9, b"\x08XX\x00")]), False),
        (config_space([(1, b"")]), False),
        (bytes(RING), False),
        (config_space([])[:64], None),
        (None, None),
    ],
    ids=["signature", "other-vendor-data", "none", "ring", "not-root", "unreadable"],
)
def test_a_vgpu_is_known_by_its_capability(machine, config, expected):
    names = {"subsystem_vendor": "0x10de", "subsystem_device": "0x1234"}
    host = device(machine, "0000:01:00.0", "030200", "10de", "25b6", config, **names).host()
    assert pci.collect(host)["gpus"][0]["vgpu"] is expected
    assert ("gpus.vgpu" in host.unreadable) is (expected is None)


@pytest.mark.parametrize(("name", "manager"), [("vpd", True), ("none", False)])
def test_the_manager_is_known_by_its_vital_data(machine, name, manager):
    machine.put("/vpd", b"\x82\x20\x00ConnectX-7\x90SMDL\x06SW_MNG")
    assert pci._is_switch_manager(probe_host.LiveHost(), str(machine.root / name)) is manager


@pytest.mark.parametrize(
    ("vendor", "product", "tag", "hypervisor", "kind", "cloud"), stored_rows("clouds-and-hypervisors.json")
)
def test_clouds_and_hypervisors(machine, vendor, product, tag, hypervisor, kind, cloud):
    names = {"sys_vendor": vendor, "product_name": product, "chassis_asset_tag": tag, "chassis_type": "1"}
    for name, value in names.items():
        machine.put(f"/sys/class/dmi/id/{name}", value + "\n")
    machine.put("/proc/cpuinfo", "flags\t\t: fpu hypervisor sse\n" if hypervisor else "flags\t\t: fpu sse\n")
    told = kinds.collect(machine.host())
    assert (told["kind"], told["cloud"], told["driver_refused"]) == (kind, cloud, None)


HOSTS_PIDS = ("pid:[4026531836]", "uts:[4026531838]")


@pytest.mark.parametrize(
    ("path", "content", "namespaces", "kind", "container", "refused"),
    [
        ("/run/systemd/container", "systemd-nspawn\n", None, "none", "systemd-nspawn", "container"),
        ("/.dockerenv", "", None, "none", "docker", "container"),
        ("/run/.containerenv", "", None, "none", "podman", "container"),
        ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1234.slice\n", None, "none", "kubepods", "container"),
        ("/.dockerenv", "", HOSTS_PIDS, "none", None, None),  # a machine made from a container image
        # It shares the processes.
        ("/.dockerenv", "", (HOSTS_PIDS[0], "uts:[4026532999]"), "none", "docker", "container"),
        ("/x", "", ("pid:[4026532777]", "uts:[4026532776]"), "none", "unknown", "container"),  # without any marker
        ("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n", None, "wsl", None, "wsl"),
    ],
)
def test_containers_and_wsl_refuse_a_driver(machine, path, content, namespaces, kind, container, refused):
    machine.put(path, content)
    if kind == "wsl":
        machine.put("/.dockerenv")
    for name, namespace in zip(("pid", "uts"), namespaces or (), strict=False):
        machine.link(f"/proc/self/ns/{name}", namespace)
    told = kinds.collect(machine.host())
    assert (told["kind"], told["container"], told["driver_refused"]) == (kind, container, refused)


def test_an_old_driver_is_asked_for_less(machine):
    machine.put("/usr/bin/nvidia-smi").says("nvidia-smi", 'Field "fabric.state" is not a valid field to query.\n', 2)
    machine.says("nvidia-smi-old", "00000000:01:00.0, GPU-1, Tesla T4, 15360, 450.80.02, Disabled, [N/A]\n")
    gpu = smi.collect(machine.host(), True)["gpus"]["0000:01:00.0"]
    assert (gpu["memory_mib"], gpu["mig"], gpu["fabric"], gpu["persistence"]) == (15360, None, None, False)


def test_services(machine):
    machine.put(f"/usr/lib/systemd/system/{PERSISTENCED}").put(f"/lib/systemd/system/{FABRIC_MANAGER}")
    assert services.collect(machine.host())["persistenced"]["active"] is None
    shown = "Id={0}\nNames={0}\nActiveState={1}\nUnitFileState={2}\n"
    units = ((FABRIC_MANAGER, "failed", "enabled"), (PERSISTENCED, "active", "static"))
    machine.put("/run/systemd/system/x").says("services", "\n".join(shown.format(*unit) for unit in units))
    told = services.collect(machine.host())
    assert told["fabricmanager"] == {"unit": FABRIC_MANAGER, "active": "failed", "enabled": "enabled"}
    assert told["persistenced"]["enabled"] == "static"
    machine.put("/etc/systemd/system/nvidia-own.service")  # which the record names
    assert list(services.collect(machine.host(), ["nvidia-own.service", "gone.service"]))[-1] == "nvidia-own.service"


def test_a_named_interpreter_is_asked_itself(tmp_path):
    """A folder that a .pth file adds is seen by the interpreter alone."""
    environment = tmp_path / "env"
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    for folder, name, version in ((site, "torch", "2.9.0+cu130"), (tmp_path / "more", "CuPy-cuda13x", "14.2.0")):
        place = folder / f"{name.replace('-', '_').lower()}-{version}.dist-info"
        place.mkdir(parents=True)
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (site / "more.pth").write_text(str(tmp_path / "more") + "\n")
    path = str(environment / "bin/python3")
    told = {item["path"]: item for item in system.pythons(probe_host.LiveHost(), [path])}
    assert told.pop(path)["packages"] == {"torch": "2.9.0+cu130", "cupy-cuda13x": "14.2.0"}
    assert system.pythons(probe_host.LiveHost(), [str(tmp_path / "none")]) == list(told.values())


def test_cuda_side_by_side_with_a_default(machine):
    machine.put("/usr/local/cuda-12.8/version.json", '{"cuda": {"version": "12.8.1"}}')
    machine.put("/usr/local/cuda-12.8/bin/nvcc").put("/usr/local/cuda-13.0/version.json", "broken")
    told = libraries.cuda(machine.link("/usr/local/cuda", "cuda-12.8").host())
    assert [(kit["version"], kit["nvcc"]) for kit in told["toolkits"]] == [("12.8.1", True), ("13.0", False)]
    assert told["default"] == "/usr/local/cuda-12.8"


def test_libraries_by_package_or_header(machine):
    there = {"libnccl2": {"version": "2.27.3-1+cuda12.9", "state": "installed"}}
    assert libraries.nccl(machine.host(), there, "x")[0]["version"] == "2.27.3"
    header = "/usr/include/cudnn_version.h"
    machine.put(header, "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n")
    found = {"version": "9.10.2", "source": header, "package_version": None}
    assert libraries.cudnn(machine.host(), {}, "x")[0] == found


def test_a_machine_has_one_digest_under_whatever_name_and_never_its_id(machine_in):
    ids = ("0123456789abcdef0123456789abcdef\n", "0123456789abcdef0123456789abcdef\n", "f" * 32)
    hosts = [machine_in(str(at)).put("/etc/machine-id", text).host() for at, text in enumerate(ids)]
    told = [system.boot(host)["machine"] for host in hosts]
    assert told[0] == told[1] != told[2]
    assert not {text.strip() for text in ids} & set(told)
    empty = machine_in("image").put("/etc/machine-id", "uninitialized\n")
    assert system.boot(empty.host())["machine"] is None


def test_who_uses_a_module_and_how_often(machine):
    rows = "nvidia 56700928 5 nvidia_uvm,gdrdrv, Live 0x0\nnvidia_uvm 1 0 - Live 0x0\next4 1 1 - Live 0x0\n"
    assert modules.users(machine.put("/proc/modules", rows).host()) == {
        "nvidia": {"references": 5, "holders": ["nvidia_uvm", "gdrdrv"]},
        "nvidia_uvm": {"references": 0, "holders": []},
    }


@pytest.mark.parametrize("row", stored_rows("scheduled_work.json"), ids=lambda row: row["case"])
def test_what_a_scheduler_runs_here_is_named(row, tmp_path, monkeypatch):
    write(tmp_path, {name: "#!/bin/sh\n" + row.get(name, "exit 1") for name in ("squeue", "kubectl")}, 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(platform, "node", lambda: "GPU1.example.org")
    monkeypatch.setattr(sessions, "_SCHEDULER_SECONDS", 0.5 if "sleep" in row.get("squeue", "") else 60.0)
    host = SimpleNamespace(live=row.get("live", True), exists=lambda path: path == row.get("kubelet"))
    assert [list(one.values()) for one in sessions.work(host)] == row["found"]


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
    assert smi.nvlinks(host, loaded=True) == {
        "GPU-a": {"up": 2, "down": 1, "slowest": 25.0}, "GPU-b": {"up": 0, "down": 0, "slowest": None},
    }  # fmt: skip
    assert smi.nvlinks(host, loaded=False) == {}
    assert asked == [["/usr/bin/nvidia-smi", "nvlink", "--status"]]
