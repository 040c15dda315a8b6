"""The lines that install a stack: each is read back by what would run it, and says exactly that stack."""

import re
import shlex
import subprocess

import pytest
from packaging.requirements import Requirement as Pin
from packaging.specifiers import SpecifierSet

from gpusetup.cli.main import main
from gpusetup.cli.resolve import WAYS, ending
from gpusetup.components.python.requirements import compiler_caps
from gpusetup.errors import NoStackError
from gpusetup.matrix.load import matrix
from gpusetup.plan.install import companions_of, install_of
from tests.crosscheck.facts import rows
from tests.questions import IDS, QUESTIONS
from tests.unit.plan.conftest import resolved


@pytest.fixture(params=QUESTIONS, ids=IDS)
def answer(request):
    words, about = request.param
    return resolved(*words, **about)


@pytest.fixture
def install(answer):
    return install_of(answer, matrix())


def words_of(line, *head):
    words = shlex.split(line)
    assert words[: len(head)] == list(head)
    return words[len(head) :]


def test_apply_wants_exactly_this_stack(answer, install):
    (line,) = install.apply
    words = words_of(line, "sudo", "gpusetup", "apply")
    wants = [words[index + 1] for index, word in enumerate(words) if word == "-w"]
    assert len(words) == 2 * len(wants)
    asked = answer.request
    again = resolved(*wants, gpus=asked.gpus, os=asked.os, arch=asked.arch, driver=asked.driver).stack
    assert (again.driver, again.torch, again.cuda) == (answer.stack.driver, answer.stack.torch, answer.stack.cuda)


def test_pip_and_uv_say_the_same_packages_and_the_index_of_the_build(answer, install):
    torch = answer.stack.torch
    if not install.pip:
        assert install.uv == install.conda == ()
        assert {"pip", "uv", "conda"} <= set(install.notes)
        return
    pip = words_of(install.pip[1], ".venv/bin/python", "-m", "pip", "install")
    uv = words_of(install.uv[1], "uv", "pip", "install")
    assert pip == words_of(install.conda[1], "conda", "run", "--name", "gpu", "python", "-m", "pip", "install")
    if torch is not None and not torch.on_pypi:
        assert pip[:2] == ["--extra-index-url", torch.index_url]
        assert uv[:2] == ["--torch-backend", torch.variant]
        pip, uv = pip[2:], uv[2:]
    assert pip == uv
    pins = {pin.name: pin for pin in map(Pin, pip)}
    limits = compiler_caps(answer.stack, matrix(), toolkit=True)
    assert all(str(pin.specifier).startswith("==") for pin in pins.values() if str(pin) not in limits)
    if torch is not None:
        assert str(pins["torch"].specifier) == f"=={torch.version}" + ("" if torch.on_pypi else f"+{torch.variant}")


def test_each_environment_has_a_python_that_the_packages_have_wheels_for(answer, install):
    python = answer.stack.python
    if not install.uv or python is None:
        return
    uv = words_of(install.uv[0], "uv", "venv", "--python")[0]
    conda = next(word for word in shlex.split(install.conda[0]) if word.startswith("python"))
    if python.version:
        assert uv in SpecifierSet(python.requires)
        assert (conda, install.pip[0]) == (f"python={uv}", f"python{uv} -m venv .venv")
    else:
        assert SpecifierSet(uv) == SpecifierSet(python.requires) == SpecifierSet(conda.removeprefix("python"))


def test_uv_knows_the_backend_of_every_build():
    known = {row["backend"] for row in rows("torch_backend_by_driver")}
    assert {build.variant for build in matrix().torch.builds} <= known


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


def test_the_text_folds_commands_so_that_a_shell_still_reads_them_whole(answer, install):
    said = ending(answer, matrix())
    lines = [(line[:14].strip(), shlex.split(line[14:])) for line in said.replace("\\\n", "").splitlines()]
    told = {head: words for head, words in lines if head}
    assert told["install:"] == shlex.split(install.apply[0])
    assert ("without root:" in told) == bool(install.pip)
    if install.pip:
        here = [head for head, _ in lines].index("without root:")
        assert [words for _, words in lines[here : here + 2]] == [shlex.split(line) for line in install.pip]
    offered = [way for way in WAYS[1:] if install.lines(way)]
    assert [word.strip(",") for word in told.get("more ways:", ())[1:] if word != "or"] == offered
    assert all(len(line) <= 80 or "https://" in line for line in said.splitlines())


def test_the_way_without_root_is_for_the_python_that_was_chosen():
    told = {system: ending(resolved("torch", gpus=("a100",), os=system), matrix())
            for system in ("rhel8", "ubuntu24.04", None)}  # fmt: skip
    assert "without root: python3.12 -m venv .venv\n              .venv/bin/python -m pip install" in told["rhel8"]
    assert "(uv and conda install Python 3.12 themselves)" in told["rhel8"]
    assert "python3.12 -m venv" in told["ubuntu24.04"]
    assert "themselves" not in told["ubuntu24.04"]
    assert "without root: python3 -m venv .venv\n" in told[None]


@pytest.mark.parametrize(
    ("wish", "companions"),
    [
        ("torch==2.6.0", {"torchaudio": "2.6.0", "torchvision": "0.21.0", "triton": "3.2.0"}),
        ("torch==2.15.0", {"torchvision": "0.29.2", "triton": "3.9.*"}),
        ("cupy", {}),
    ],
)
def test_companions_are_those_of_the_release(wish, companions):
    assert companions_of(resolved(wish).stack, matrix()) == companions


def test_a_driver_that_stays_is_not_asked_for():
    stays = resolved("torch", driver="580.178.04")
    pin = f"torch=={stays.stack.torch.version}+{stays.stack.torch.variant}"
    assert install_of(stays, matrix()).apply == (f"sudo gpusetup apply -w {pin}",)


@pytest.mark.parametrize("way", WAYS)
def test_install_prints_the_lines_and_nothing_else(way, capsys):
    assert main(["resolve", "torch", "--os", "ubuntu24.04", "--install", way]) == 0
    lines = install_of(resolved("torch", os="ubuntu24.04"), matrix()).lines(way)
    assert capsys.readouterr().out.splitlines() == list(lines)


def test_toolkit_wheels_without_a_compiler_are_not_offered_and_no_image_of_a_toolkit_is_said():
    answer = resolved("cuda==12.8.*", "cudnn")
    assert install_of(answer, matrix()).pip == ()
    assert "without root" not in ending(answer, matrix())
    install = install_of(resolved("cuda==11.4.*", gpus=("a100",)), matrix())
    assert (install.docker, "CUDA 11.4" in install.notes["docker"]) == ((), True)


def test_every_cupy_has_its_toolkit_or_no_lines_of_pip():
    for cuda in matrix().cuda.releases:
        try:
            lines = install_of(resolved("cupy", f"cuda=={cuda.version}"), matrix()).pip
        except NoStackError:
            continue
        assert bool(lines) == bool(cuda.wheel), cuda.version
        assert not lines or "cuda-toolkit==" in lines[1] or "nvidia-cuda-runtime-cu11==" in lines[1]
