"""What software asks: relations to the driver, Python and glibc, named releases; stable by default, with reasons that explain."""

import contextlib
from fnmatch import fnmatchcase
from operator import attrgetter
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


STAYS = {"installed_driver": "580.126.09", "installed_module": "open"}
DEBIAN = {"driver_candidates": (DriverCandidate(version="535.247.01", modules=("proprietary",)),)}


@pytest.mark.parametrize(
    ("words", "machine", "chosen"),
    [
        ("cuda==12.6.*", {"driver": "550.54.14"}, "cuda.relation=minor-version"),
        ("cuda", {"driver": "550.144.03", "native": True}, "cuda.relation=native"),
        ("cuda==13.4.*", {"gpu": ["h100"], "driver": "570.211.01", "forward": True}, "cuda.compat=cuda-compat-13-4"),
        ("cuda", {"driver": "550.199.99"}, "driver.version=550.199.99"),  # which the matrix lacks
        ("driver==550.144.3", {}, "driver.version=550.144.03"),  # as NVIDIA writes it
        ("torch", STAYS | {"gpu": ["h100"]}, "driver.version=580.126.09 driver.module=open driver.installed=True"),
        (
            "torch",
            STAYS | {"gpu": ["h100"]},
            "torch.relation=native",
        ),  # of the newest release, the build for this driver
        ("cuda==13.*", {"installed_driver": "535.154.05"}, "driver.installed=False"),
        ("torch", DEBIAN | {"gpu": ["h100"]}, "driver.version=535.247.01 driver.module=proprietary"),
        ("cuda", {"gpu": ["mx150"]}, "driver.module=proprietary"),
        ("torch==2.7.1+CU128", {}, "torch.variant=cu128"),
        ("cudnn==9.10.2 cuda==12.*", {}, "cudnn.version=9.10.2.*"),  # a short version names a series
        ("jax", {"gpu": ["quadro k2200"]}, "jax.extra=cuda11_pip"),
        ("jax", {"gpu": ["gtx 970"]}, "jax.extra=cuda12"),
        ("torch", {"os": "ubuntu22.04"}, "python.version=3.10"),  # its Python 3.11 is a release candidate
        ("torch", {"os": "ubuntu20.04"}, "python.version=3.8 torch.version=2.4.1"),
        ("torch python==3.12", {"os": "ubuntu20.04"}, "python.version=3.12 torch.version=2.15.0"),
        ("cuda python==3.11", {}, "python.version=3.11"),  # beside a toolkit alone
        ("torch python==3.11", {"os": "rocky9"}, "python.version=3.11"),
        ("torch", {"os": "kylin11", "gpu": ["a100"]}, "python.version=None"),  # nobody published it
        ("torch", {"os": "kylin11", "pythons": ("3.11",)}, "python.version=3.11"),  # as the host itself tells
        ("torch", {"os": "rocky9", "pythons": ("3.9",)}, "torch.version=2.8.0"),
        ("torch", {"os": "ubuntu22.04", "pythons": ("3.10", "3.11")}, "python.version=3.11"),
    ],
)
def test_what_is_chosen(ask, words, machine, chosen):
    stack = ask(*words.split(), **machine).stack
    for path, _, pattern in (one.partition("=") for one in chosen.split()):
        assert fnmatchcase(str(attrgetter(path)(stack)), pattern), path


@pytest.mark.parametrize(
    ("words", "machine", "text", "warned"),
    [
        ("cuda==12.8.*", {"driver": "550.144.03"}, "error 222", True),  # minor-version compatibility compiles no PTX
        ("cuda==13.4.*", {"driver": "570.211.01", "forward": True}, "only on data-centre GPUs", True),
        ("cuda", {"driver": "550.199.99"}, "550.199.99 is not in the matrix", True),
        ("cuda", {"driver": "599.10.01"}, "judged as R595", True),
        ("cuda", {"gpu": ["mx150"]}, "is inferred from its die; to confirm it: nvidia-smi", True),
        ("cudnn", {"gpu": ["t4"]}, "its support of T4 is not confirmed", True),
        ("cudnn", {"gpu": ["h100"]}, "not confirmed", False),
        ("torch", {"os": "kylin11", "gpu": ["a100"]}, "nobody published which Python", True),
        ("torch python==3.11", {"os": "ubuntu22.04"}, "release candidate", True),
        ("torch python==3.13", {"os": "rocky9"}, "no package of Python 3.13", True),
        ("torch python==3.13", {"os": "rocky9"}, "uv venv", True),
        ("torch==1.13.1", {"gpu": ["a100"]}, "check the index", False),  # its build on PyPI is not doubted
        *((f"tensorflow==2.{one}", {}, "installs tensorrt", one != "15.1") for one in ("14.1", "15.0", "15.1")),
    ],
)
def test_a_warning_is_of_what_can_hurt(ask, words, machine, text, warned):
    assert any(text in one for one in ask(*words.split(), **machine).warnings) is warned


