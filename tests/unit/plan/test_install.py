"""The lines that install a stack: each is read back by what would run it, and says exactly that stack."""

import json
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
from gpusetup.model.request import Request
from gpusetup.plan.install import companions_of, install_of
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.crosscheck.facts import rows
from tests.questions import IDS, QUESTIONS


@pytest.fixture(params=QUESTIONS, ids=IDS)
def answer(request):
    words, about = request.param
    return resolve(Request(requirements=parse_requirements(list(words)), **about), matrix())


def words_of(line, *head):
    words = shlex.split(line)
    assert words[: len(head)] == list(head)
    return words[len(head) :]


def test_apply_wants_exactly_this_stack(answer):
    (line,) = install_of(answer, matrix()).apply
    words = words_of(line, "sudo", "gpusetup", "apply")
    wants = [words[index + 1] for index, word in enumerate(words) if word == "-w"]
    assert len(words) == 2 * len(wants)
    asked = answer.request
    again = resolve(
        Request(
            requirements=parse_requirements(wants), gpus=asked.gpus, os=asked.os, arch=asked.arch, driver=asked.driver
        ),
        matrix(),
    )
    assert again.stack.driver == answer.stack.driver
    assert again.stack.torch == answer.stack.torch
    assert again.stack.cuda == answer.stack.cuda


def test_pip_and_uv_say_the_same_packages_and_the_index_of_the_build(answer):
    install, torch = install_of(answer, matrix()), answer.stack.torch
    if not install.pip:
        assert install.uv == install.conda == ()
        assert {"pip", "uv", "conda"} <= set(install.notes)
        return
    pip = words_of(install.pip[1], ".venv/bin/python", "-m", "pip", "install")
    uv = words_of(install.uv[1], "uv", "pip", "install")
    conda = words_of(install.conda[1], "conda", "run", "--name", "gpu", "python", "-m", "pip", "install")
    assert conda == pip
    if torch is not None and not torch.on_pypi:
        assert pip[:2] == ["--extra-index-url", torch.index_url]
        assert uv[:2] == ["--torch-backend", torch.variant]
        pip, uv = pip[2:], uv[2:]
    assert pip == uv
    pins = [Pin(word) for word in pip]
    limits = compiler_caps(answer.stack, matrix(), toolkit=True)
    assert all(str(pin.specifier).startswith("==") for pin in pins if str(pin) not in limits)
    if torch is not None:
        said = next(str(pin.specifier) for pin in pins if pin.name == "torch")
        assert said == f"=={torch.version}" + ("" if torch.on_pypi else f"+{torch.variant}")


def test_each_environment_has_a_python_that_the_packages_have_wheels_for(answer):
    install, python = install_of(answer, matrix()), answer.stack.python
    if not install.uv or python is None:
        return
    uv = words_of(install.uv[0], "uv", "venv", "--python")[0]
    conda = next(word for word in shlex.split(install.conda[0]) if word.startswith("python"))
    if python.version:
        assert uv in SpecifierSet(python.requires)
        assert conda == f"python={uv}"
        assert install.pip[0] == f"python{uv} -m venv .venv"
    else:
        assert SpecifierSet(uv) == SpecifierSet(python.requires) == SpecifierSet(conda.removeprefix("python"))


def test_uv_knows_the_backend_of_every_build():
    known = {row["backend"] for row in rows("torch_backend_by_driver")}
    assert {build.variant for build in matrix().torch.builds} <= known


def test_a_dockerfile_starts_from_an_image_that_the_matrix_has_and_its_driver_runs(answer):
    install, stack = install_of(answer, matrix()), answer.stack
    if not install.docker:
        assert "no NVIDIA image" in install.notes["docker"]
        return
    assert {line.split()[0] for line in install.docker} <= {"#", "FROM", "RUN", "ENV"}
    (start,) = [line for line in install.docker if line.startswith("FROM ")]
    found = re.fullmatch(r"FROM nvidia/cuda:([0-9.]+)-(base|devel)-(\S+)", start)
    assert found
    names = {**{system.id: system.id for system in matrix().os.systems}, **matrix().images.tags}
    image = next(item for item in matrix().images.images if item.cuda == found[1])
    arch = answer.request.arch or "x86_64"
    assert found[3] in {names[system] for system in image.systems[arch]}
    assert found[2] == ("devel" if stack.cuda and stack.cuda.version == found[1] else "base")
    fits = Request(requirements=parse_requirements([f"cuda=={found[1]}"]), driver=stack.driver.version)
    assert resolve(fits, matrix()).stack.cuda.relation in ("native", "backward")


def test_a_shell_reads_every_line(answer):
    install = install_of(answer, matrix())
    scripts = ["\n".join(install.lines(way)) for way in WAYS if way != "docker"]
    scripts += [line.removeprefix("RUN ") for line in install.docker if line.startswith("RUN ")]
    for script in scripts:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=10)


def test_the_text_folds_commands_so_that_a_shell_still_reads_them_whole(answer):
    said = ending(answer, matrix())
    install = install_of(answer, matrix())
    lines = said.replace("\\\n", "").splitlines()
    heads = [line[:14].strip() for line in lines]
    told = {head: shlex.split(line[14:]) for head, line in zip(heads, lines, strict=True) if head}
    assert told["install:"] == shlex.split(install.apply[0])
    assert ("without root:" in told) == bool(install.pip)
    if install.pip:
        here = heads.index("without root:")
        assert [shlex.split(line[14:]) for line in lines[here : here + 2]] == [
            shlex.split(line) for line in install.pip
        ]
    offered = [way for way in WAYS[1:] if install.lines(way)]
    assert ("more ways:" in told) == bool(offered)
    if offered:
        assert [word.strip(",") for word in told["more ways:"][1:] if word != "or"] == offered
    assert all(len(line) <= 80 or "https://" in line for line in said.splitlines())


