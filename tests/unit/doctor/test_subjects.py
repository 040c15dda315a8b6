"""Messages by subject: the open half is right, rules hold for whole classes, a text says the same however it comes."""

import json
from hashlib import sha256

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.doctor.catalogue import read_table
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.scan import NEAR, another_module
from gpusetup.model.diagnosis import CompanionFile
from tests.unit.doctor.score import FIXTURES, score

COMPANIONS = msgspec.json.decode(read_table("companions.json"), type=CompanionFile).companions
OPEN = json.loads((FIXTURES / "subjects_open.json").read_text(encoding="utf-8"))


def first(text):
    return next((found.cause for found in diagnose_text(text) if found.kind != "notice"), None)


def test_the_open_half_is_right():
    told = score("subjects_open")
    # One message names no module: whose build failed cannot be read in it.
    assert [(wanted, said) for wanted, said, _text in told.missed] == [("None", "dkms-build-failed")]


def test_the_half_labelled_without_the_catalogue_stays_named():
    found = score("labels_open")
    assert found.right >= 52, found.missed
    assert found.wrong <= 2


def test_the_fresh_half_is_right():
    found = score("messages_open")
    assert found.right == found.messages, found.missed


@pytest.mark.parametrize("name", ["subjects", "messages"])
def test_the_halves_are_split_by_the_seeded_hash(name):
    for half, file in enumerate(("open", "held")):
        told = json.loads((FIXTURES / f"{name}_{file}.json").read_text(encoding="utf-8"))
        for entry in told["entries"]:
            number = int(sha256((told["seed"] + entry["thread"]).encode()).hexdigest(), 16)
            assert number % 2 == half, entry["thread"]


@pytest.mark.parametrize("companion", COMPANIONS, ids=lambda one: one.package)
def test_every_companion_is_known_in_every_wording(companion):
    for module in companion.modules:
        assert first(f"ModuleNotFoundError: No module named '{module}'") == "torch-abi-mismatch"
        assert first(f"ImportError: No module named {module}") == "torch-abi-mismatch"
        assert first(f"ModuleNotFoundError: No module named '{module}_other'") is None
    for name in {companion.package, companion.package.replace("-", "_")}:
        assert first(f"  ERROR: Failed building wheel for {name}") == "nvcc-failed"
        assert first(f"ERROR: Failed building wheel for {name}x") is None


CLASSES = [
    ("apt-package-missing", ("error: target not found: {}", "No provider of '{}' found.", "Package '{}' not found."),
     ("nvidia-open-dkms", "lib32-nvidia-utils", "cudnn", "python-cuda")),
    ("apt-unmet-dependencies", (":: unable to satisfy dependency 'x=1' required by {}",
     'warning: cannot resolve "x=1", a dependency of "{}"',
     "Problem: nothing provides 'x = 1' needed by the to be installed {}-1.0.x86_64",
     ":: installing x (2-1) breaks dependency '{}=1' required by y"),
     ("nvidia-utils", "cuda-drivers", "nvidia-driver-G06-kmp-default")),
    ("graphics-library-missing", ("{}.so.0: cannot open shared object file", "Could not get 'vkCreateInstance' for ICD {}.so.0"),
     ("libGLX_nvidia", "libEGL_nvidia")),
    ("imex-not-ready", ("{} failed: operation not permitted", "{} returned CUDA_ERROR_NOT_PERMITTED"),
     ("cuMemCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle")),
    ("nvlink-training-failed", ("[  9.1] NVRM: knvlink{}_IMPL: Failed to update the mask!",),
     ("UpdatePostRxDetectLinkMask", "TrainLinks", "CoreInitLink")),
    ("gds-compat-mode", ("cuFileDriverOpen failed: {}",), ("CU_FILE_DRIVER_NOT_INITIALIZED", "CU_FILE_NVFS_DRIVER_ERROR")),
    ("gpu-lacks-feature", ("ptxas a.ptx, line 8; error   : {} not supported on .target 'sm_120a'",),
     ("Feature '.multimem'", "Instruction 'wgmma.fence'", "Modifier '.cta_group'")),
    ("container-driver-files-in-image",
     (" unable to make backup link of './usr/lib/{}.so.1' before installing: Invalid cross-device link",),
     ("libcuda", "libnvidia-ml")),
    ("build-without-torch", ("Getting requirements to build wheel: {}",), ("ModuleNotFoundError: No module named 'torch'",)),
    ("passthrough-not-ready", ("vfio 0000:01:00.0: {}",),
     ("group 1 is not viable", "no iommu_group found: No such file", "failed to open /dev/vfio/9: No such file")),
    ("module-wrong-kernel", ("modprobe: ERROR: could not insert '{}': Invalid argument",), ("nvidia", "nvidia_uvm", "nvidia-drm")),
    ("rdma-memlock", ("{} failed: Cannot allocate memory",), ("ibv_create_qp", "ibv_reg_mr_iova2", "ibv_create_cq")),
    ("nvcc-failed", ("subprocess.CalledProcessError: Command '['{}', '/tmp/main.c', '-lcuda', '-o', 'x.so']' returned",),
     ("/usr/bin/gcc", "cc", "/usr/bin/clang")),
    ("nvrtc-headers-missing", ("a.h:7:10: fatal error: {}: No such file or directory", "fatal error C1083: Cannot open include file: '{}': No such file"),
     ("cuda_fp8.h", "cublas_v2.h", "cusolverDn.h", "thrust/complex.h", "nccl.h", "NvInfer.h")),
    ("gpu-lacks-feature", ("FlashInfer requires GPUs with {} or higher", "This kernel only supports {} or newer"), ("sm75", "SM80", "Hopper GPUs")),
    ("driver-too-old", ("ImportError: x.so: undefined symbol: {}", 'error="symbol lookup for {} failed"'),
     ("cuGreenCtxDestroy", "cuTensorMapEncodeTiled", "cuCtxCreate_v3")),
    ("nvml-library-missing", ("error initializing {}: ERROR_LIBRARY_NOT_FOUND",), ("NVML", "nvml")),
    ("program-cpu-build", ("{} was not compiled with CUDA support",), ("This CTranslate2 package", "XGBoost")),
    ("cuda-unknown-error", ("cuInit(0) {} 999", "cuDeviceGet {} 999time=2025"), ("failed:", "returned error code")),
    ("passthrough-not-ready", ("vfio 0000:01:00.0: {}",), ("failed to setup container for group 12: x", "group 1 used in multiple address spaces")),
    ("peermem-not-registered", ("NOTICE  cufio-rdma:175 {}.ko is not loaded.", "{} not loaded"),
     ("nvidia_peermem", "nv_peer_mem")),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "wordings", "words"), CLASSES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_rule_holds_for_its_whole_class(cause, wordings, words):
    lines = [wording.format(word) for wording in wordings for word in words]
    assert [(line, first(line)) for line in lines] == [(line, cause) for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        "error: target not found: firefox",
        ":: unable to satisfy dependency 'qt6-base=6' required by kwin",
        "libGLX_mesa.so.0: cannot open shared object file",
        "cuMemCreate done",
        "modprobe: ERROR: could not insert 'vboxdrv': Required key not available",
        "(EE) no screens found(EE)",
        "cp: cannot create hard link './a' to './b': Invalid cross-device link",
        "nvidia_peermem is loaded",
        "ModuleNotFoundError: No module named 'torch'",
        "group 1 is not viable",
        "vkCreateInstance failed with VK_ERROR_INCOMPATIBLE_DRIVER",
        "cc: fatal error: Killed signal terminated program cc1",
    ],
)
def test_a_rule_leaves_what_is_not_its_own(line):
    assert first(line) is None