@pytest.mark.parametrize(
    ("words", "machine", "says"),
    [
        *stored_rows("refusals-with-a-way-out.json"),
        ("torch", DEBIAN | {"gpu": ["rtx 5090"]}, "use another repository for the driver*"),
        ("cuda", {"driver_candidates": ()}, "repository-offers: *"),
    ],
)
def test_a_refusal_says_why_or_what_would_fit(refused, words, machine, says):
    told = refused(*words.split(), **machine)
    texts = [f"{item['rule']}: {item['text']}" for item in told["conflict"]]
    assert [text for text in (*texts, *told["suggestions"]) if fnmatchcase(text, says)]


def test_reasons_speak_of_a_driver_and_a_python_that_stay(ask):
    kept = ask("torch", **STAYS, gpu=["h100"]).reasons
    assert ("driver", "keep-installed-driver") in {(reason.component, reason.rule) for reason in kept}
    assert not any(reason.text.startswith("R595 is ") for reason in ask("cuda", driver="599.10.01").reasons)
    packaged = ask("torch", "python==3.11", os="rocky9").reasons
    assert any("3.11 is Rocky Linux 9's own package python3.11" in item.text for item in packaged)


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


@pytest.mark.parametrize(("system", "said"), stored_rows("a-conflict-names-the-pythons-of-the-syst.json"))
def test_a_conflict_names_the_pythons_of_the_system(refused, system, said):
    assert said in [item["text"] for item in refused("tensorflow==2.10", os=system)["conflict"]]


def test_years_lost_to_a_python_are_said_loudly_with_a_way_out(ask):
    (loud,) = [text for text in ask("torch", os="ubuntu20.04").warnings if "Python" in text]
    assert "limits torch to 2.4.1 (2024-09)" in loud
    assert "uv venv --managed-python --python 3.12" in loud
    assert ask("torch", "python==3.12", os="ubuntu20.04").stack.torch.version in loud
    assert not [text for text in ask("torch", os="ubuntu22.04").warnings if "Python" in text]


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


@pytest.mark.parametrize(("wishes", "machine", "reason"), stored_rows("a-reason-judges-the-candidate-that-it-na.json"))
def test_a_reason_judges_the_candidate_that_it_names(ask, wishes, machine, reason):
    assert reason in [item.text for item in ask(*wishes, **machine).reasons]


def test_the_nearest_change_comes_first(refused):
    assert refused("torch==2.6.*", gpu=["rtx 5090"])["suggestions"][0] == "torch==2.7.1+cu128 would fit"
    ways = refused(gpu=["v100"], os="ubuntu26.04")["suggestions"]
    assert any("wheels" in text for text in ways)
    assert "use ubuntu24.04 instead of ubuntu26.04" in ways


@pytest.mark.parametrize("words", ["torch==2.15.* k80", "tensorflow==2.21.* k80", "jax k80", "tensorrt==10.9.* v100"])
def test_what_a_gpu_forbids_is_cited_from_the_components_own_sources(refused, shipped, words):
    text, gpu = words.split()
    name = text.partition("=")[0]
    file = shipped.package(name) if name == "tensorrt" else getattr(shipped, name)
    cited = refused(text, gpu=[gpu], allow_builds=True)["conflict"][-1]["source"]
    assert cited in {source.url for source in file.sources.values()}


def test_cudnn_without_a_row_of_its_own_leans_and_tells_among_the_reasons(ask):
    reasons = ask("cudnn==9.6.*", "cuda==12.6.*", gpu=["h100"]).reasons
    assert any("is not in NVIDIA's support matrix; judged by the row of 9.5" in reason.text for reason in reasons)


def test_a_long_conflict_without_a_package_is_told_whole(refused):
    told = refused("torch<2.5", "jax>=0.7", "cudnn", gpu=("rtx 2080 ti",), driver="470.256.02")
    assert len(told["conflict"]) > 4
