"""What kind of machine it is: PCI, vGPU, NVSwitch, clouds, containers, nvidia-smi, services, screens."""

import platform
import venv
from types import SimpleNamespace

import pytest

from gpusetup.content import host_code
from tests.stored import stored_rows

pci, smi, kinds = host_code("gpu_probe.pci"), host_code("gpu_probe.smi"), host_code("gpu_probe.virtualisation")
system, modules, services, drivers = (
    host_code(f"gpu_probe.{part}") for part in ("system", "modules", "services", "drivers")
)

DEVICES = "/sys/bus/pci/devices/"


def device(machine, address, klass, vendor, number, config=None, **attributes):
    folder = DEVICES + address
    machine.put(folder + "/class", f"0x{klass}\n").put(folder + "/vendor", f"0x{vendor}\n").put(
        folder + "/device", f"0x{number}\n"
    )
    for name, value in attributes.items():
        machine.put(f"{folder}/{name}", f"{value}\n")
    if config is not None:
        machine.put(folder + "/config", config)


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


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (config_space([(1, b"\x03\x00"), (9, b"\x08VF\x00")]), True),
        (config_space([(1, b"\x03\x00"), (9, b"\x08XX\x00")]), False),
        (config_space([(1, b"")]), False),
        (config_space([])[:64], None),
        (None, None),
    ],
    ids=["signature", "other-vendor-data", "none", "not-root", "unreadable"],
)
def test_a_vgpu_is_known_by_its_capability(machine, config, expected):
    device(
        machine, "0000:01:00.0", "030200", "10de", "25b6", config, subsystem_vendor="0x10de", subsystem_device="0x1234"
    )
    host = machine.host()
    assert pci.collect(host)["gpus"][0]["vgpu"] is expected
    assert ("gpus.vgpu" in host.unreadable) is (expected is None)


def test_a_ring_of_capabilities_ends(machine):
    raw = bytearray(256)
    raw[0x34], raw[0x41], raw[0x51] = 0x40, 0x50, 0x40
    device(machine, "0000:01:00.0", "030200", "10de", "25b6", bytes(raw))
    assert pci.collect(machine.host())["gpus"][0]["vgpu"] is False


def test_nvswitch_by_its_driver_and_by_managers(machine):
    assert pci.nvswitch(machine.host(), []) is None
    machine.put("/sys/class/infiniband/mlx5_0/node_guid").put("/sys/class/infiniband/mlx5_1/node_guid")
    machine.answer("nvlink5:mlx5_0", False).answer("nvlink5:mlx5_1", True)
    assert pci.nvswitch(machine.host(), []) == {"kind": "nvlink5", "pci": [], "devices": 0, "managers": ["mlx5_1"]}
    machine.put("/proc/driver/nvidia-nvswitch/devices/0000:05:00.0")
    assert pci.nvswitch(machine.host(), [])["kind"] == "pci"


def test_the_manager_is_known_by_its_vital_data(tmp_path):
    live = host_code("gpu_probe.host").LiveHost()
    (tmp_path / "vpd").write_bytes(b"\x82\x20\x00ConnectX-7\x90SMDL\x06SW_MNG")
    assert pci._is_switch_manager(live, str(tmp_path / "vpd")) is True
    assert pci._is_switch_manager(live, str(tmp_path / "none")) is False


def dmi(machine, vendor="", product="", tag="", chassis="1"):
    for name, value in (
        ("sys_vendor", vendor),
        ("product_name", product),
        ("chassis_asset_tag", tag),
        ("chassis_type", chassis),
    ):
        machine.put("/sys/class/dmi/id/" + name, value + "\n")
    return machine


