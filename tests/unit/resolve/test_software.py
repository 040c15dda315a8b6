"""What software asks: relations to the driver, Python and glibc, named releases; stable by default, with reasons that explain."""

import contextlib
from typing import Any

import msgspec
import pytest
from packaging.version import Version

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import DriverCandidate, Request
from gpusetup.resolve.api import resolve
from gpusetup.resolve.lookup import lookup
from gpusetup.resolve.requests import parse_requirements
from gpusetup.resolve.tables import table_rows
from gpusetup.versions import nv
from tests.stored import stored_rows


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_table_of_pythons_names_the_newest_release_that_the_resolver_gives(shipped, arch):
    for row in table_rows("python", "", Request(arch=arch), shipped):
        for name in ("torch", "tensorflow", "jax", "cupy"):
            asked = parse_requirements([name, f"python=={row['python']}"])
            found: list[Any] = []
            with contextlib.suppress(NoStackError):
                found = lookup(Request(requirements=asked, arch=arch), shipped)
            assert row[name] == max((each[name] for each in found), key=Version, default=None), row["python"]


@pytest.mark.parametrize(("driver", "cuda", "relation"), stored_rows("driver-relations.json"))
def test_relations(ask, driver, cuda, relation):
    stack = ask(f"cuda=={cuda}", driver=driver).stack
    assert (stack.cuda.relation, stack.driver.relation) == (relation, relation)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("525.60.04", "12.4.0"), ("575.64.05", "13.0.0"), ("450.51.06", "11.8.0"), ("535.183.06", "13.1.0")],
)
def test_below_the_floor_of_a_major_nothing_runs(refused, driver, cuda):
    document = refused(f"cuda=={cuda}", driver=driver)
    assert document["rules"] == {"requested", "installed-driver-stays", "driver-runs-cuda"}
    assert any(text.startswith("without --driver") for text in document["suggestions"])


def test_native_leaves_minor_version_compatibility_out(ask, refused):
    assert ask("cuda==12.6.*", driver="550.54.14").stack.cuda.relation == "minor-version"
    document = refused("cuda==12.6.*", driver="550.54.14", native=True)
    assert "without --native it fits by minor-version compatibility" in document["suggestions"]
    assert ask("cuda", driver="550.144.03", native=True).stack.cuda.relation in ("native", "backward")


def test_minor_version_compatibility_warns_of_ptx(ask):
    resolution = ask("cuda==12.8.*", driver="550.144.03")
    assert any("error 222" in text for text in resolution.warnings)


def test_forward_is_chosen_only_when_asked_and_only_on_its_bases(ask, refused):
    wish = {"gpu": ["h100"], "driver": "570.211.01"}
    assert any(text.startswith("add --forward") for text in refused("cuda==13.4.*", **wish)["suggestions"])
    told = refused("cuda==12.8.*", driver="470.256.02", gpu=["a100"], forward=True)["conflict"][-1]["text"]
    assert "--forward needs R535)" in told
    stack = ask("cuda==13.4.*", forward=True, **wish).stack
    assert (stack.cuda.relation, stack.cuda.compat) == ("forward", "cuda-compat-13-4")


def test_forward_is_for_data_centre_gpus(ask):
    open_question = ask("cuda==13.4.*", driver="570.211.01", forward=True)
    assert any("only on data-centre GPUs" in text for text in open_question.warnings)


def test_forward_is_not_preferred(ask):
    assert ask("cuda", gpu=["h100"], forward=True).stack.cuda.compat is None


def test_an_unknown_installed_driver_is_judged_by_its_branch_with_a_warning(ask):
    resolution = ask("cuda", driver="550.199.99")
    assert resolution.stack.driver.version == "550.199.99"
    assert any("550.199.99 is not in the matrix" in text for text in resolution.warnings)
    newer = ask("cuda", driver="599.10.01")
    assert any("judged as R595" in text for text in newer.warnings)
    assert not any(reason.text.startswith("R595 is ") for reason in newer.reasons)


