"""What ran on a real GPU, judged, and with something in it broken; a fleet, with hosts that do not answer."""

from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.modules import gpu_verify

from gpusetup.drive.events import Failure, Track
from gpusetup.model.package import Package, PackageSet
from gpusetup.verify import fleet
from gpusetup.verify.fleet import hosts_plan, observe_fleet
from gpusetup.verify.machine import Machine, Wanted
from gpusetup.verify.probe import Ask, Observed
from gpusetup.verify.smi import parse_gpus, parse_topology
from tests.modules.stand_ins import write
from tests.records import lock_of
from tests.unit.verify.verify_documents import ASKED, broken, captured, differences, found_at, results, verdicts

SMOKE, FULL, STRESS, FOUR = "h200-x1-smoke", "h200-x1-full", "h200-x1-stress", "h200-x4-full"
WORKER = "sections/workers/0"


def test_every_figure_of_a_real_run_is_near_what_is_expected():
    """The expectations are computed; the figures were measured. Three per cent is what a good check may differ."""
    for name in (FULL, FOUR):
        for result in results(captured(name)).values():
            if result.unit in ("GB/s", "TFLOP/s") and result.verdict == "pass":
                assert result.measured == pytest.approx(result.expected, rel=0.04), result.id


PTX = {"error": "cuda", "status": 222, "message": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}
HIGHEST = {f"{WORKER}/smoke/ptx": PTX, f"{WORKER}/smoke/ptx_versions": {"highest": "9.0", "refused_with": [222]}}
HEADERS = {"error": "compile", "message": 'cannot open source file "cuda_fp16.h"'}
NCCL = ["/usr/lib/libnccl.so.2", "/opt/gpusetup/lib/libnccl.so.2"]
STRESSED, GROUP = "sections/stress/workers/0", "sections/nccl/groups/-1/ranks"
XID = ["NVRM: Xid (PCI:0000:00:06): 63, pid=1"]


@pytest.mark.parametrize(
    ("on", "edits", "changes", "says"),
    [
        (SMOKE, {f"{WORKER}/smoke/kernel/wrong": 1, f"{WORKER}/smoke/kernel/first": {"index": 7, "got": 0.5, "expected": 0.25}}, "cupy.kernel fail", "element 7"),
        (SMOKE, {f"{WORKER}/smoke/cublas/float32/error": float("nan")}, "cupy.cublas fail", ""),
        (SMOKE, {f"{WORKER}/smoke/ptx": PTX}, "cuda.ptx fail", "too old to compile this PTX"),
        (SMOKE, HIGHEST, "cuda.ptx warn", "up to 9.0"),
        (SMOKE, HIGHEST, "cuda.ptx warn", "Triton, torch.compile and CuPy work"),
        (SMOKE, {f"{WORKER}/smoke/elementwise": HEADERS}, "cupy.elementwise fail", "cuda_fp16.h"),  # CuPy's own kernels only
        (SMOKE, {f"{WORKER}/smoke/elementwise": HEADERS}, "cupy.elementwise fail", "[stack]"),
        (SMOKE, {"sections/torch/loaded/libnccl": NCCL}, "cuda.libraries fail", "libnccl"),
        (SMOKE, {"sections/torch/loaded/libnccl": NCCL}, "cuda.libraries fail", "[stack]"),
        (SMOKE, {f"{WORKER}/hello/packages/nvidia-nccl-cu12": "2.27.3"}, "cuda.libraries warn", ""),  # of two CUDA majors
        (STRESS, {f"{STRESSED}/deviations": 1}, "stress.compute fail", ""),
        (STRESS, {f"{STRESSED}/pattern_errors": 8}, "stress.compute fail", "8 words changed"),
        (STRESS, {"sections/stress/samples/-1/rows/0/reasons": "0x0000000000000040"}, "stress.thermal fail", ""),  # heat
        (STRESS, {"sections/stress/after/kernel_log/lines": XID}, "stress.ecc fail", ""),
        (FOUR, {"sections/peer/wrong/1/2": 512}, "p2p.access fail", ""),
        (FOUR, {f"{GROUP}/2/results/3/wrong": 4}, "nccl.all-reduce fail", ""),
        (FOUR, {"sections/peer/access/0/3": False}, "p2p.access fail", ""),  # an NVLink pair
        (FOUR, {"sections/peer/write/2/1": [210.0, 212.0]}, "p2p.write fail", "GPU 2 → GPU 1"),
    ],
)  # fmt: skip
def test_a_fault_changes_its_own_verdict_and_no_other(on, edits, changes, says):
    check, verdict = changes.split()
    document = broken(on, edits)
    assert differences(captured(on), document) == {check: verdict}
    found = results(document)[check]
    assert says in f"{found.text} [{found.blame}]"