@pytest.mark.parametrize(
    ("vendor", "product", "tag", "hypervisor", "kind", "cloud"),
    [
        ("Amazon EC2", "p5.48xlarge", "Amazon EC2", True, "kvm", "aws"),
        ("Amazon EC2", "g4dn.metal", "", False, "none", "aws"),
        ("Google", "Google Compute Engine", "", True, "kvm", "gcp"),
        ("Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77", True, "microsoft", "azure"),
        ("Microsoft Corporation", "Virtual Machine", "", True, "microsoft", None),
        ("Alibaba Cloud", "Alibaba Cloud ECS", "", True, "kvm", "alibaba"),
        ("QEMU", "Standard PC", "OracleCloud.com", True, "kvm", "oracle"),
        ("Dell Inc.", "PowerEdge", "ASSET-0042", False, "none", None),
        ("VMware, Inc.", "VMware7,1", "", True, "vmware", None),
        ("", "", "", True, "unknown", None),
    ],
)
def test_clouds_and_hypervisors(machine, vendor, product, tag, hypervisor, kind, cloud):
    dmi(machine, vendor, product, tag)
    machine.put("/proc/cpuinfo", "flags\t\t: fpu hypervisor sse\n" if hypervisor else "flags\t\t: fpu sse\n")
    told = kinds.collect(machine.host())
    assert (told["kind"], told["cloud"], told["driver_refused"]) == (kind, cloud, None)


@pytest.mark.parametrize(
    ("path", "content", "container"),
    [
        ("/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1234.slice\n", "kubepods"),
    ],
)
def test_containers_refuse_a_driver(machine, path, content, container):
    told = kinds.collect(machine.put(path, content).host())
    assert (told["container"], told["driver_refused"]) == (container, "container")


def test_a_machine_made_from_a_container_image_is_no_container(machine):
    machine.put("/.dockerenv").link("/proc/self/ns/pid", "pid:[4026531836]").link(
        "/proc/self/ns/uts", "uts:[4026531838]"
    )
    assert kinds.collect(machine.host())["driver_refused"] is None


def test_a_container_that_shares_the_hosts_processes_is_one(machine):
    machine.put("/.dockerenv").link("/proc/self/ns/pid", "pid:[4026531836]").link(
        "/proc/self/ns/uts", "uts:[4026532999]"
    )
    assert kinds.collect(machine.host())["container"] == "docker"


def test_a_container_without_any_marker_is_known_by_its_namespace(machine):
    machine.link("/proc/self/ns/pid", "pid:[4026532777]").link("/proc/self/ns/uts", "uts:[4026532776]")
    assert kinds.collect(machine.host())["container"] == "unknown"


def test_wsl_refuses_a_driver_and_is_no_container(machine):
    machine.put("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n").put("/.dockerenv")
    told = kinds.collect(machine.host())
    assert (told["kind"], told["container"], told["driver_refused"]) == ("wsl", None, "wsl")


LINE = (
    "00000000:00:06.0, GPU-1c5b, NVIDIA H200, 143771, 580.159.04, Enabled, Disabled, Enabled, 9.0, Completed, Success\n"
)


def test_named_fields_by_address(machine):
    machine.put("/usr/bin/nvidia-smi").says("nvidia-smi", LINE + "garbage\n")
    told = smi.collect(machine.host(), True)
    assert told["ok"] is True
    assert told["gpus"]["0000:00:06.0"]["mig_pending"] == "Enabled"
    assert told["gpus"]["0000:00:06.0"]["fabric"] == {"state": "Completed", "status": "Success"}


def test_an_old_driver_is_asked_for_less(machine):
    machine.put("/usr/bin/nvidia-smi").says("nvidia-smi", 'Field "fabric.state" is not a valid field to query.\n', 2)
    machine.says("nvidia-smi-old", "00000000:01:00.0, GPU-1, Tesla T4, 15360, 450.80.02, Disabled, [N/A]\n")
    gpu = smi.collect(machine.host(), True)["gpus"]["0000:01:00.0"]
    assert (gpu["memory_mib"], gpu["mig"], gpu["fabric"], gpu["persistence"]) == (15360, None, None, False)


def test_a_mismatch_is_told_in_its_own_words(machine):
    machine.put("/usr/bin/nvidia-smi").says(
        "nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch\n", 18
    )
    host = machine.host()
    told = smi.collect(host, True)
    assert (told["ok"], told["gpus"]) == (False, {})
    assert "mismatch" in told["why"]
    assert "mismatch" in host.unreadable["gpus.uuid"]


