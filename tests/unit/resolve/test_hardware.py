"""What GPUs ask: driver windows, module flavours, code inside builds, several kinds in one host."""

import pytest

from gpusetup.model.release import ArchCode
from gpusetup.model.request import LibraryCandidates
from gpusetup.resolve.rules import code_for, compiles_for, way_of
from tests.stored import stored_rows


@pytest.mark.parametrize(("wishes", "fields", "rule"), stored_rows("rules-that-refuse.json"))
def test_what_cannot_be_is_refused_by_its_rule(refused, wishes, fields, rule):
    assert rule in refused(*wishes, **fields)["rules"]


@pytest.mark.parametrize(("targets", "ptx", "cc", "way"), stored_rows("code-for-gpus.json"))
def test_a_cubin_runs_upwards_within_its_major_and_ptx_upwards(targets, ptx, cc, way):
    assert code_for(ArchCode(targets=tuple(targets), ptx=tuple(ptx)), cc) == way


def test_ptx_is_a_bridge_only_where_the_driver_compiles_it():
    assert way_of(("9.0",), ("9.0",), "10.0", jit=True) == "ptx"
    assert way_of(("9.0",), ("9.0",), "10.0", jit=False) is None
    assert way_of(("9.0",), ("9.0",), "9.0", jit=False) == "sass"


def test_no_code_runs_nowhere(shipped):
    assert code_for(None, "9.0") is None
    assert not compiles_for(shipped, "1.0", "9.0")


def test_ptx_newer_than_the_driver_cannot_be_compiled(shipped, refused):
    rules = {"ptx-needs-native-driver", "driver-runs-cuda", "gpu-driver-window", "module-flavour"}
    for build in shipped.torch.builds:
        code = (build.code or {}).get("x86_64")
        for cc in ("9.0", "10.0", "12.0") if code and code.ptx else ():
            if code_for(code, cc) == "ptx":
                wish = f"torch=={build.version}+{build.variant}"
                assert refused(wish, gpu=["sm_" + cc.replace(".", "")], driver="450.80.02")["rules"] & rules


def test_a_gpu_with_its_own_cpu_makes_the_host_of_the_others(ask, shipped):
    own = [gpu.name for gpu in shipped.gpus.gpus if gpu.only_cpu and gpu.kind != "jetson"]
    assert {"GB200", "T4G"} <= set(own)
    for name in own:
        said = f"{name} comes only with aarch64 CPUs: the answer is for RTX A2000 in such a host too"
        answer = ask("driver", gpu=["RTX A2000", name])
        assert (answer.request.arch, said in answer.warnings) == ("aarch64", True)


def test_a_products_first_driver_only_warns_when_the_driver_is_there_or_named(ask):
    for resolution in (
        ask("cuda==12.2.*", gpu=["h200"], driver="535.154.05"),
        ask("driver==535.154.05", gpu=["h200"]),
        ask("cuda==12.2.*", gpu=["h200"], installed_driver="535.154.05"),
    ):
        assert resolution.stack.driver.version == "535.154.05"
        assert any("lists h200 from driver 550.90.07" in text for text in resolution.warnings)


def test_nccl_code_is_a_must_with_more_than_one_gpu(ask, refused):
    alone = ask("cuda==12.*", "nccl==2.26.2", gpu=["sm_90"])
    assert alone.stack.nccl.version == "2.26.2"
    for count in (1, 8):
        with_blackwell = ask("nccl", "cuda==12.*", gpu=["b200"], gpu_count=count).stack.nccl
        assert with_blackwell.version != "2.25.1"


def test_nccl_beside_one_gpu_warns_instead(ask, refused):
    offered = (LibraryCandidates(component="nccl", builds=(("2.32.3", "12"),)),)
    one = ask(gpu=["m60"], library_candidates=offered)
    assert any("NCCL 2.32.3 has no code for Tesla M60 (5.2); with one GPU" in text for text in one.warnings)
    assert "nccl-gpu-code" in refused(gpu=["m60"], gpu_count=2, library_candidates=offered)["rules"]


def test_laptop_gpus_are_known_by_their_die_and_say_so(ask):
    resolution = ask("cuda", gpu=["mx150"])
    assert resolution.stack.driver.module == "proprietary"
    assert any("is inferred from its die; to confirm it: nvidia-smi" in text for text in resolution.warnings)


@pytest.mark.parametrize("name", ["rtx 3080 ti", "rtx 3080", "rtx 2080 ti", "gtx 1080 ti", "quadro p6000", "titan v"])
def test_a_product_on_nvidia_s_own_list_is_not_called_inferred(ask, name):
    assert not [text for text in ask("driver", gpu=[name]).warnings if "compute capability" in text]


def test_forward_compatibility_is_said_to_be_for_data_centre_gpus(refused):
    document = refused("cuda==13.0.*", gpu=["rtx 4090"], driver="535.154.05", forward=True)
    assert "not for rtx 4090" in document["conflict"][-1]["text"]