JAX = {
    "version": "0.11.2", "devices": 1, "loaded": {}, "seconds": 5.0,
    "plugins": {"jaxlib": "0.11.2", "jax-cuda13-plugin": "0.11.2", "jax-cuda13-pjrt": "0.11.2"},
    "gpus": [{"index": 0, "product_error": 3e-4, "product_limit": 2e-3, "convolution_error": 4e-4, "convolution_limit": 5e-3}],
}  # fmt: skip
TENSORFLOW = {"version": "2.21.0", "built_with_cuda": True, "gpus": [], "loaded": {}}
NEW_PTX = {"arch_list": ["sm_80", "compute_80"]}
GCC = "gcc: warning\nerror: unsupported GNU version! gcc versions later than 14 are not supported!"
MISMATCH = {"version": 92800, "status": 1002, "error": "open", "message": "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"}
CUDNN = Wanted(lock_of(PackageSet(manager="apt", cudnn=(Package(name="libcudnn9-cuda-13"),)), cudnn="9.28.0.42"))
IMPORT = {"error": "import", "message": "No module named 'sympy'", "gpus": []}


@pytest.mark.parametrize(
    ("section", "change", "wanted", "check", "verdict", "says"),
    [
        ("torch", {"arch_list": ["sm_50", "sm_60", "sm_70"]}, ASKED, "torch.build", "fail", "torch=="),
        # Measured on an H100 with driver 580 (CUDA 13.0): PTX of CUDA 13.5 ends with error 222.
        ("torch", NEW_PTX | {"cuda": "13.0"}, ASKED, "torch.build", "warn", ""),
        ("torch", NEW_PTX | {"cuda": "13.5"}, ASKED, "torch.build", "fail", ""),
        ("torch", NEW_PTX | {"cuda": None}, ASKED, "torch.build", "warn", ""),
        ("torch", {"available": False, "cuda": None}, ASKED, "torch.cuda", "fail", "without CUDA"),
        ("torch", None, None, "torch.cuda", "skip", ""),
        ("torch", None, Wanted(lock_of(torch="2.11.0")), "torch.cuda", "fail", ""),
        ("torch", IMPORT, None, "torch.cuda", "warn", "[environment]"),
        ("torch", IMPORT, ASKED, "torch.cuda", "fail", "[stack]"),
        ("tensorflow", TENSORFLOW, ASKED, "tensorflow.gpu", "fail", "0 of 1"),
        ("nvcc", {"error": "compile", "message": GCC}, ASKED, "nvcc.program", "fail", "unsupported GNU version"),
        ("jax", JAX, ASKED, "jax.gpu", "pass", "0.11.2, jax-cuda13-plugin"),
        ("jax", JAX | {"plugins": {"jaxlib": "0.11.2"}}, ASKED, "jax.gpu", "fail", "no CUDA plugin"),
        ("jax", JAX | {"gpus": [], "why_not": "backend 'cuda': no supported devices\nmore"}, ASKED, "jax.gpu", "fail", "no supported"),
        ("jax", JAX | {"gpus": [], "devices": 0}, ASKED, "jax.gpu", "fail", "0 of 1"),
        ("jax", JAX | {"gpus": [JAX["gpus"][0] | {"convolution_error": 0.5}]}, ASKED, "jax.gpu", "fail", "GPU 0"),
        ("jax", JAX | {"gpus": [{"index": 0, "error": "XlaRuntimeError: INTERNAL: ptxas too old"}]}, ASKED, "jax.gpu", "fail", "ptxas"),
        ("cudnn", None, None, "cudnn.library", "skip", "no cuDNN"),
        ("cudnn", None, CUDNN, "cudnn.library", "fail", "finds no libcudnn"),
        ("cudnn", {"version": 92800, "status": 0}, CUDNN, "cudnn.library", "pass", "9.28.0"),
        ("cudnn", {"version": 8907, "status": 0}, None, "cudnn.library", "pass", "8.9.7"),
        ("cudnn", {"version": 91002, "status": 0}, CUDNN, "cudnn.library", "fail", "9.10.2 is loaded, 9.28.0.42 is on record"),
        ("cudnn", MISMATCH, ASKED, "cudnn.library", "fail", "MISMATCH"),
        ("cudnn", {"error": "load", "message": "libcudnn.so.9: file too short"}, ASKED, "cudnn.library", "fail", "file too short"),
        ("cudnn", {"error": "timeout", "deadline": 60}, ASKED, "cudnn.library", "fail", "no answer within 60 s"),
    ],
)  # fmt: skip
def test_frameworks_and_libraries_are_judged_by_what_they_say(section, change, wanted, check, verdict, says):
    document = captured(SMOKE)
    before = document["sections"].pop(section, {})
    if change is not None:
        document["sections"][section] = (before if section == "torch" else {}) | change
    found = results(document, wanted)[check]
    assert found.verdict == verdict
    assert says in f"{found.text} [{found.blame}] " + " ".join(f"{item.subject} {item.text}" for item in found.items)