def test_driver_text_is_kept(ask):
    assert ask("driver==550.144.03").stack.driver.version == "550.144.03"
    assert ask("driver==550.144.3").stack.driver.version == "550.144.03"


def test_a_branch_past_its_end_is_chosen_only_when_nothing_else_fits(ask, shipped):
    alive = ask("cuda==12.4.*")
    assert alive.stack.driver.branch == "620"
    assert not any("end of life" in text for text in alive.warnings)
    ended = ask("driver<580")
    assert any("end of life" in text for text in ended.warnings)


def test_a_working_installed_driver_is_kept(ask):
    kept = ask("torch", installed_driver="580.126.09", installed_module="open", gpu=["h100"])
    driver = kept.stack.driver
    assert (driver.version, driver.module, driver.installed) == ("580.126.09", "open", True)
    assert ("driver", "keep-installed-driver") in {(reason.component, reason.rule) for reason in kept.reasons}
    assert kept.stack.torch.relation == "native"  # of the builds of the newest release, the one for this driver
    replaced = ask("cuda==13.*", installed_driver="535.154.05")
    assert replaced.stack.driver.version != "535.154.05"
    assert not replaced.stack.driver.installed


def test_what_repositories_offer_restricts_version_and_flavour(ask, refused):
    debian = (DriverCandidate(version="535.247.01", modules=("proprietary",)),)
    stack = ask("torch", gpu=["h100"], driver_candidates=debian).stack
    assert (stack.driver.version, stack.driver.module) == ("535.247.01", "proprietary")
    assert stack.driver.relation in ("backward", "native", "minor-version")
    document = refused("torch", gpu=["rtx 5090"], driver_candidates=debian)
    assert "repository-offers" in document["rules"]
    assert any(text.startswith("use another repository for the driver") for text in document["suggestions"])
    assert refused("cuda", driver_candidates=())["rules"] == {"repository-offers"}


def test_a_vgpu_guest_keeps_its_driver(ask):
    assert ask("cuda", vgpu_guest=True, installed_driver="550.144.03").stack.driver.version == "550.144.03"


def test_which_build_the_one_on_pypi_if_it_fits_else_the_newest_stable(ask):
    assert ask("torch==2.6.*").stack.torch.variant == "cu124"
    on_v100 = ask("torch==2.11.*", gpu=["v100"])
    assert (on_v100.stack.torch.variant, on_v100.stack.torch.on_pypi) == ("cu126", False)
    assert ask("torch==2.12.*", driver="550.144.03").stack.torch.variant == "cu126"


def test_a_build_by_name(ask, refused):
    assert ask("torch==2.7.1+cu128").stack.torch.variant == "cu128"
    assert ask("torch==2.7.1+CU128").stack.torch.variant == "cu128"
    (item,) = refused("torch==2.2.1+cu116")["conflict"]
    assert "torch 2.2.1 has the builds cu118, cu121" in item["text"]


@pytest.mark.parametrize("text", ["torch==2.7.1+cpu", "torch==2.7.1rc1", "torch==1!2.7.1", "torch==2.7.1.post1"])
def test_a_release_nobody_published_is_not_taken_for_another(refused, text):
    assert refused(text)["rules"] == {"requested"}


def test_a_short_version_names_a_series_where_no_such_release_exists(ask):
    assert ask("cudnn==9.10.2", "cuda==12.*").stack.cudnn.version.startswith("9.10.2.")


def test_python_of_the_distribution_and_of_the_request(ask, refused):
    assert ask("torch", os="ubuntu22.04").stack.python.version == "3.10"
    old = ask("torch", os="ubuntu20.04").stack
    assert (old.python.version, old.torch.version) == ("3.8", "2.4.1")
    assert nv(ask("torch", "python==3.12", os="ubuntu20.04").stack.torch.version) > nv("2.4.1")
    assert any("add python==3." in text for text in refused("torch==2.9.*", os="ubuntu20.04")["suggestions"])


