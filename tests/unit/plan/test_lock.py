"""Locks: made, read back, refused when edited, exact, with hashes or without an index; roles take their variables."""

import json
from unittest.mock import Mock

import msgspec
import pytest

from gpusetup.bootstrap import hashes
from gpusetup.cli.lock import load_lock
from gpusetup.cli.main import main
from gpusetup.components.driver.archives import last_seen
from gpusetup.components.judge import versions
from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.matrix.load import matrix
from gpusetup.model.lock import PipHashes
from gpusetup.model.request import Request
from gpusetup.model.stack import exact_requirements
from gpusetup.plan.lock import hashed_lines, lock_of, read_lock, with_hashes
from gpusetup.resolve.api import resolve
from tests.refusals import refused
from tests.unit.plan.conftest import resolved

HASHED = ("cupy-cuda12x==13.6.0 --hash=sha256:aa", "numpy==2.2.6 --hash=sha256:bb")


lock = lock_of(resolved("torch==2.6.*", "cupy", "nccl", gpus=("h100",), os="ubuntu22.04"), matrix())


def test_a_lock_is_exact_resolves_to_itself_and_is_read_back_whole():
    request = Request(requirements=exact_requirements(lock.stack), gpus=("h100",), os="ubuntu22.04")
    assert resolve(request, matrix()).stack == lock.stack
    assert read_lock(msgspec.json.encode(lock), "f") == lock
    for line in (*lock.pip.system, *lock.pip.wheels):
        assert line.startswith("--extra-index-url https://download.pytorch.org/whl/cu") or "==" in line


def test_one_with_hashes_is_read_back_whole_and_refused_when_a_hash_was_edited():
    plain = lock_of(resolved("cupy", gpus=("h100",), os="ubuntu22.04"), matrix())
    assert hashed_lines(plain) == ()
    lock = with_hashes(plain, PipHashes(python="3.10", arch="x86_64", system=HASHED[:1], wheels=HASHED))
    raw = msgspec.json.encode(lock)
    assert read_lock(raw, "f") == lock
    lines = {item.lines: item.hashed for item in hashed_lines(lock)}
    assert lines == {lock.pip.system: HASHED[:1], lock.pip.wheels: HASHED}
    with refused(BadInputError, "GS-342"):
        read_lock(raw.replace(b"sha256:aa", b"sha256:cc"), "f")


def _written(says, *words):
    return json.loads(says(0, "lock", *words, "--gpu", "t4", "--vars"))


@pytest.mark.parametrize("system", ["debian12", "debian13"])
def test_the_drivers_that_an_archive_last_had_count_where_nobody_asked_it(system):
    rows = [row for row in matrix().repos.distro_drivers if system in row.systems and row.version]
    whole = {versions.upstream(row.version) for row in rows if row.module == "proprietary"}
    assert {item.version for item in last_seen(matrix().repos, system)} == whole > set()


def test_the_libraries_of_a_cuda_have_packages_for_the_roles(says):
    packages = _written(says, "driver", "cuda", "cudnn", "nccl", "--os", "ubuntu24.04")["gpu_cuda_packages"]
    assert {item["name"].partition("-")[0] for item in packages} >= {"cuda", "libcudnn9", "libnccl2"}


def test_a_driver_that_the_archive_never_had_is_not_promised(says):
    asked = ("--os", "debian12", "--source", "distro")
    assert "unknown" not in json.dumps(_written(says, *asked))
    drivers = _written(says, "driver", *asked)["gpu_driver_packages"]
    assert {item["name"] for item in drivers} >= {"nvidia-smi", "libcuda1"}
    known = {row.version.partition("-")[0] for row in matrix().repos.distro_drivers if "debian12" in row.systems}
    assert {item["version"].partition("-")[0] for item in drivers} <= known
    assert main(["lock", "driver==580.*", "--gpu", "t4", *asked, "--vars"]) == 4


def test_what_the_command_says(capsys, says):
    assert main(["lock", "driver", "--gpu", "t4", "--os", "rhel10", "--vars"]) == 0
    told = capsys.readouterr().err  # of a key that nobody can prove
    assert ("CDF6BA43.pub" in told, "gpu_repo_sources" in told) == (True, True)
    assert main(["lock", "--gpu", "t4", "--vars"]) == 3
    assert "--os" in capsys.readouterr().out
    assert "torch==2.6" in says(0, "lock", "torch==2.6.*", "--gpu", "v100", "--pip")
    for words in (["driver"], ["cuda"], ["cupy", "--gpu", "k80"]):
        assert "pip cannot install this stack" in says(3, "lock", *words, "--pip")


ASKED = ["lock", "cupy", "--gpu", "h100", "--os", "ubuntu22.04", "--hashes"]


@pytest.fixture
def without_index(monkeypatch):
    refusal = UnreachableError("GS-770", "the package index does not list them", context="Connection\n  refused")
    monkeypatch.setattr(hashes, "hashes_of", Mock(side_effect=refusal))


@pytest.mark.usefixtures("without_index")
def test_without_an_index_the_answer_is_the_direct_pins_and_says_so(capsys, tmp_path):
    assert main(ASKED) == 6
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert any(line.startswith("cupy-cuda") for line in document["pip"]["wheels"])
    assert document["hashes"] is None
    assert document["without_hashes"] == "the package index does not list them: Connection refused"
    assert "only the direct pins" in told.err

    kept = tmp_path / "gpu.lock.json"
    assert main([*ASKED, "--out", str(kept)]) == 6
    assert load_lock(str(kept)).without_hashes


@pytest.mark.usefixtures("without_index")
def test_a_requirements_file_without_an_index_says_it_itself(capsys):
    assert main([*ASKED, "--pip"]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("# only the direct pins") for line in lines)
    assert not any("--hash" in line for line in lines)


@pytest.mark.parametrize(("edit", "reference"), [({"schema": "gpusetup/lock/9"}, "GS-340"), ({"extra": 1}, "GS-341")])
def test_a_foreign_lock_is_refused_with_the_field(edit, reference):
    with refused(BadInputError, reference) as caught:
        read_lock(json.dumps(msgspec.to_builtins(lock) | edit).encode(), "gpu.lock.json")
    assert caught.value.path.startswith("gpu.lock.json:$")
