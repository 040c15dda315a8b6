"""Diagnoses of captured machines: as they were captured, and made sick one thing at a time."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.diagnose import STEPS, diagnose
from gpusetup.doctor.ldcache import parse
from gpusetup.doctor.look import Look
from gpusetup.facts import collect, probe
from gpusetup.facts.products import matrix_lookup
from gpusetup.matrix.load import matrix

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
HEALTHY = HOSTS / "ubuntu24.04-h200-keep" / "root"
KERNEL = "6.8.0-60-generic"


def look_at(root, environment=None):
    facts = collect.captured(root, matrix_lookup(matrix()))
    return Look(facts, probe.load().open_host(str(root)), environment or {})


def cause_of(root, environment=None):
    found = diagnose(look_at(root, environment))
    return found.cause.cause if found.cause else None


@pytest.fixture
def host(tmp_path):
    root = tmp_path / "root"
    shutil.copytree(HEALTHY, root, symlinks=True)
    return root


def edit_capture(root, change):
    path = root / "gpusetup-capture.json"
    capture = json.loads(path.read_text())
    change(capture["observations"])
    path.write_text(json.dumps(capture))


def unload(root):
    shutil.rmtree(root / "proc/driver")
    path = root / "proc/modules"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "nvidia" not in line))


def smi_fails(root, text, code=255):
    def change(observations):
        for label in [name for name in observations if name.startswith("command:nvidia-smi")]:
            observations[label] = {"rc": code, "out": text, "err": ""}

    edit_capture(root, change)


@pytest.mark.parametrize(
    ("folder", "cause"),
    [
        ("ubuntu24.04-h200-keep", None),
        ("ubuntu24.04-h200x2-keep", None),
        ("ubuntu24.04-h200x8-keep", None),
        ("debian12-gtx1080ti-proprietary", None),
        ("ubuntu22.04-a100-mismatch", "nvml-version-mismatch"),
        ("debian12-none-nothing", "gpu-not-on-pci"),
        ("debian12-rtx4090-nouveau", "driver-not-installed"),
        ("ubuntu24.04-b200x8-fabricmanager", "driver-not-installed"),
    ],
)
def test_captured_hosts(folder, cause):
    assert cause_of(HOSTS / folder / "root") == cause


def test_a_healthy_host_answers_every_question(host):
    found = diagnose(look_at(host))
    assert found.healthy
    assert [ruled.step for ruled in found.ruled] == [name for name, _ in STEPS]
    assert found.seconds < 2


def test_it_stops_at_the_first_cause_and_keeps_what_it_ruled_out():
    found = diagnose(look_at(HOSTS / "ubuntu22.04-a100-mismatch" / "root"))
    assert [ruled.answer for ruled in found.ruled][-1] == "cause"
    assert [ruled.answer for ruled in found.ruled][:-1] == ["fine"] * (len(found.ruled) - 1)
    assert len(found.ruled) < len(STEPS)


def test_module_mismatch(host):
    (host / "proc/driver/nvidia/version").write_text(
        (host / "proc/driver/nvidia/version").read_text().replace("580.159.04", "580.126.09")
    )
    assert cause_of(host) == "nvml-version-mismatch"


def test_nouveau_holds_the_gpu(host):
    unload(host)
    with (host / "proc/modules").open("a") as modules:
        modules.write("nouveau 3000000 0 - Live 0x0000000000000000\n")
    assert cause_of(host) == "nouveau-in-use"


def test_the_module_is_only_not_loaded(host):
    unload(host)
    assert cause_of(host) == "nvml-driver-not-loaded"


def test_the_kernel_log_says_why_it_is_not_loaded(host):
    unload(host)
    log = host / "var/log/dmesg"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("[    3.1] nvidia: Loading of module with unavailable key is rejected\n")
    assert cause_of(host) == "secure-boot-rejected"


def no_module(root):
    unload(root)
    (root / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko").unlink()
    source = root / "var/lib/dkms/nvidia/580.159.04/source"
    source.mkdir(parents=True)
    (source / "dkms.conf").write_text('PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="580.159.04"\n')


def test_headers_are_missing(host):
    no_module(host)
    shutil.rmtree(host / f"lib/modules/{KERNEL}/build")
    assert cause_of(host) == "dkms-headers-missing"


def test_the_last_compiler_error_is_told(host):
    no_module(host)
    log = host / "var/lib/dkms/nvidia/580.159.04/build/make.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        f"DKMS make.log for nvidia-580.159.04 for kernel {KERNEL} (x86_64)\n"
        "/var/lib/dkms/nvidia/580.159.04/build/nvidia/os.c:12:3: error: implicit declaration of function 'frob'\n"
        "make[3]: *** [/var/lib/dkms/nvidia/580.159.04/build/nvidia/os.o] Error 1\n"
    )
    found = diagnose(look_at(host)).cause
    assert found is not None
    assert found.cause in {"dkms-build-failed", "dkms-kernel-too-new"}
    assert any("make.log" in line for line in found.evidence)


def test_wrong_flavour(host):
    path = host / "proc/driver/nvidia/version"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Sun May 1 00:00:00 UTC 2026\n")
    device = next((host / "sys/bus/pci/devices").glob("*/device"))
    for folder in (host / "sys/bus/pci/devices").iterdir():
        if (folder / "vendor").read_text().strip() == "0x10de":
            device = folder / "device"
    device.write_text("0x2901\n")
    assert cause_of(host) == "open-module-required"


def test_a_dead_gpu_with_xid_79(host):
    smi_fails(host, "Unable to determine the device handle for GPU0000:00:06.0: Unknown Error\n")
    log = host / "var/log/dmesg"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("[ 99.1] NVRM: Xid (PCI:0000:00:06): 79, pid=1, GPU has fallen off the bus.\n")
    assert cause_of(host) == "gpu-fallen-off-bus"


def test_a_dead_gpu_without_a_log(host):
    smi_fails(host, "Unable to determine the device handle for GPU0000:00:06.0: Unknown Error\n")
    assert cause_of(host) == "gpu-lost"


def test_an_old_fault_of_a_program_is_only_noted(host):
    log = host / "var/log/dmesg"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("[ 99.1] NVRM: Xid (PCI:0000:00:06): 31, pid=1, name=python3, MMU Fault\n")
    found = diagnose(look_at(host))
    assert found.healthy
    assert [notice.cause for notice in found.notices] == ["xid-31"]


def test_the_fabric_is_not_set_up(host):
    def change(observations):
        for label in [name for name in observations if name.startswith("command:nvidia-smi")]:
            observations[label]["out"] = observations[label]["out"].replace("Completed, Success", "In Progress, N/A")

    before = (host / "gpusetup-capture.json").read_text()
    if "Completed, Success" not in before:
        pytest.skip("this capture's GPU is not in a fabric")
    edit_capture(host, change)
    assert cause_of(host) == "fabric-not-ready"


def environment(root, *packages):
    folder = root / "opt/venv/lib/python3.12/site-packages"
    for package in packages:
        (folder / f"{package}.dist-info").mkdir(parents=True)
    return {"VIRTUAL_ENV": "/opt/venv"}


@pytest.mark.parametrize(
    ("packages", "cause"),
    [
        (["torch-2.8.0+cu128"], None),
        (["torch-2.8.0+cpu"], "torch-cpu-build"),
        (["torch-2.15.0+cu132"], None),
        (["torch-1.10.0+cu113"], "no-kernel-image"),
        (["cupy_cuda12x-13.6.0", "cupy_cuda13x-14.2.0"], "cupy-multiple-packages"),
        (["cupy_cuda13x-14.2.0"], None),
        (["jax-0.7.0", "jaxlib-0.7.0"], "jax-cuda-plugin-missing"),
        (["jax-0.7.0", "jaxlib-0.7.0", "jax_cuda12_plugin-0.4.30"], "jax-plugin-mismatch"),
    ],
)
def test_python_environments(host, packages, cause):
    assert cause_of(host, environment(host, *packages)) == cause


def library(root, path):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    return file


def test_cuda_compat_hides_the_driver(host):
    library(host, "/usr/local/cuda/compat/libcuda.so.535.104.05")
    (host / "usr/local/cuda/compat/libcuda.so.1").symlink_to("libcuda.so.535.104.05")
    assert cause_of(host, {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}) == "compat-shadows-driver"


def test_a_stub_of_libcuda(host):
    library(host, "/usr/local/cuda/lib64/stubs/libcuda.so.1")
    assert cause_of(host, {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"}) == "stub-library"


def test_a_cdi_file_of_another_driver(host):
    path = host / "etc/cdi/nvidia.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15\n")
    assert cause_of(host) == "cdi-stale"


def test_the_loader_cache():
    names = b"libcuda.so.1\0/usr/lib/libcuda.so.1\0"
    header = struct.pack("<20sII B3x I 3I", b"glibc-ld.so.cache1.1", 1, len(names), 2, 0, 0, 0, 0)
    begin = len(header) + 24
    raw = header + struct.pack("<iIIIQ", 0x0303, begin, begin + 13, 0, 0) + names
    assert parse(raw) == {"libcuda.so.1": ["/usr/lib/libcuda.so.1"]}
    assert parse(raw, "aarch64") == {}
    for cut in range(0, len(raw), 7):
        parse(raw[:cut])
    assert parse(b"nonsense") == {}


def test_exit_codes_and_json(capsys):
    assert main(["doctor", "--root", str(HEALTHY)]) == 0
    assert main(["doctor", "--root", str(HOSTS / "ubuntu22.04-a100-mismatch" / "root")]) == 8
    assert main(["doctor", "no such message at all"]) == 3
    capsys.readouterr()
    assert main(["doctor", "--format", "json", "--root", str(HOSTS / "ubuntu22.04-a100-mismatch" / "root")]) == 8
    document = json.loads(capsys.readouterr().out)
    assert document["hosts"]["localhost"]["cause"]["cause"] == "nvml-version-mismatch"
    assert main(["doctor", "--format", "json", "Xid 79"]) == 8
    assert json.loads(capsys.readouterr().out)["findings"][0]["cause"] == "gpu-fallen-off-bus"


def test_what_does_not_go_together(capsys, tmp_path):
    assert main(["doctor", "Xid 79", "--text", "x"]) == 3
    assert main(["doctor", "--text", str(tmp_path / "missing.log")]) == 3
    assert main(["doctor", "Xid 79", "--bundle", str(tmp_path / "b")]) == 3
    assert capsys.readouterr().err.count("GS-60") == 3
