"""What ran on a real GPU, judged; and what the same documents say when something in them is broken."""

import pytest

from gpusetup.model.package import Package, PackageSet
from gpusetup.verify.checks.smoke.frameworks import served
from gpusetup.verify.machine import Machine, Wanted
from tests.records import lock_of
from tests.unit.verify.verify_documents import ASKED, captured, differences, results, verdicts

RUNS = "h200-x1-smoke h200-x1-full h200-x1-stress h200-x2-full h200-x4-full h100-x2-full h100-x2-stress"


@pytest.mark.parametrize("name", RUNS.split())
def test_real_runs_pass(name):
    found = results(captured(name))
    assert [result.id for result in found.values() if result.verdict == "fail"] == []
    assert found["cupy.kernel"].verdict == "pass"


def test_every_figure_of_a_real_run_is_near_what_is_expected():
    """The expectations are computed; the figures were measured. Three per cent is what a good check may differ."""
    for name in ("h200-x1-full", "h200-x4-full"):
        for result in results(captured(name)).values():
            if result.unit in ("GB/s", "TFLOP/s") and result.verdict == "pass":
                assert result.measured == pytest.approx(result.expected, rel=0.04), result.id


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (802, "fabric manager"), (999, "device files"), (35, "older than"), (100, "no CUDA device"), (46, "busy"),
        (804, "forward compatibility"), (803, "do not match"),
    ],
)  # fmt: skip
def test_a_context_that_cannot_be_made(status, words):
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    worker = broken["sections"]["workers"]["0"]
    worker["open"] = {"error": "cuda", "type": "CUDARuntimeError", "status": status, "message": "cudaErrorX: text"}
    worker.pop("smoke")
    changed = differences(healthy, broken)
    assert changed.pop("cuda.context") == "fail"
    assert words in results(broken)["cuda.context"].text
    assert set(changed.values()) == {"skip"}, "nothing that could not run is a pass"


def test_no_interpreter_is_a_failure_unless_cupy_is_not_wanted():
    document = captured("h200-x1-smoke")
    document["sections"] = {
        "interpreter": {"path": None, "error": "/opt/gpusetup/bin/python is not there or not executable"}
    }
    told = results(document)["python.environment"]
    assert (told.verdict, told.blame) == ("warn", "environment"), "nobody asked for it"
    assert "no Python was named" in told.text
    assert "--python /path/to/python; not run: cuda.context, cuda.libraries" in told.text
    assert verdicts(document)["cupy.kernel"] == "skip"
    assert verdicts(document, Wanted(lock_of(driver="580.159.04")))["python.environment"] == "skip"
    assert verdicts(document, Wanted(lock_of(cupy="13.6.0")))["python.environment"] == "fail"
    document["sections"]["interpreter"]["named"] = True
    assert verdicts(document)["python.environment"] == "fail", "the caller asked for it"


def test_a_wrong_element():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    first = {"index": 7, "got": 0.5, "expected": 0.25}
    broken["sections"]["workers"]["0"]["smoke"]["kernel"] |= {"wrong": 1, "first": first}
    assert differences(healthy, broken) == {"cupy.kernel": "fail"}
    assert "element 7" in results(broken)["cupy.kernel"].text


def test_a_product_that_is_not_a_number():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    broken["sections"]["workers"]["0"]["smoke"]["cublas"]["float32"]["error"] = float("nan")
    assert differences(healthy, broken) == {"cupy.cublas": "fail"}


def test_ptx_newer_than_the_driver():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    broken["sections"]["workers"]["0"]["smoke"]["ptx"] = {"error": "cuda", "status": 222, "message": "UNSUPPORTED"}
    assert differences(healthy, broken) == {"cuda.ptx": "fail"}
    assert "too old to compile this PTX" in results(broken)["cuda.ptx"].text


