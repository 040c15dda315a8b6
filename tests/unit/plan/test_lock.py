"""Locks: made, read back, refused when edited, exact; one with hashes is applied line for line or not at all."""

import json

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.lock import PipHashes
from gpusetup.model.request import Request
from gpusetup.model.settings import HashedLines, Settings
from gpusetup.model.stack import exact_requirements
from gpusetup.plan.lock import hashed_lines, lock_of, read_lock, with_hashes
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements


@pytest.fixture(scope="module")
def lock():
    request = Request(
        requirements=parse_requirements(["torch==2.6.*", "cupy", "nccl"]), gpus=("h100",), os="ubuntu22.04"
    )
    return lock_of(resolve(request, matrix()), matrix())


def test_a_lock_resolves_to_itself(lock):
    request = Request(requirements=exact_requirements(lock.stack), gpus=("h100",), os="ubuntu22.04")
    assert resolve(request, matrix()).stack == lock.stack


def test_it_is_read_back_whole(lock):
    assert read_lock(msgspec.json.encode(lock), "f") == lock


@pytest.mark.parametrize(
    ("change", "reference"),
    [
        (lambda d: d["stack"]["driver"].update(version="999.1"), "GS-342"),
        (lambda d: d.update(schema="gpusetup/lock/9"), "GS-340"),
        (lambda d: d["stack"].update(driver=3), "GS-341"),
        (lambda d: d.update(extra=1), "GS-341"),
    ],
)
def test_an_edited_or_foreign_lock_is_refused_with_the_field(lock, change, reference):
    document = json.loads(msgspec.json.encode(lock))
    change(document)
    with pytest.raises(BadInputError) as caught:
        read_lock(json.dumps(document).encode(), "gpu.lock.json")
    assert caught.value.reference == reference
    assert caught.value.path.startswith("gpu.lock.json:$")


def test_pip_lines_are_exact(lock):
    for line in (*lock.pip.system, *lock.pip.wheels):
        assert line.startswith("--extra-index-url https://download.pytorch.org/whl/cu") or "==" in line


def test_the_command_writes_variables_for_plain_ansible(capsys):
    assert main(["lock", "--gpu", "t4", "--os", "debian12", "--source", "distro", "--vars"]) == 0
    variables = json.loads(capsys.readouterr().out)
    assert {item["name"] for item in variables["gpu_driver_packages"]} >= {"nvidia-smi", "libcuda1"}
    assert "unknown" not in json.dumps(variables)


def test_variables_need_a_distribution(capsys):
    assert main(["lock", "--gpu", "t4", "--vars"]) == 3
    assert "--os" in capsys.readouterr().out


def test_pip_output_is_a_requirements_file(capsys):
    assert main(["lock", "torch==2.6.*", "--gpu", "v100", "--pip"]) == 0
    assert "torch==2.6" in capsys.readouterr().out


HASHED = ("cupy-cuda12x==13.6.0 --hash=sha256:aa", "numpy==2.2.6 --hash=sha256:bb")
WISH = Settings(requirements=parse_requirements(["cupy"]), cuda_from="wheels")


def test_one_with_hashes_is_read_back_whole_and_refused_when_a_hash_was_edited():
    request = Request(requirements=parse_requirements(["cupy"]), gpus=("h100",), os="ubuntu22.04")
    plain = lock_of(resolve(request, matrix()), matrix())
    assert hashed_lines(plain) == ()
    lock = with_hashes(plain, PipHashes(python="3.10", arch="x86_64", system=HASHED[:1], wheels=HASHED))
    raw = msgspec.json.encode(lock)
    assert read_lock(raw, "f") == lock
    assert {item.lines: item.hashed for item in hashed_lines(lock)} == {
        lock.pip.system: HASHED[:1],
        lock.pip.wheels: HASHED,
    }
    document = json.loads(raw)
    document["hashes"]["wheels"][0] = HASHED[0].replace("aa", "cc")
    with pytest.raises(BadInputError) as caught:
        read_lock(json.dumps(document).encode(), "f")
    assert caught.value.reference == "GS-342"


@pytest.fixture
def facts(host):
    return host("ubuntu24.04-h200-keep")


def requirements(planner, facts, settings):
    return tuple(planner.first(facts, settings).plan.variables.gpu_python_requirements)


def test_exactly_the_hashed_lines_are_installed(planner, facts):
    lines = requirements(planner, facts, WISH)
    python = ".".join(next(item.version for item in facts.pythons if item.path == "/usr/bin/python3").split(".")[:2])
    locked = HashedLines(lines=lines, hashed=HASHED, python=python, arch=facts.arch)
    assert requirements(planner, facts, msgspec.structs.replace(WISH, hashed=(locked,))) == HASHED
    for other, reference in (
        (msgspec.structs.replace(locked, lines=("jax==1",)), "GS-347"),
        (msgspec.structs.replace(locked, python="3.8"), "GS-348"),
        (msgspec.structs.replace(locked, arch="aarch64"), "GS-348"),
    ):
        with pytest.raises(PreflightError) as caught:
            planner.first(facts, msgspec.structs.replace(WISH, hashed=(other,)))
        assert caught.value.reference == reference