@pytest.mark.parametrize(
    ("system", "python", "own", "package"), stored_rows("a-packaged-python-carries-the-newest-sta.json")
)
def test_a_packaged_python_carries_the_newest_stack(ask, system, python, own, package):
    found, free = ask("torch", os=system, gpu=["a100"]), ask("torch", gpu=["a100"])
    assert (found.stack.python.version, found.stack.torch.version) == (python, free.stack.torch.version)
    (reason,) = [item for item in found.reasons if item.component == "python"]
    assert f"own package {package}; its base Python is {own}" in reason.text
    assert reason.source.startswith("https://")
    assert not [text for text in found.warnings if "Python" in text]


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax", "cupy"])
def test_the_newest_stack_that_any_python_of_a_distribution_carries_is_chosen(ask, shipped, name):
    for system in shipped.os.systems:
        if system.python == "unknown" or not system.pythons:
            continue
        found = getattr(ask(name, os=system.id, gpu=["a100"]).stack, name).version
        offered = (system.python, *(row.version for row in system.pythons if not row.prerelease))
        each = []
        for python in offered:
            with contextlib.suppress(NoStackError):
                each.append(getattr(ask(name, os=system.id, gpu=["a100"], pythons=(python,)).stack, name).version)
        assert found == max(each, key=nv), system.id


def test_the_own_python_stays_where_it_carries_the_same_stack(ask):
    found = ask("torch==2.8.*", os="rocky9", gpu=["a100"])
    assert found.stack.python.version == "3.9"
    assert not [item for item in found.reasons if item.component == "python"]


def test_a_python_that_is_asked_for_stays(ask):
    assert ask("cuda", "python==3.11").stack.python.version == "3.11", "beside a toolkit alone"
    packaged = ask("torch", "python==3.11", os="rocky9")
    assert packaged.stack.python.version == "3.11"
    assert any("3.11 is Rocky Linux 9's own package python3.11" in item.text for item in packaged.reasons)
    missing = ask("torch", "python==3.13", os="rocky9")
    assert any("no package of Python 3.13" in text and "uv venv" in text for text in missing.warnings)


def test_a_release_candidate_of_python_is_never_chosen_but_may_be_asked_for(ask, shipped):
    jammy = next(item for item in shipped.os.systems if item.id == "ubuntu22.04")
    assert any(row.prerelease for row in jammy.pythons)
    assert ask("torch", os="ubuntu22.04").stack.python.version == jammy.python
    asked = ask("torch", "python==3.11", os="ubuntu22.04")
    assert any("release candidate" in text for text in asked.warnings)


def test_an_unknown_python_stays_unknown(ask):
    found = ask("torch", os="kylin11", gpu=["a100"])
    assert found.stack.python.version is None
    assert any("nobody published which Python" in text for text in found.warnings)


def test_a_host_tells_its_pythons_itself(ask):
    assert ask("torch", os="kylin11", pythons=("3.11",)).stack.python.version == "3.11"
    assert ask("torch", os="rocky9", pythons=("3.9",)).stack.torch.version == "2.8.0"
    assert ask("torch", os="ubuntu22.04", pythons=("3.10", "3.11")).stack.python.version == "3.11"


@pytest.mark.parametrize(("system", "said"), stored_rows("a-conflict-names-the-pythons-of-the-syst.json"))
def test_a_conflict_names_the_pythons_of_the_system(refused, system, said):
    assert said in [item["text"] for item in refused("tensorflow==2.10", os=system)["conflict"]]


def test_years_lost_to_a_python_are_said_loudly_with_a_way_out(ask):
    (loud,) = [text for text in ask("torch", os="ubuntu20.04").warnings if "Python" in text]
    assert "limits torch to 2.4.1 (2024-09)" in loud
    assert "uv venv --managed-python --python 3.12" in loud
    assert ask("torch", "python==3.12", os="ubuntu20.04").stack.torch.version in loud
    assert not [text for text in ask("torch", os="ubuntu22.04").warnings if "Python" in text]