def test_ptx_newer_than_a_driver_whose_highest_version_is_known_is_a_warning():
    healthy, newer = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    smoke = newer["sections"]["workers"]["0"]["smoke"]
    smoke["ptx"] = {"error": "cuda", "status": 222, "message": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}
    smoke["ptx_versions"] = {"highest": "9.0", "refused_with": [222]}
    assert differences(healthy, newer) == {"cuda.ptx": "warn"}
    text = results(newer)["cuda.ptx"].text
    assert "up to 9.0" in text
    assert "Triton, torch.compile and CuPy work" in text


def test_a_driver_that_takes_less_ptx_than_its_cuda_means():
    machine = captured("h200-x1-smoke")
    smoke = machine["sections"]["workers"]["0"]["smoke"]
    smoke["libraries"]["driver_cuda"] = 13000
    smoke["ptx_versions"] = {"highest": "9.0", "refused_with": [222]}
    assert results(machine)["cuda.ptx"].verdict == "pass"
    assert "takes PTX up to 9.0" in results(machine)["cuda.ptx"].text
    smoke["ptx_versions"]["highest"] = "8.8"
    assert results(machine)["cuda.ptx"].verdict == "warn"
    assert "its CUDA 13.0 means 9.0" in results(machine)["cuda.ptx"].text


def test_missing_headers_stop_cupys_own_kernels_only():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    broken["sections"]["workers"]["0"]["smoke"]["elementwise"] = {
        "error": "compile",
        "message": 'cannot open source file "cuda_fp16.h"',
    }
    assert differences(healthy, broken) == {"cupy.elementwise": "fail"}
    found = results(broken)["cupy.elementwise"]
    assert ("cuda_fp16.h" in found.text, found.blame) == (True, "stack")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "timeout", "deadline": 60, "message": "x"}, "no answer within 60 s"),
        ({"error": "timeout-unkillable", "deadline": 60, "message": "x"}, "only with a reboot"),
        ({"error": "crashed", "message": "the worker ended during smoke (killed by SIGSEGV)", "stderr": ""}, "SIGSEGV"),
        ({"error": "out-of-memory", "status": 2, "message": "cudaErrorX: out of memory"}, "out of GPU memory"),
    ],
)
def test_a_worker_that_hangs_crashes_or_finds_no_memory(answer, words):
    document = captured("h200-x1-smoke")
    document["sections"]["workers"]["0"]["smoke"] = answer
    found = results(document)
    assert found["cupy.kernel"].verdict == "fail"
    assert words in found["cupy.kernel"].text
    assert found["torch.cuda"].verdict == "pass", "the next check ran"


def test_two_copies_of_nccl_are_named():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    broken["sections"]["torch"]["loaded"]["libnccl"] = ["/usr/lib/libnccl.so.2", "/opt/gpusetup/lib/libnccl.so.2"]
    assert differences(healthy, broken) == {"cuda.libraries": "fail"}
    found = results(broken)["cuda.libraries"]
    assert ("libnccl" in found.text, found.blame) == (True, "stack")


def test_packages_of_two_cuda_majors():
    healthy, broken = captured("h200-x1-smoke"), captured("h200-x1-smoke")
    broken["sections"]["workers"]["0"]["hello"]["packages"]["nvidia-nccl-cu12"] = "2.27.3"
    assert differences(healthy, broken) == {"cuda.libraries": "warn"}


def test_torch_without_code_for_the_gpu_names_a_build_that_has_it():
    document = captured("h200-x1-smoke")
    document["sections"]["torch"]["arch_list"] = ["sm_50", "sm_60", "sm_70"]
    found = results(document, ASKED)["torch.build"]
    assert found.verdict == "fail"
    assert "torch==" in found.text


@pytest.mark.parametrize(
    ("capability", "architectures", "how"),
    [
        ("9.0", ["sm_80", "sm_90"], "sass"), ("8.9", ["sm_80", "sm_90"], "sass"), ("12.0", ["sm_80", "sm_90"], None),
        ("12.0", ["sm_90", "compute_90"], "ptx"), ("8.0", ["sm_86"], None), ("10.3", ["sm_90a", "sm_100"], "sass"),
        ("9.0", ["sm_90a"], "sass"), ("10.3", ["sm_100a"], None), ("10.3", ["sm_100f"], "sass"),
        ("9.0", ["compute_90a"], "ptx"), ("10.0", ["compute_90a"], None), ("7.0", ["sm_75", "compute_80"], None),
        ("9.0", ["something else"], None),
    ],
)  # fmt: skip
def test_what_a_build_runs_on(capability, architectures, how):
    assert served(capability, architectures) == how


