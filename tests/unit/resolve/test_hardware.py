"""What GPUs ask: driver windows, module flavours, code inside builds, several kinds in one host."""

import pytest

from gpusetup.model.release import ArchCode
from gpusetup.model.request import LibraryCandidates
from gpusetup.resolve.rules import code_for
from tests.stored import stored_rows


@pytest.mark.parametrize(("wishes", "fields", "rule"), stored_rows("rules-that-refuse.json"))
def test_what_cannot_be_is_refused_by_its_rule(refused, wishes, fields, rule):
    assert rule in refused(*wishes, **fields)["rules"]


@pytest.mark.parametrize(("targets", "ptx", "cc", "way"), stored_rows("code-for-gpus.json"))
def test_a_cubin_runs_upwards_within_its_major_and_ptx_upwards(targets, ptx, cc, way):
    assert code_for(ArchCode(targets=tuple(targets), ptx=tuple(ptx)), cc) == way


def test_nccl_beside_one_gpu_warns_instead(ask, refused):
    offered = (LibraryCandidates(component="nccl", builds=(("2.32.3", "12"),)),)
    one = ask(gpu=["m60"], library_candidates=offered)
    assert any("NCCL 2.32.3 has no code for Tesla M60 (5.2); with one GPU" in text for text in one.warnings)
    assert "nccl-gpu-code" in refused(gpu=["m60"], gpu_count=2, library_candidates=offered)["rules"]