@pytest.mark.parametrize("module", ["zfs", "v4l2loopback", "rtl8852bu", "wireguard"])
def test_another_modules_build_is_not_nvidias(module):
    build = f"Error! Bad return status for module build on kernel: 6.8.0 (x86_64)\nsee /var/lib/dkms/{module}/1.2/build/make.log"
    assert first(build) is None
    assert first(build.replace(module, "nvidia")) == "dkms-build-failed"
    assert all(another_module(cause, build) for cause in NEAR)
    assert not another_module("gpu-lost", build)


@pytest.mark.parametrize(
    ("symbol", "cause"),
    [
        ("cudnnSetConvolutionGroupCount", "cudnn-version-mismatch"),
        ("ncclCommWindowRegister", "nccl-symbol-mismatch"),
        ("__fatbinwrap_38_tmpxft", "library-mixed"),
        ("cudaGetDriverEntryPointByVersion", "library-mixed"),
        ("PyUnicode_AsUTF8", None),
    ],
)
@pytest.mark.parametrize("wording", ["undefined symbol: {}", "undefined symbol {}"])
def test_a_symbol_tells_its_library(symbol, cause, wording):
    assert first(f"ImportError: /opt/env/x.so: {wording.format(symbol)}") == cause


def test_the_firmware_file_and_its_package_are_named(capsys):
    assert main(["doctor", "Direct firmware load for nvidia/550.76/gsp_ga10x.bin failed with error -2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "/lib/firmware/nvidia/550.76/gsp_ga10x.bin" in said
    assert "nvidia-firmware-550-550.76" in said


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "hello\nworld, all good",
        "NCCL INFO Connected all trees\nNCCL INFO Init COMPLETE",
        "Xid 79",
        "CUDA error: out of memory",
        "Permission denied (publickey).",
        "some error that nobody knows",
        *(entry["text"] for entry in OPEN["entries"][::9]),
    ],
)
def test_a_text_says_the_same_as_an_argument_and_as_a_file(text, tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(text, encoding="utf-8")
    by_argument = main(["doctor", text]), capsys.readouterr().out
    assert (main(["doctor", "--text", str(log)]), capsys.readouterr().out) == by_argument


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)) * 20, "this is not text"),
        (b"hello\nworld\n", "no line of this text is known"),
    ],
)
def test_healthy_is_said_only_of_what_is_known(raw, words, tmp_path, capsys):
    log = tmp_path / "log"
    log.write_bytes(raw)
    assert main(["doctor", "--text", str(log)]) == 3
    told = capsys.readouterr()
    assert words in " ".join((told.out + told.err).split())
    assert "healthy" not in told.out
