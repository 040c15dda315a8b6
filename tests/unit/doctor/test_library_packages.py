"""Packages of a missing library, and releases that the doctor names: they are what the matrix and `resolve` give."""

import re
from shlex import quote

import pytest

from gpusetup.doctor import library_packages
from gpusetup.doctor.builds import for_capability, on_branch
from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.library_packages import fixes_for
from gpusetup.doctor.look import cause
from gpusetup.doctor.text import messages
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.lookup import lookup
from tests.unit.doctor.score import WORDINGS, entries
from tests.unit.doctor.test_machines import HOSTS, look_at


def commands(library: str, manager: str) -> list[str]:
    which = "cudnn-library-missing" if library.startswith("libcudnn") else "cuda-library-missing"
    return [line for fix in fixes_for(which, {"library": library}, (), manager) for line in fix.commands]


@pytest.mark.parametrize(("library", "said", "wheels", "system"), WORDINGS["of a library"])
def test_the_packages_are_named_by_the_library_s_number(library, said, wheels, system):
    (found,) = diagnose_text(f"{library}: cannot open shared object file: No such file or directory")
    assert said in " ".join(found.details)
    asked = commands(library, "apt")
    for wheel in wheels:
        assert f"python3 -m pip install {quote(wheel)}" in asked
    for package in system or ():
        assert f"sudo apt-get install {package}" in asked
    if system == []:
        assert not any("apt-get" in line or "apply" in line for line in asked)


@pytest.mark.parametrize(
    ("library", "apt", "dnf"), [("libnccl.so.2", "libnccl2", "libnccl"), ("libcudnn.so.8",) + ("libcudnn8",) * 2]
)
def test_system_packages_are_those_of_the_machine_s_manager(library, apt, dnf):
    assert f"sudo apt-get install {apt}" in commands(library, "apt")
    assert f"sudo dnf install {dnf}" in commands(library, "dnf")
    assert f"sudo zypper install {dnf}" in commands(library, "zypper")
    assert not any("install lib" in line for line in commands(library, ""))


@pytest.mark.parametrize("library", ["libcudart.so.10.1", "libcudnn.so.7"])
def test_a_library_that_nobody_packages_any_more_says_so(library):
    (fix,) = fixes_for(
        "cudnn-library-missing" if "cudnn" in library else "cuda-library-missing", {"library": library}, ()
    )
    assert "newer one" in fix.text
    assert "pip install" not in " ".join(fix.commands)


def test_a_machine_names_its_own_manager(monkeypatch):
    monkeypatch.setattr(library_packages, "manager_here", lambda: pytest.fail("this machine was asked"))

    missing = cause("cudnn-library-missing", "cuDNN is missing", library="libcudnn.so.8")
    monkeypatch.setattr("gpusetup.doctor.diagnose.STEPS", (("CUDA libraries", lambda _look: missing),))
    found = diagnose(look_at(HOSTS / "rocky9-a100-open" / "root"))
    assert found.cause is not None
    assert any("dnf install libcudnn8" in line for fix in found.cause.fixes for line in fix.commands)


@pytest.mark.parametrize(
    "entry", [*entries("packages_open"), *entries("packages_closed")], ids=lambda one: one["thread"]
)
def test_the_answer_names_all_that_it_has_to(entry):
    answer = messages(diagnose_text(entry["text"]))
    assert [word for word in entry.get("tells", ()) if word not in answer] == []


@pytest.mark.parametrize(("text", "said"), WORDINGS["of a package"])
def test_the_answer_names_the_release(text, said):
    answer = " ".join(messages(diagnose_text(text)).split())
    for words in said:
        assert words in answer


@pytest.mark.parametrize("branch", [450, 470, 515, 525, 535, 550, 570, 580, 595, 615])
def test_what_the_doctor_offers_resolve_gives(shipped, branch):
    told = on_branch(branch)[0]
    driver = re.search(r"run on ([0-9.]+):", told)[1]
    torch, *_ = re.findall(r"torch ([0-9.]+\+cu[0-9]+)", told)
    stack = resolve(Request(requirements=(Requirement(component="torch"),), driver=driver), shipped).stack
    assert torch == f"{stack.torch.version}+{stack.torch.variant}"
    for name, said in re.findall(r"(tensorflow|jax|cupy)[^ ,]* ([0-9][0-9.a-z]*[0-9])", told):
        chosen = resolve(Request(requirements=(Requirement(component=name),), driver=driver), shipped).stack
        assert getattr(chosen, name).version == said


@pytest.mark.parametrize("capability", ["7.0", "8.9", "9.0", "10.0", "12.0"])
def test_the_doctor_and_the_matrix_name_the_same_first_build(shipped, capability):
    told = next(line for line in for_capability(capability) if line.startswith("torch has code"))
    first = re.search(r"from ([0-9.]+)\+", told)[1]
    asked = Request(requirements=(Requirement(component="torch"),), gpus=(f"sm_{capability.replace('.', '')}",))
    rows = lookup(asked, shipped)
    assert first == min((row["torch"] for row in rows), key=lambda text: tuple(map(int, text.split("."))))
