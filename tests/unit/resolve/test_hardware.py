"""What GPUs ask: driver windows, module flavours, code inside builds, several kinds in one host."""

import pytest

from gpusetup.model.release import ArchCode
from gpusetup.model.request import LibraryCandidates
from gpusetup.resolve.rules import code_for, way_of
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


def test_a_products_first_driver_only_warns_when_the_driver_is_there_or_named(ask):
    for resolution in (
        ask("cuda==12.2.*", gpu=["h200"], driver="535.154.05"),
        ask("driver==535.154.05", gpu=["h200"]),
        ask("cuda==12.2.*", gpu=["h200"], installed_driver="535.154.05"),
    ):
        assert resolution.stack.driver.version == "535.154.05"
        assert any("lists h200 from driver 550.90.07" in text for text in resolution.warnings)


def test_nccl_beside_one_gpu_warns_instead(ask, refused):
    offered = (LibraryCandidates(component="nccl", builds=(("2.32.3", "12"),)),)
    one = ask(gpu=["m60"], library_candidates=offered)
    assert any("NCCL 2.32.3 has no code for Tesla M60 (5.2); with one GPU" in text for text in one.warnings)
    assert "nccl-gpu-code" in refused(gpu=["m60"], gpu_count=2, library_candidates=offered)["rules"]


@pytest.mark.parametrize("name", ["rtx 3080 ti", "rtx 3080", "rtx 2080 ti", "gtx 1080 ti", "quadro p6000", "titan v"])
def test_a_product_on_nvidia_s_own_list_is_not_called_inferred(ask, name):
    assert not [text for text in ask("driver", gpu=[name]).warnings if "compute capability" in text]
