"""The lines that install a stack: each is read back by what would run it, and says exactly that stack."""

import re
import subprocess

import pytest

from gpusetup.cli.main import main
from gpusetup.cli.resolve import WAYS
from gpusetup.matrix.load import matrix
from gpusetup.plan.install import install_of
from tests.questions import IDS, QUESTIONS
from tests.unit.plan.conftest import resolved


@pytest.fixture(params=QUESTIONS, ids=IDS)
def answer(request):
    words, about = request.param
    return resolved(*words, **about)


@pytest.fixture
def install(answer):
    return install_of(answer, matrix())


def test_a_dockerfile_starts_from_an_image_that_the_matrix_has_and_its_driver_runs(answer, install):
    stack = answer.stack
    if not install.docker:
        assert "no NVIDIA image" in install.notes["docker"]
        return
    assert {line.split()[0] for line in install.docker} <= {"#", "FROM", "RUN", "ENV"}
    (start,) = [line for line in install.docker if line.startswith("FROM ")]
    cuda, kind, name = re.fullmatch(r"FROM nvidia/cuda:([0-9.]+)-(base|devel)-(\S+)", start).groups()
    names = {**{system.id: system.id for system in matrix().os.systems}, **matrix().images.tags}
    image = next(item for item in matrix().images.images if item.cuda == cuda)
    assert name in {names[system] for system in image.systems[answer.request.arch or "x86_64"]}
    assert kind == ("devel" if stack.cuda and stack.cuda.version == cuda else "base")
    fits = resolved(f"cuda=={cuda}", driver=stack.driver.version)
    assert fits.stack.cuda.relation in ("native", "backward")


def test_a_shell_reads_every_line(install):
    scripts = ["\n".join(install.lines(way)) for way in WAYS if way != "docker"]
    scripts += [line.removeprefix("RUN ") for line in install.docker if line.startswith("RUN ")]
    for script in scripts:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=10)


def test_every_cupy_of_a_cuda_with_wheels_has_its_toolkit():
    for version in ("13.0.0", "12.8.0", "11.8.0"):
        lines = install_of(resolved("cupy", f"cuda=={version}"), matrix()).pip
        assert "cuda-toolkit==" in lines[1] or "nvidia-cuda-runtime-cu11==" in lines[1], lines


def test_a_driver_that_stays_is_not_asked_for():
    stays = resolved("torch", driver="580.178.04")
    pin = f"torch=={stays.stack.torch.version}+{stays.stack.torch.variant}"
    assert install_of(stays, matrix()).apply == (f"sudo gpusetup apply -w {pin}",)


@pytest.mark.parametrize("way", WAYS)
def test_install_prints_the_lines_and_nothing_else(way, capsys):
    assert main(["resolve", "torch", "--os", "ubuntu24.04", "--install", way]) == 0
    lines = install_of(resolved("torch", os="ubuntu24.04"), matrix()).lines(way)
    assert capsys.readouterr().out.splitlines() == list(lines)


def test_what_is_compiled_against_torch_comes_after_it_without_isolation_and_a_stub_needs_no_tools():
    answer = resolved("flash-attn", allow_builds=True)
    *before, tools, last = install_of(answer, matrix()).pip
    assert ("torch==" in before[-1], "ninja" in tools.split()) == (True, True)
    assert last.endswith(f"--no-build-isolation flash-attn=={answer.stack.flash_attn.version}")
    stub = install_of(resolved("tensorrt", allow_builds=True), matrix()).pip
    assert "--no-build-isolation" not in " ".join(stub)
    assert stub[-1].startswith(".venv/bin/python -m pip install tensorrt==")