def test_the_way_without_root_is_for_the_python_that_was_chosen():
    def told(system):
        request = Request(requirements=parse_requirements(["torch"]), gpus=("a100",), os=system)
        return ending(resolve(request, matrix()), matrix())

    assert "without root: python3.12 -m venv .venv\n              .venv/bin/python -m pip install" in told("rhel8")
    assert "(uv and conda install Python 3.12 themselves)" in told("rhel8")
    assert "python3.12 -m venv" in told("ubuntu24.04")
    assert "themselves" not in told("ubuntu24.04")
    assert "without root: python3 -m venv .venv\n" in told(None)


def test_companions_are_those_of_the_release():
    stack = resolve(Request(requirements=parse_requirements(["torch==2.6.0"])), matrix()).stack
    assert companions_of(stack, matrix()) == {"torchaudio": "2.6.0", "torchvision": "0.21.0", "triton": "3.2.0"}
    newest = resolve(Request(requirements=parse_requirements(["torch==2.15.0"])), matrix()).stack
    assert companions_of(newest, matrix()) == {"torchvision": "0.29.2", "triton": "3.9.*"}
    none = resolve(Request(requirements=parse_requirements(["cupy"])), matrix()).stack
    assert companions_of(none, matrix()) == {}


def test_a_driver_that_stays_is_not_asked_for():
    stays = resolve(Request(requirements=parse_requirements(["torch"]), driver="580.178.04"), matrix())
    assert install_of(stays, matrix()).apply == (
        f"sudo gpusetup apply -w torch=={stays.stack.torch.version}+{stays.stack.torch.variant}",
    )


@pytest.mark.parametrize("way", WAYS)
def test_install_prints_the_lines_and_nothing_else(way, capsys):
    assert main(["resolve", "torch", "--os", "ubuntu24.04", "--install", way]) == 0
    request = Request(requirements=parse_requirements(["torch"]), os="ubuntu24.04")
    assert capsys.readouterr().out.splitlines() == list(install_of(resolve(request, matrix()), matrix()).lines(way))


def test_a_way_that_cannot_install_the_stack_says_so(capsys):
    assert main(["resolve", "driver", "--install", "pip"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "pip cannot install this stack" in said.err
    assert "sudo gpusetup apply" in said.err


def test_toolkit_wheels_without_a_compiler_are_not_offered():
    answer = resolve(Request(requirements=parse_requirements(["cuda==12.8.*", "cudnn"])), matrix())
    assert install_of(answer, matrix()).pip == ()
    assert "without root" not in ending(answer, matrix())


def test_no_image_of_a_toolkit_is_said():
    answer = resolve(Request(requirements=parse_requirements(["cuda==11.4.*"]), gpus=("a100",)), matrix())
    install = install_of(answer, matrix())
    assert install.docker == ()
    assert "CUDA 11.4" in install.notes["docker"]


@pytest.mark.parametrize(
    "build", [b for b in matrix().torch.builds if b.code], ids=lambda b: f"{b.version}+{b.variant}"
)
def test_every_build_that_can_be_chosen_has_lines(build):
    wish = parse_requirements([f"torch=={build.version}+{build.variant}"])
    try:
        answer = resolve(Request(requirements=wish), matrix())
    except NoStackError:
        pytest.skip("no driver in support runs it")
    install = install_of(answer, matrix())
    where = (
        [] if answer.stack.torch.on_pypi else ["--extra-index-url", f"https://download.pytorch.org/whl/{build.variant}"]
    )
    assert words_of(install.pip[1], ".venv/bin/python", "-m", "pip", "install")[: len(where)] == where


def test_json_has_every_way(capsys):
    assert main(["resolve", "torch==2.15.0+cu130", "--format", "json"]) == 0
    install = json.loads(capsys.readouterr().out)["install"]
    assert set(install) == {*WAYS, "companions", "notes"}
    assert all(isinstance(install[way], list) and install[way] for way in WAYS)
    assert install["companions"]["torchvision"] == "0.29.2"


def built(*words):
    request = Request(requirements=parse_requirements(list(words)), gpus=("h100",), os="ubuntu24.04", allow_builds=True)
    answer = resolve(request, matrix())
    return answer, install_of(answer, matrix())


def test_what_is_compiled_against_torch_comes_after_it_without_isolation():
    answer, install = built("flash-attn")
    pin = f"flash-attn=={answer.stack.flash_attn.version}"
    for lines in (install.pip, install.uv, install.conda):
        *before, tools, last = lines
        assert pin not in " ".join(before)
        assert "torch==" in before[-1]
        assert "ninja" in tools.split()
        assert last.endswith(f"--no-build-isolation {pin}")


def test_a_stub_of_the_index_needs_no_tools():
    _, install = built("tensorrt")
    assert "--no-build-isolation" not in " ".join(install.pip)
    assert install.pip[-1].startswith(".venv/bin/python -m pip install tensorrt==")


def test_apply_is_never_asked_for_what_it_would_refuse():
    """Apply installs wheels: what is built is left to the lines for its environment."""
    answer, install = built("flash-attn")
    assert answer.stack.flash_attn.kind == "source"
    assert "flash-attn" not in " ".join(install.apply)
    assert install.docker == ()
    assert "flash-attn" in install.notes["docker"]
    assert "ninja" in ending(answer, matrix())
