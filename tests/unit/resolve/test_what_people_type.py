"""Requirements and distributions as people write them mean what they say."""

from __future__ import annotations

from typing import Any

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.matrix.systems import find_system
from gpusetup.resolve.requests import joined_words, parse_requirements


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["torch=2.6"], ["torch==2.6.*"]),
        (["torch", "2.6"], ["torch==2.6.*"]),
        (["torch 2.6"], ["torch==2.6.*"]),
        (["torch2.6"], ["torch==2.6.*"]),
        (["torch=2.6.0"], ["torch==2.6.0"]),
        (["torch=2.6+cu124"], ["torch==2.6.*+cu124"]),
        (["torch=>2.5"], ["torch>=2.5"]),
        (["torch", ">=", "2.4"], ["torch>=2.4"]),
        (["torch>=2.4, <2.6"], ["torch<2.6,>=2.4"]),
        (["torch", "2.6", "cuda", "12.4"], ["torch==2.6.*", "cuda==12.4.*"]),
        (["torch", "cu124"], ["torch+cu124"]),
        (["cu118", "pytorch"], ["torch+cu118"]),
        (["cu124"], ["cuda==12.4.*"]),
        (["cu12"], ["cuda==12.*"]),
        (["cuda12.4"], ["cuda==12.4.*"]),
        (["cudnn8"], ["cudnn==8.*"]),
        (["R580"], ["driver==580.*"]),
        (["driver", "580"], ["driver==580.*"]),
        (["pytorch"], ["torch"]),
        (["tensorflow-gpu"], ["tensorflow"]),
        (["tensorflow[and-cuda]==2.16.1"], ["tensorflow==2.16.1"]),
        (["cupy-cuda12x"], ["cupy"]),
        (["python3.12"], ["python==3.12.*"]),
    ],
    ids=" ".join,
)
def test_a_requirement_means_what_it_says(words: list[str], meant: list[str]) -> None:
    assert [str(item) for item in parse_requirements(words)] == meant


@pytest.mark.parametrize("words", [["2.6"], ["=2.6"], ["torch="], ["torch=="], ["torch 2.6 2.7"], ["cuda", "torch!2"]])
def test_what_says_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(BadInputError) as refused:
        parse_requirements(words)
    assert refused.value.hint


def test_a_build_without_cuda_is_named_as_such(refused: Any) -> None:
    told = refused("torch==2.6.0+cpu")
    assert "a build without code for GPUs" in told["conflict"][0]["text"]
    assert told["suggestions"] == ["torch==2.6.0 exists and would fit"]


def test_a_release_that_is_near_is_one_of_the_same_series(refused: Any) -> None:
    assert refused("torch==2.6.5")["suggestions"] == ["torch==2.6.0 exists and would fit"]


def test_words_stay_apart_where_no_version_follows() -> None:
    assert joined_words(["torch", "cupy", "driver", "==580.*"]) == ["torch", "cupy", "driver==580.*"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ubuntu 24.04", "ubuntu24.04"),
        ("Ubuntu 24.04 LTS", "ubuntu24.04"),
        ("ubuntu2404", "ubuntu24.04"),
        ("ubuntu-22.04", "ubuntu22.04"),
        ("jammy", "ubuntu22.04"),
        ("noble", "ubuntu24.04"),
        ("bookworm", "debian12"),
        ("Debian 12.5", "debian12"),
        ("RHEL 8", "rhel8"),
        ("rhel8.10", "rhel8"),
        ("el9", "rhel9"),
        ("Red Hat Enterprise Linux 9", "rhel9"),
        ("Rocky Linux 9.4", "rocky9"),
        ("centos stream 9", "centos9"),
        ("Amazon Linux 2023", "amzn2023"),
        ("al2023", "amzn2023"),
        ("SLES 15 SP6", "sles15"),
        ("openSUSE Leap 15.6", "opensuse-leap15"),
        ("azl3", "azurelinux3"),
        ("oracle linux 9", "ol9"),
    ],
)
def test_a_distribution_by_its_usual_names(text: str, meant: str) -> None:
    assert find_system(matrix(), text).id == meant


def test_every_distribution_is_found_by_its_id_and_by_its_name() -> None:
    for system in matrix().os.systems:
        assert find_system(matrix(), system.id.upper()) == system
        assert find_system(matrix(), system.name) == system


@pytest.mark.parametrize("text", ["ubuntu 24.10", "ubuntu", "centos 7", "", "9", "debian", "amazon linux 2"])
def test_a_release_that_the_matrix_lacks_is_not_taken_for_another(text: str) -> None:
    with pytest.raises(BadInputError) as refused:
        find_system(matrix(), text)
    assert "gpusetup matrix os" in refused.value.hint


@pytest.mark.parametrize(("text", "hint"), [("wsl2", "takes its driver from Windows"), ("macos", "no NVIDIA driver")])
def test_where_no_driver_is_installed_it_is_said_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(BadInputError) as refused:
        find_system(matrix(), text)
    assert hint in refused.value.hint