def test_it_is_not_started_without_a_module(machine):
    machine.put("/usr/bin/nvidia-smi").says("nvidia-smi", LINE)
    assert "not asked" in smi.collect(machine.host(), False)["why"]
    assert smi.collect(host_code("gpu_probe.host").FolderHost(str(machine.root / "usr")), True) is None


def test_services(machine):
    machine.put("/usr/lib/systemd/system/nvidia-persistenced.service").put(
        "/lib/systemd/system/nvidia-fabricmanager.service"
    )
    assert host_code("gpu_probe.services").collect(machine.host())["persistenced"]["active"] is None
    machine.put("/run/systemd/system/x").says(
        "services",
        "Id=nvidia-fabricmanager.service\nNames=nvidia-fabricmanager.service\nActiveState=failed\nUnitFileState=enabled\n\n"
        "Id=nvidia-persistenced.service\nNames=nvidia-persistenced.service\nActiveState=active\nUnitFileState=static\n",
    )
    told = host_code("gpu_probe.services").collect(machine.host())
    assert told["fabricmanager"] == {"unit": "nvidia-fabricmanager.service", "active": "failed", "enabled": "enabled"}
    assert told["persistenced"]["enabled"] == "static"


@pytest.mark.parametrize(
    ("session", "counts"),
    [
        ("TYPE=wayland\nCLASS=user\nSTATE=active\n", True),
        ("TYPE=x11\nCLASS=greeter\nSTATE=online\n", True),
        ("TYPE=tty\nCLASS=user\nSTATE=active\n", False),
        ("TYPE=unspecified\nCLASS=manager\n", False),
    ],
)
def test_sessions_on_a_screen(machine, session, counts):
    machine.put("/run/systemd/sessions/3", "UID=1000\nUSER=somebody\n" + session)
    told = host_code("gpu_probe.sessions").display(machine.host(), [], [], False)
    assert bool(told["sessions"]) is counts
    assert "somebody" not in str(told)


def test_frameworks_of_an_interpreter(machine):
    machine.put("/opt/gpusetup/bin/python3.11").link("/opt/gpusetup/bin/python3", "python3.11")
    for name in ("cupy_cuda12x-13.6.0", "torch-2.9.0+cu130", "numpy-2.0", "nvidia_cudnn_cu12-9.10.2.21"):
        machine.put(f"/opt/gpusetup/lib/python3.11/site-packages/{name}.dist-info/METADATA")
    (python,) = host_code("gpu_probe.system").pythons(machine.host())
    assert python["packages"] == {"cupy-cuda12x": "13.6.0", "torch": "2.9.0+cu130", "nvidia-cudnn-cu12": "9.10.2.21"}


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
    told = {
        item["path"]: item
        for item in host_code("gpu_probe.system").pythons(host_code("gpu_probe.host").LiveHost(), [path])
    }
    assert told[path]["packages"] == {"torch": "2.9.0+cu130", "cupy-cuda13x": "14.2.0"}
    assert host_code("gpu_probe.system").pythons(host_code("gpu_probe.host").LiveHost(), [str(tmp_path / "none")]) == [
        item for key, item in told.items() if key != path
    ]


@pytest.mark.parametrize("answer", ["{", "[]", "3"])
def test_a_record_that_cannot_be_read_is_noted(machine, answer):
    host = machine.put("/var/lib/gpusetup/state.json", answer).host()
    assert host_code("gpu_probe.record").read(host) is None
    assert "state" in host.unreadable


def test_cuda_side_by_side_with_a_default(machine):
    machine.put("/usr/local/cuda-12.8/version.json", '{"cuda": {"version": "12.8.1"}}').put(
        "/usr/local/cuda-12.8/bin/nvcc"
    )
    machine.put("/usr/local/cuda-13.0/version.json", "broken").link("/usr/local/cuda", "cuda-12.8")
    told = host_code("gpu_probe.libraries").cuda(machine.host())
    assert [(kit["version"], kit["nvcc"]) for kit in told["toolkits"]] == [("12.8.1", True), ("13.0", False)]
    assert told["default"] == "/usr/local/cuda-12.8"


