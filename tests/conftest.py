"""What every test shares: the shipped matrix, read once, and how hard hypothesis tries."""

import gc
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from gpusetup.bootstrap import bundle
from gpusetup.cli.main import main
from gpusetup.matrix.load import Matrix
from gpusetup.model.bundle import BundledFile, Manifest

# Started in the background, a test run inherits that interrupts are ignored; here they are tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected, a third of whose time it takes

# The same examples in every run: a failure that comes and goes helps nobody. GPUSETUP_HYPOTHESIS=search explores anew.
_COMMON = {
    "deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large], "database": None,
}  # fmt: skip
settings.register_profile("steady", settings(max_examples=60, derandomize=True, **_COMMON))
settings.register_profile("search", settings(max_examples=1500, **_COMMON))
settings.load_profile(os.environ.get("GPUSETUP_HYPOTHESIS", "steady"))


@pytest.fixture(scope="session")
def shipped():
    """The data that is shipped, whatever the environment lays over it."""
    return Matrix()


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """A stand-in for NVIDIA's library, which answers from the text at NVML_STAND_IN."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in library with")
    place = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "fixtures/nvml/stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", place, source], check=True, timeout=60)
    return place


@pytest.fixture
def small_bundle(tmp_path):
    folder, name = tmp_path / "bundle", "wheels/a.whl"
    (folder / "wheels").mkdir(parents=True)
    (folder / name).write_bytes(b"content")
    files = {name: BundledFile(sha256=bundle.digest_of(folder / name), size=7)}
    manifest = Manifest(gpusetup="1", pip=name, sets={"3.11-x86_64": (name,)}, files=files)
    (folder / bundle.MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return folder


@pytest.fixture
def says(capsys):
    """Run a command line, which must end with a code; return its answer, or else its error, in one line."""

    def said(code, *words):
        found, told = main([*map(str, words)]), capsys.readouterr()
        assert found == code, told
        return " ".join((told.err if code else told.out).split())

    return said


@pytest.fixture
def printed(capsys):
    """Run a command line, which must end with a code; return the document that it prints."""

    def document(code, *words):
        found, told = main([*map(str, words), "--format", "json"]), capsys.readouterr()
        assert found == code, told
        return json.loads(told.out)

    return document


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """Runs and histories of a test stay out of those of the person, and of the machine, that runs the tests."""
    gc.freeze()
    gc.enable()
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
    os.environ["GPUSETUP_STATE"] = str(tmp_path_factory.mktemp("gpusetup-state"))