def test_aarch64_wheels(ask):
    stack = ask("torch", arch="aarch64", gpu=["h100"]).stack
    assert nv(stack.torch.version) >= nv("2.11.0")
    assert stack.torch.on_pypi
    assert not ask("torch==2.9.*", arch="aarch64").stack.torch.on_pypi


def test_frameworks_that_pin_different_wheels_are_refused(refused):
    texts = {item["rule"]: item["text"] for item in refused("torch==2.1.0+cu121", "tensorflow==2.21.0")["conflict"]}
    said = "torch 2.1.0+cu121 and TensorFlow 2.21.0 pin different versions of the same CUDA wheels"
    assert texts["framework-pins-agree"] == said


def test_jax_extra_follows_the_driver(ask):
    assert ask("jax", driver="580.178.04").stack.jax.extra.startswith("cuda13")
    assert ask("jax", driver="550.144.03").stack.jax.extra.startswith("cuda12")


def test_a_build_nobody_looked_into_is_never_chosen(shipped, refused):
    releases = {item.version for item in shipped.torch.releases}
    for build in shipped.torch.builds:
        if build.code is None and build.version in releases:
            assert refused(f"torch=={build.version}+{build.variant}")["rules"] == {"requested", "torch-code-known"}


@pytest.mark.parametrize(("cuda", "said"), [("13.9", "has no CUDA newer than"), ("12.7", "there is no")])
def test_what_was_never_released_is_not_offered(refused, cuda, said):
    assert said in refused(f"cuda=={cuda}.*")["conflict"][0]["text"]


@pytest.mark.parametrize(("system", "last"), [("debian11", 580), ("ubuntu20.04", 580), ("fedora42", 595)])
def test_a_driver_is_of_a_branch_whose_guide_lists_the_distribution(ask, system, last):
    assert int(ask("driver", os=system).stack.driver.branch) <= last
    assert ask("driver", os=system, driver="620.70.06").stack.driver.version == "620.70.06"


def test_every_rule_in_an_answer_is_named_and_every_text_a_sentence(ask):
    resolution = ask("torch", "cupy", "jax", gpu=["h200"], os="ubuntu24.04")
    for reason in resolution.reasons:
        assert reason.rule
        assert reason.text
        assert not reason.text.endswith(".")
    components = {reason.component for reason in resolution.reasons}
    chosen = {name for name in resolution.stack.__struct_fields__ if getattr(resolution.stack, name) not in (None, ())}
    assert chosen - {"python"} <= components


def test_a_long_conflict_without_a_package_is_told_whole(refused):
    told = refused("torch<2.5", "jax>=0.7", "cudnn", gpu=("rtx 2080 ti",), driver="470.256.02")
    texts = [item["text"] for item in told["conflict"]]
    assert texts[:2] == ["torch<2.5 was asked for", "jax>=0.7 was asked for"]
    assert len(texts) > 4


@pytest.mark.parametrize(("version", "warned"), [("2.14.1", True), ("2.15.0", True), ("2.15.1", False)])
def test_a_tensorrt_that_pip_cannot_install_everywhere_is_warned_of(ask, version, warned):
    assert any("installs tensorrt" in text for text in ask(f"tensorflow=={version}").warnings) == warned


def test_a_branch_that_ends_within_a_year_loses_against_a_long_term_one(ask):
    earlier = Matrix()
    released = tuple(item for item in earlier.driver.versions if item.branch < 620)
    earlier.driver = msgspec.structs.replace(earlier.driver, versions=released)
    found = resolve(Request(requirements=parse_requirements(["torch"]), gpus=("h100",)), earlier)
    assert (found.stack.driver.branch, found.stack.torch.relation) == ("580", "native")
    told = [item.text for item in found.reasons]
    assert "cu130 is native to R580; the build on PyPI, cu132, is not" in told
    assert "not R595: its support ends 2027-03; request it with driver==595.*" in told
    assert ask("torch", "driver==595.*", gpu=["h100"]).stack.driver.branch == "595"


