"""A missing library is answered with the packages that bring it: by the number in its name, from the matrix."""

from shlex import quote

import pytest

from gpusetup.doctor import library_packages
from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.library_packages import fixes_for
from gpusetup.doctor.look import cause
from gpusetup.resolve.requests import parse_requirements
from tests.unit.doctor.score import WORDINGS
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


def test_what_gpusetup_is_asked_for_is_a_wish_that_it_reads():
    for library in ("libcudart.so.12", "libcudnn.so.8", "libcudnn.so.9", "libnccl.so.2", "libcusolver.so.11"):
        wishes = [line.partition(" -w ")[2].strip("'") for line in commands(library, "apt") if " -w " in line]
        assert wishes
        assert parse_requirements(wishes)


def test_a_machine_names_its_own_manager(monkeypatch):
    monkeypatch.setattr(library_packages, "manager_here", lambda: pytest.fail("this machine was asked"))

    missing = cause("cudnn-library-missing", "cuDNN is missing", library="libcudnn.so.8")
    monkeypatch.setattr("gpusetup.doctor.diagnose.STEPS", (("CUDA libraries", lambda _look: missing),))
    found = diagnose(look_at(HOSTS / "rocky9-a100-open" / "root"))
    assert found.cause is not None
    assert any("dnf install libcudnn8" in line for fix in found.cause.fixes for line in fix.commands)
