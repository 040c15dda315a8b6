"""Where a fact comes from is told among the reasons; a warning is what can hurt."""

from typing import Any

import pytest


def provenance(resolution: Any) -> list[str]:
    return [reason.text for reason in resolution.reasons if reason.rule == "provenance"]


def test_cudnn_without_a_row_of_its_own_leans_and_tells_among_the_reasons(ask):
    resolution = ask("cudnn==9.6.*", "cuda==12.6.*", gpu=["h100"])
    assert any("is not in NVIDIA's support matrix; judged by the row of 9.5" in text for text in provenance(resolution))
    assert not any("cuDNN" in text for text in resolution.warnings)


def test_the_oldest_gpus_that_a_cudnn_may_have_dropped_are_warned_of(ask):
    assert any("its support of T4 is not confirmed" in text for text in ask("cudnn", gpu=["t4"]).warnings)
    assert not any("not confirmed" in text for text in ask("cudnn", gpu=["h100"]).warnings)


def test_rows_of_one_new_platform_are_never_leaned_on(shipped, ask):
    special = {row.version for row in shipped.cudnn.support if not row.general}
    assert special
    newest = provenance(ask("cudnn"))
    assert newest
    assert not any(f"judged by the row of {version}" in text for version in special for text in newest)


def test_where_a_fact_comes_from_is_a_reason_and_no_warning(ask, shipped):
    build = next(item for item in shipped.torch.builds if item.confidence == "inferred" and item.code)
    resolution = ask(f"torch=={build.version}+{build.variant}")
    assert any("secondary sources only" in text for text in provenance(resolution))
    assert not any("secondary" in text for text in resolution.warnings)
    newest = next(item.text for item in resolution.reasons if item.component == "torch" and item.rule == "newest")
    assert "vendor-confirmed" not in newest


@pytest.mark.parametrize("words", ["torch==2.15.* k80", "tensorflow==2.21.* k80", "jax k80", "tensorrt==10.9.* v100"])
def test_what_a_gpu_forbids_is_cited_from_the_components_own_sources(refused, shipped, words):
    text, gpu = words.split()
    name = text.partition("=")[0]
    file = shipped.package(name) if name == "tensorrt" else getattr(shipped, name)
    cited = refused(text, gpu=[gpu], allow_builds=True)["conflict"][-1]["source"]
    assert cited in {source.url for source in file.sources.values()}


def test_a_clash_of_frameworks_is_cited_from_one_of_them(ask, refused):
    told = refused("tensorflow==2.15.*", "jax>=0.7", gpu=["rtx 4090"], driver="595.45.04")["conflict"][-1]
    assert (told["rule"], told["source"]) == ("framework-pins-agree", "https://pypi.org/project/tensorflow/")
    reasons = ask("tensorflow==2.17.*", "jax[cuda12]<0.5", gpu=["rtx 3090"], driver="530.30.02").reasons
    assert [item.source for item in reasons if item.rule == told["rule"]] == ["https://pypi.org/project/jax/"]


@pytest.mark.parametrize("gpu", ["h100", "a100", "rtx 5090", "l40s", "h200"])
def test_a_plain_question_about_torch_meets_no_warning(ask, gpu):
    assert ask("torch", gpu=[gpu]).warnings == ()