def test_no_interpreter_is_a_failure_unless_cupy_is_not_wanted():
    interpreter = {"path": None, "error": "/opt/gpusetup/bin/python is not there or not executable"}
    document = broken(SMOKE, {"sections": {"interpreter": interpreter}})
    told = results(document)["python.environment"]
    assert (told.verdict, told.blame) == ("warn", "environment"), "nobody asked for it"
    assert "no Python was named" in told.text
    assert "--python /path/to/python; not run: cuda.context, cuda.libraries" in told.text
    assert verdicts(document)["cupy.kernel"] == "skip"
    assert verdicts(document, Wanted(lock_of(driver="580.159.04")))["python.environment"] == "skip"
    assert verdicts(document, Wanted(lock_of(cupy="13.6.0")))["python.environment"] == "fail"
    interpreter["named"] = True
    assert verdicts(document)["python.environment"] == "fail", "the caller asked for it"


@pytest.mark.parametrize(
    ("highest", "verdict", "says"), [("9.0", "pass", "takes PTX up to 9.0"), ("8.8", "warn", "its CUDA 13.0 means 9.0")]
)
def test_a_driver_that_takes_less_ptx_than_its_cuda_means(highest, verdict, says):
    versions = {"highest": highest, "refused_with": [222]}
    edits = {f"{WORKER}/smoke/libraries/driver_cuda": 13000, f"{WORKER}/smoke/ptx_versions": versions}
    found = results(broken(SMOKE, edits))["cuda.ptx"]
    assert (found.verdict, says in found.text) == (verdict, True), found.text


@pytest.mark.parametrize(("number", "left", "verdict"), [(31, ["1"], "warn"), (31, [], "fail"), (79, ["1"], "fail")])
def test_an_xid_that_a_job_caused_on_a_gpu_left_to_it_is_a_warning(number, left, verdict):
    document = broken("h100-x2-stress", {"sections/stress/busy": left})
    place = Machine(document).gpus[1].bus_id.partition(".")[0]
    found_at(document, "sections/stress/after/kernel_log/lines").append(f"NVRM: Xid (PCI:{place}): {number}, pid=1")
    assert verdicts(document)["stress.ecc"] == verdict


def test_every_numa_node_is_shown_and_the_best_is_judged():
    document = broken(FULL, {"sections/pcie/0/nodes/1": {"h2d": [21.0, 21.3], "d2h": [20.1, 20.2], "wrong": 0}})
    found = results(document)["pcie.h2d"]
    assert (found.verdict, found.measured) == ("pass", pytest.approx(55.5, abs=0.2))
    assert [item.text for item in found.items if "node 1" in item.subject] == ["21.3 GB/s"]
    document["sections"]["pcie"]["0"]["nodes"]["1"]["wrong"] = 8
    assert verdicts(document)["pcie.h2d"] == "fail"


def test_an_adopted_python_without_cupy_when_cupy_is_not_wanted():
    hello = {"error": "import", "message": "No module named 'cupy'"}
    edits = {f"{WORKER}/hello": hello, "sections/interpreter/named": True}
    document = broken(SMOKE, edits, gone=[f"{WORKER}/open", f"{WORKER}/smoke"])
    assert verdicts(document)["python.environment"] == "fail"
    found = verdicts(document, Wanted(lock_of(torch="2.11.0")))
    checks = ("python.environment", "cupy.kernel", "cuda.context", "torch.cuda")
    assert [found[name] for name in checks] == ["skip", "skip", "skip", "pass"]