@pytest.mark.parametrize(("cuda", "verdict"), [("13.0", "warn"), ("13.5", "fail"), (None, "warn")])
def test_a_driver_refuses_ptx_that_is_newer_than_itself(cuda, verdict):
    """Measured on an H100 with driver 580 (CUDA 13.0): PTX of CUDA 13.5 ends with error 222."""
    document = captured("h200-x1-smoke")
    document["sections"]["torch"] |= {"arch_list": ["sm_80", "compute_80"], "cuda": cuda}
    assert results(document, ASKED)["torch.build"].verdict == verdict


def test_torch_that_is_a_cpu_build_or_missing():
    document = captured("h200-x1-smoke")
    document["sections"]["torch"] |= {"available": False, "cuda": None}
    assert "without CUDA" in results(document)["torch.cuda"].text
    del document["sections"]["torch"]
    assert verdicts(document)["torch.cuda"] == "skip"
    assert verdicts(document, Wanted(lock_of(torch="2.11.0")))["torch.cuda"] == "fail"


def test_tensorflow_that_computes_on_the_processor():
    document = captured("h200-x1-smoke")
    document["sections"]["tensorflow"] = {"version": "2.21.0", "built_with_cuda": True, "gpus": [], "loaded": {}}
    found = results(document, ASKED)["tensorflow.gpu"]
    assert found.verdict == "fail"
    assert "0 of 1" in found.text


JAX = {
    "version": "0.11.2",
    "plugins": {"jaxlib": "0.11.2", "jax-cuda13-plugin": "0.11.2", "jax-cuda13-pjrt": "0.11.2"},
    "devices": 1,
    "gpus": [
        {"index": 0, "product_error": 3e-4, "product_limit": 2e-3, "convolution_error": 4e-4, "convolution_limit": 5e-3}
    ],
    "loaded": {},
    "seconds": 5.0,
}


@pytest.mark.parametrize(
    ("changed", "verdict", "said"),
    [
        ({}, "pass", "0.11.2, jax-cuda13-plugin"),
        ({"plugins": {"jaxlib": "0.11.2"}}, "fail", "no CUDA plugin"),
        ({"gpus": [], "why_not": "backend 'cuda': no supported devices\nmore"}, "fail", "no supported"),
        ({"gpus": [], "devices": 0}, "fail", "0 of 1"),
        ({"gpus": [JAX["gpus"][0] | {"convolution_error": 0.5}]}, "fail", "GPU 0"),
        ({"gpus": [{"index": 0, "error": "XlaRuntimeError: INTERNAL: ptxas too old"}]}, "fail", "ptxas"),
    ],
)
def test_jax_is_judged_by_its_plugin_its_gpus_and_its_results(changed, verdict, said):
    document = captured("h200-x1-smoke")
    document["sections"]["jax"] = JAX | changed
    found = results(document, ASKED)["jax.gpu"]
    assert found.verdict == verdict
    assert said in found.text + " ".join(f"{item.subject} {item.text}" for item in found.items)


def test_nvcc_that_cannot_compile():
    document = captured("h200-x1-smoke")
    message = "gcc: warning\nerror: unsupported GNU version! gcc versions later than 14 are not supported!"
    document["sections"]["nvcc"] = {"error": "compile", "message": message}
    found = results(document, ASKED)["nvcc.program"]
    assert found.verdict == "fail"
    assert "unsupported GNU version" in found.text


@pytest.mark.parametrize(("busy", "verdict", "blame"), [(True, "warn", "job"), (False, "fail", "gpu")])
def test_memory_that_runs_out_beside_a_job_is_the_jobs(busy, verdict, blame):
    document = captured("h200-x1-full")
    worker, full = document["sections"]["workers"]["0"], {"error": "out-of-memory", "message": "x", "status": 2}
    worker["busy"], worker["smoke"]["cublas"], document["sections"]["memory"]["0"] = busy, full, full
    found = results(document)
    assert {(found[name].verdict, found[name].blame) for name in ("cupy.cublas", "memory.copy")} == {(verdict, blame)}