@pytest.mark.parametrize("wish", ["cuda", "cuda>=13", "cuda==13.*", "driver>=580", "cudnn", "cupy"])
def test_no_new_feature_branch_unasked(ask, wish):
    assert ask(wish).stack.driver.branch == "620"


def test_a_cuda_asked_for_by_its_version_brings_its_driver(ask):
    stack = ask("cuda==13.5.*").stack
    assert (stack.driver.branch, stack.cuda.relation) == ("620", "native")
    assert ask("torch==2.15.0+cu132", "driver<620").stack.driver.branch == "595"


@pytest.mark.parametrize("kept", [{"driver": "580.126.09"}, {"installed_driver": "580.126.09"}])
def test_a_driver_that_stays_gets_the_native_build_of_the_same_release(ask, kept):
    torch = ask("torch", gpu=["h100"], **kept).stack.torch
    assert (torch.version, torch.variant, torch.relation) == ("2.15.0", "cu130", "native")
    pinned = ask("torch", "driver==580.*", gpu=["h100"]).stack.torch
    assert (pinned.variant, pinned.relation) == ("cu130", "native")


def test_latest_means_latest(ask):
    assert ask("driver==latest").stack.driver.branch == "620"
    assert ask("cuda==latest").stack.cuda.version == "13.5.0"
    kept = ask("driver==latest", "cuda==latest", installed_driver="580.126.09").stack
    assert (kept.driver.branch, kept.cuda.version) == ("620", "13.5.0")


@pytest.mark.parametrize("gpu", ["rtx 5090", "sm_121", "b200", "b300"])
def test_tensorflow_is_refused_where_it_is_known_to_fail(refused, gpu):
    (item,) = refused("tensorflow", gpu=[gpu])["conflict"]
    assert item["rule"] == "tensorflow-fails-on-gpu"
    assert "container works" in item["text"]


def test_jax_keeps_to_the_gpus_that_it_supports(ask, refused):
    _, item = refused("jax==0.12.*", gpu=["quadro k2200"])["conflict"]
    assert item["rule"] == "jax-gpu-floor"
    assert "compute capability 5.2 or newer" in item["text"]
    assert ask("jax", gpu=["quadro k2200"]).stack.jax.extra == "cuda11_pip"
    assert ask("jax", gpu=["gtx 970"]).stack.jax.extra == "cuda12"


@pytest.mark.parametrize(("wishes", "machine", "reason"), stored_rows("a-reason-judges-the-candidate-that-it-na.json"))
def test_a_reason_judges_the_candidate_that_it_names(ask, wishes, machine, reason):
    assert reason in [item.text for item in ask(*wishes, **machine).reasons]


def test_the_nearest_change_comes_first(refused):
    assert refused("torch==2.6.*", gpu=["rtx 5090"])["suggestions"][0] == "torch==2.7.1+cu128 would fit"
    ways = refused(gpu=["v100"], os="ubuntu26.04")["suggestions"]
    assert any("wheels" in text for text in ways)
    assert "use ubuntu24.04 instead of ubuntu26.04" in ways


def test_the_build_on_pypi_is_not_doubted(ask):
    assert not [text for text in ask("torch==1.13.1", gpu=["a100"]).warnings if "check the index" in text]


def test_a_repository_that_lacks_a_supported_branch_is_blamed_itself(ask):
    debian = (DriverCandidate(version="535.309.01", modules=("proprietary",)),)
    (text,) = [text for text in ask("cuda", gpu=["v100"], driver_candidates=debian).warnings if "end of life" in text]
    assert "this host's repositories have no supported branch that fits; NVIDIA's has R580" in text
    assert "gpusetup_source=nvidia" in text


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