def test_a_gpu_that_computes_wrongly_fails_the_host_whoever_asked_for_the_framework():
    edits = {"sections/torch/gpus/0/product_error": 0.5, "sections/torch/gpus/0/product_limit": 2e-3}
    found = results(broken(SMOKE, edits))["torch.cuda"]
    assert (found.verdict, found.blame) == ("fail", "gpu")


@pytest.fixture
def playbooks(monkeypatch):
    """Stand in for Ansible: answer each playbook with prepared data."""

    def prepare(**answers):
        def run(_session, name, *, at_once=False, **_more):
            assert at_once is (name == "verify_between"), "a fleet in parts would wait for those that are not there yet"
            track = Track()
            for host, found in answers[name].items():
                record = track.host(host)
                record.connection = {"ansible_host": f"10.0.0.{len(track.hosts)}"}
                if isinstance(found, Failure):
                    record.failure = found
                    record.data["gpu_verify"] = {"own_fault": "ended with 1" in found.message}
                else:
                    record.data["gpu_verify"] = {"observations": captured(found) if isinstance(found, str) else found}
            return SimpleNamespace(track=track)

        monkeypatch.setattr(fleet, "run_playbook", run)

    return prepare


def test_hosts_that_do_not_answer_are_data(session, playbooks, tmp_path):
    write(tmp_path, {"gpu_measure/observe.py": "raise SystemExit('x')"})
    assert gpu_verify.run(str(tmp_path), {}, 60) == (None, {"msg": "the probe ended with 1: x\n", "own_fault": True})
    gone = Failure("Look", "Connection refused", unreachable=True)
    ends = {"c": "the probe was killed after 9 s", "d": "the probe ended with -9: x", "e": "the probe ended with 1: x"}
    playbooks(verify={"a": "h200-x1-quick", "b": gone} | {host: Failure("Look", why) for host, why in ends.items()})
    found = observe_fleet(session, Ask(level="quick"))
    assert (found["a"].document["level"], found["b"].document, found["b"].unreachable) == ("quick", None, True)
    assert [found[host].own_fault for host in "bcde"] == [False, False, False, True]
    assert (found["c"].problem.partition(";")[0], found["c"].unreachable) == ("the probe was killed after 9 s", False)


def test_a_host_that_waited_for_another_is_not_to_blame(session, playbooks):
    ranks = [{"sections": {"hosts": {"world": 6, "ranks": {"0": {"error": why}}}}} for why in ("timeout", "crashed")]
    playbooks(verify={"a": "h200-x4-full", "b": "h200-x2-full"}, verify_between=dict(zip("ab", ranks, strict=True)))
    found = observe_fleet(session, Ask(level="full"))
    assert [verdicts(found[name].document)["nccl.hosts"] for name in "ab"] == ["skip", "fail"]


def test_ranks_are_dealt_without_gaps_and_busy_hosts_stay_out():
    names = {"b": "h200-x2-full", "a": "h200-x4-full", "c": "h200-x1-busy"}
    observed = {host: Observed(captured(name)) for host, name in names.items()}
    plan = hosts_plan(observed, {"a": {"ansible_host": "192.0.2.1"}})
    assert list(plan) == ["a", "b"]
    assert [(part.number, part.first, part.local, part.world) for part in plan.values()] == [(0, 0, 4, 6), (1, 4, 2, 6)]
    assert {part.address for part in plan.values()} == {"192.0.2.1"}
    assert len({part.port for part in plan.values()}) == 1


def test_a_pci_domain_beyond_four_digits():
    text = '<nvidia_smi_log><gpu id="00010000:3A:00.0"><uuid>GPU-1</uuid></gpu><gpu id="00000000:06:00.0"><uuid>GPU-2</uuid></gpu></nvidia_smi_log>'
    assert [gpu.bus_id for gpu in parse_gpus(text)] == ["10000:3a:00.0", "0000:06:00.0"]
    assert parse_gpus('<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log><gpu id="1">&b;</gpu></nvidia_smi_log>') == ()


def test_a_topology_with_network_cards():
    text = "\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\nGPU0\t X \tNV12\tPXB\t0-31\nGPU1\tNV12\t X \tSYS\t0-31\nNIC0\tPXB\tSYS\t X \t\n\nLegend:\n"
    assert parse_topology(text) == (("X", "NV12"), ("NV12", "X"))