def test_a_device_file_that_cuda_made_meanwhile_is_a_warning():
    document = captured("h200-x1-smoke")
    files = document["quick"]["device_files"]["files"]
    document["quick"]["device_files"]["files"] = [one for one in files if "uvm" not in one["path"]]
    found = results(document)
    assert (found["device.files"].verdict, found["cuda.context"].verdict) == ("warn", "pass")


def test_a_product_that_comes_out_differently():
    healthy, broken = captured("h200-x1-stress"), captured("h200-x1-stress")
    broken["sections"]["stress"]["workers"]["0"]["deviations"] = 1
    assert differences(healthy, broken) == {"stress.compute": "fail"}


def test_heat_under_load():
    healthy, broken = captured("h200-x1-stress"), captured("h200-x1-stress")
    broken["sections"]["stress"]["samples"][-1]["rows"][0]["reasons"] = "0x0000000000000040"
    assert differences(healthy, broken) == {"stress.thermal": "fail"}


@pytest.mark.parametrize(
    ("clock", "reasons", "verdict"),
    [("1320", "0x4", "pass"), ("1320", "0x0", "warn"), ("900", "0x4", "warn"), ("1965", "0x0", "pass")],
)
def test_clocks_may_fall_further_at_the_power_limit(clock, reasons, verdict):
    document = captured("h200-x1-stress")
    for sample in document["sections"]["stress"]["samples"]:
        sample["rows"][0] |= {"clocks.sm": clock, "reasons": reasons}
    document["sections"]["stress"]["samples"][0]["rows"][0]["clocks.sm"] = "345"  # one sample between two products
    assert verdicts(document)["stress.thermal"] == verdict


def test_an_error_that_came_with_the_load():
    healthy, broken = captured("h200-x1-stress"), captured("h200-x1-stress")
    after = broken["sections"]["stress"]["after"]
    after["smi"]["stdout"] = after["smi"]["stdout"].replace("<dram_uncorrectable>0<", "<dram_uncorrectable>1<", 1)
    assert differences(healthy, broken) == {"stress.ecc": "fail"}
    broken = captured("h200-x1-stress")
    broken["sections"]["stress"]["after"]["kernel_log"]["lines"].append("NVRM: Xid (PCI:0000:00:06): 63, pid=1")
    assert differences(healthy, broken) == {"stress.ecc": "fail"}
    broken["sections"]["stress"]["after"]["kernel_log"] = {"source": None, "lines": [], "error": "not permitted"}
    assert "no new Xid" not in results(broken)["stress.ecc"].text


@pytest.mark.parametrize(("number", "left", "verdict"), [(31, ["1"], "warn"), (31, [], "fail"), (79, ["1"], "fail")])
def test_an_xid_that_a_job_caused_on_a_gpu_left_to_it_is_a_warning(number, left, verdict):
    document = captured("h100-x2-stress")
    stress, place = document["sections"]["stress"], Machine(document).gpus[1].bus_id.partition(".")[0]
    stress["busy"] = left
    stress["after"]["kernel_log"]["lines"].append(f"NVRM: Xid (PCI:{place}): {number}, pid=1")
    assert verdicts(document)["stress.ecc"] == verdict


def test_what_the_lock_installs_as_packages_must_be_there():
    """A toolkit that comes as wheels brings no nvcc; one that comes as packages does."""
    document = captured("h200-x1-smoke")
    del document["sections"]["nvcc"]
    assert verdicts(document, Wanted(lock_of(cuda="13.0.2")))["nvcc.program"] == "skip"
    cuda, toolkit = (Package(name=name) for name in ("cuda-toolkit-13-0", "nvidia-container-toolkit"))
    packaged = Wanted(lock_of(PackageSet(manager="apt", cuda=(cuda,), containers=(toolkit,)), cuda="13.0.2"))
    assert verdicts(document, packaged)["nvcc.program"] == "fail"
    assert verdicts(document, packaged)["container.toolkit"] == "fail"
    del document["sections"]["torch"]
    assert verdicts(document, Wanted(lock_of(cuda="13.0.2")))["torch.cuda"] == "skip", "it is not part of it"