def test_libraries_by_package_or_header(machine):
    libraries = host_code("gpu_probe.libraries")
    there = {"libnccl2": {"version": "2.27.3-1+cuda12.9", "state": "installed"}}
    assert libraries.nccl(machine.host(), there, "x")[0]["version"] == "2.27.3"
    machine.put(
        "/usr/include/cudnn_version.h", "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n"
    )
    assert libraries.cudnn(machine.host(), {}, "x")[0] == {
        "version": "9.10.2",
        "source": "/usr/include/cudnn_version.h",
        "package_version": None,
    }


def test_a_machine_has_one_digest_under_whatever_name_and_never_its_id(machine_in):
    ids = ("0123456789abcdef0123456789abcdef\n", "0123456789abcdef0123456789abcdef\n", "f" * 32)
    told = [
        system.boot(machine_in(str(number)).put("/etc/machine-id", text).host())["machine"]
        for number, text in enumerate(ids)
    ]
    assert told[0] == told[1] != told[2]
    assert not {text.strip() for text in ids} & set(told)
    empty = machine_in("image").put("/etc/machine-id", "uninitialized\n")
    assert system.boot(empty.host())["machine"] is None


def test_who_uses_a_module_and_how_often(machine):
    machine.put(
        "/proc/modules",
        "nvidia 56700928 5 nvidia_uvm,gdrdrv, Live 0x0\nnvidia_uvm 1 0 - Live 0x0\next4 1 1 - Live 0x0\n",
    )
    assert modules.users(machine.host()) == {
        "nvidia": {"references": 5, "holders": ["nvidia_uvm", "gdrdrv"]},
        "nvidia_uvm": {"references": 0, "holders": []},
    }


@pytest.mark.parametrize("branch", ["nvidia-580", "nvidia-590-open", "nvidia-580srv"])
def test_a_module_of_any_branch_below_the_kernels_folder_is_found_before_depmod_ran(machine, branch):
    path = f"/lib/modules/6.8.0-60-generic/kernel/{branch}/nvidia.ko"
    machine.put(path).answer("modinfo:" + path, {"version": "590.48.01", "license": "Dual MIT/GPL"})
    found = modules.find(machine.host(), "6.8.0-60-generic")
    assert (found["path"], found["version"], found["flavour"]) == (path, "590.48.01", "open")


def test_a_unit_that_the_record_names_is_looked_at_too(machine):
    machine.put("/etc/systemd/system/nvidia-own.service")
    assert list(services.collect(machine.host(), ["nvidia-own.service", "gone.service"])) == ["nvidia-own.service"]


def test_libraries_of_two_drivers_side_by_side_are_both_told(machine):
    folder = "/usr/lib/x86_64-linux-gnu"
    machine.put(f"{folder}/libcuda.so.580.1.02").put("/usr/lib64/libcuda.so.570.2")
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.580.1.02").link("/usr/lib64/libcuda.so.1", "libcuda.so.570.2")
    assert drivers.library_files(machine.host(), "x86_64-linux-gnu") == {
        "libcuda.so.1": {f"{folder}/libcuda.so.580.1.02": "580.1.02", "/usr/lib64/libcuda.so.570.2": "570.2"}
    }


def test_a_link_above_the_root_leads_to_the_root(machine):
    machine.put("/opt/cuda/libcuda.so.1").link("/lib64/libcuda.so.1", "../../opt/./cuda/libcuda.so.1")
    assert (
        host_code("gpu_probe.libraries").link_target(machine.host(), "/lib64/libcuda.so.1") == "/opt/cuda/libcuda.so.1"
    )


@pytest.mark.parametrize("row", stored_rows("scheduled_work.json"), ids=lambda row: row["case"])
def test_what_a_scheduler_runs_here_is_named(row, tmp_path, monkeypatch):
    for name in ("squeue", "kubectl"):
        (tmp_path / name).write_text("#!/bin/sh\n" + row.get(name, "exit 1"))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(platform, "node", lambda: "GPU1.example.org")
    monkeypatch.setattr(host_code("gpu_probe.sessions"), "_SCHEDULER_SECONDS", 0.5)
    host = SimpleNamespace(live=row.get("live", True), exists=lambda path: path == row.get("kubelet"))
    assert [tuple(one.values()) for one in host_code("gpu_probe.sessions").work(host)] == [
        tuple(one) for one in row["found"]
    ]
