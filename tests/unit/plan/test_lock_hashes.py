"""A lock with hashes: read back whole, and applied line for line or not at all."""

import json

import msgspec
import pytest

from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.lock import PipHashes
from gpusetup.model.request import Request
from gpusetup.model.settings import HashedLines, Settings
from gpusetup.plan.lock import hashed_lines, lock_of, read_lock, with_hashes
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements

HASHED = ("cupy-cuda12x==13.6.0 --hash=sha256:aa", "numpy==2.2.6 --hash=sha256:bb")
WISH = Settings(requirements=parse_requirements(["cupy"]), cuda_from="wheels")


def test_it_is_read_back_whole_and_refused_when_a_hash_was_edited():
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