def test_every_numa_node_is_shown_and_the_best_is_judged():
    document = captured("h200-x1-full")
    document["sections"]["pcie"]["0"]["nodes"]["1"] = {"h2d": [21.0, 21.3], "d2h": [20.1, 20.2], "wrong": 0}
    found = results(document)["pcie.h2d"]
    assert (found.verdict, found.measured) == ("pass", pytest.approx(55.5, abs=0.2))
    assert [item.text for item in found.items if "node 1" in item.subject] == ["21.3 GB/s"]
    document["sections"]["pcie"]["0"]["nodes"]["1"]["wrong"] = 8
    assert verdicts(document)["pcie.h2d"] == "fail"


def test_an_adopted_python_without_cupy_when_cupy_is_not_wanted():
    document = captured("h200-x1-smoke")
    worker = document["sections"]["workers"]["0"]
    worker["hello"] = {"error": "import", "message": "No module named 'cupy'"}
    for name in ("open", "smoke"):
        worker.pop(name)
    document["sections"]["interpreter"]["named"] = True
    assert verdicts(document)["python.environment"] == "fail"
    found = verdicts(document, Wanted(lock_of(torch="2.11.0")))
    assert found["python.environment"] == "skip"
    assert found["cupy.kernel"] == found["cuda.context"] == "skip"
    assert found["torch.cuda"] == "pass"


PACKAGED_CUDNN = Wanted(
    lock_of(PackageSet(manager="apt", cudnn=(Package(name="libcudnn9-cuda-13"),)), cudnn="9.28.0.42")
)


@pytest.mark.parametrize(
    ("answer", "wanted", "verdict", "said"),
    [
        (None, None, "skip", "no cuDNN"),
        (None, PACKAGED_CUDNN, "fail", "finds no libcudnn"),
        ({"version": 92800, "status": 0}, PACKAGED_CUDNN, "pass", "9.28.0"),
        ({"version": 8907, "status": 0}, None, "pass", "8.9.7"),
        ({"version": 91002, "status": 0}, PACKAGED_CUDNN, "fail", "9.10.2 is loaded, 9.28.0.42 is on record"),
        (
            {"version": 92800, "status": 1002, "error": "open", "message": "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"},
            ASKED,
            "fail",
            "MISMATCH",
        ),
        ({"error": "load", "message": "libcudnn.so.9: file too short"}, ASKED, "fail", "file too short"),
        ({"error": "timeout", "deadline": 60}, ASKED, "fail", "no answer within 60 s"),
    ],
)
def test_the_hosts_own_cudnn(answer, wanted, verdict, said):
    document = captured("h200-x1-smoke")
    document["sections"].pop("cudnn", None)
    if answer is not None:
        document["sections"]["cudnn"] = answer
    found = results(document, wanted)["cudnn.library"]
    assert found.verdict == verdict
    assert said in found.text


def test_a_gpu_that_computes_wrongly_fails_the_host_whoever_asked_for_the_framework():
    document = captured("h200-x1-smoke")
    document["sections"]["torch"]["gpus"][0] |= {"product_error": 0.5, "product_limit": 2e-3}
    found = results(document)["torch.cuda"]
    assert (found.verdict, found.blame) == ("fail", "gpu")


def test_an_unasked_framework_that_cannot_be_imported_is_a_warning_of_its_environment():
    document = captured("h200-x1-smoke")
    document["sections"]["torch"] = {"error": "import", "message": "No module named 'sympy'"}
    for wanted, verdict, blame in ((None, "warn", "environment"), (ASKED, "fail", "stack")):
        found = results(document, wanted)["torch.cuda"]
        assert (found.verdict, found.blame) == (verdict, blame)
