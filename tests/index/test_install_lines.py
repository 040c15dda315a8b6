"""Every line that `resolve --install pip` and `--install uv` print, resolved against the package index.

`./dev test index` runs it: it needs the network. Builds that PyPI does not have are resolved where PyTorch's own index can be
reached, and skipped where it cannot; that their line names the index of the recorded build is a test without the network
(tests/unit/plan/test_install.py). Channels and registries are not asked: what conda and docker install is pip's line, which
is; test_dockerfiles_and_conda.py reads the rest of their lines.
"""

import os
import shlex
import shutil
import subprocess
import sys
from functools import lru_cache

import pytest
import requests

from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.plan.install import install_of
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.questions import IDS, QUESTIONS

PYPI, PYTORCH = "https://pypi.org/simple/pip/", "https://download.pytorch.org/whl/torch/"


@lru_cache
def reached(url):
    try:
        return requests.head(url, timeout=15).ok
    except requests.RequestException:
        return False


@pytest.fixture(params=QUESTIONS, ids=IDS)
def asked(request):
    words, about = request.param
    answer = resolve(Request(requirements=parse_requirements(list(words)), **about), matrix())
    install = install_of(answer, matrix())
    if not install.pip:
        pytest.skip(install.notes["pip"])
    where = PYPI if answer.stack.torch is None or answer.stack.torch.on_pypi else PYTORCH
    if not reached(where):
        pytest.skip(f"{where} cannot be reached")
    return answer.stack, install, answer.request.arch or ("aarch64" if "gh200" in answer.request.gpus else "x86_64")


def python_of(stack):
    assert stack.python is not None
    return stack.python.version or stack.python.requires.removeprefix(">=").partition(",")[0]


def environment(folder):
    """Only what the line itself says: no index or folder of wheels that this machine's settings add."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    certificates = os.environ.get("PIP_CERT")
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder / "cache")} | (
        {"PIP_CERT": certificates, "SSL_CERT_FILE": certificates} if certificates else {}
    )


def run(argv, folder):
    done = subprocess.run(
        argv, env=environment(folder), capture_output=True, text=True, timeout=600, check=False, cwd=folder
    )
    assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout[-1500:]}{done.stderr[-3000:]}"


def test_pip_finds_everything_that_its_line_names(asked, tmp_path):
    stack, install, arch = asked
    words = shlex.split(install.pip[1])[4:]
    platforms = [f"--platform=manylinux_2_{glibc}_{arch}" for glibc in range(40, 4, -1)]
    platforms += [f"--platform=manylinux{year}_{arch}" for year in ("2014", "2010", "1")] + [f"--platform=linux_{arch}"]
    pretended = [
        "--python-version",
        python_of(stack),
        "--only-binary=:all:",
        "--target",
        str(tmp_path / "t"),
        *platforms,
    ]
    run([sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", *pretended, *words], tmp_path)


def test_uv_finds_everything_that_its_line_names(asked, tmp_path):
    uv = shutil.which("uv") or pytest.skip("uv is not installed: pip install --group index")
    stack, install, arch = asked
    words = shlex.split(install.uv[1])[3:]
    pretended = ["--python-version", python_of(stack), "--python-platform", f"{arch}-manylinux_2_28"]
    run([uv, "pip", "install", "--dry-run", "--target", str(tmp_path / "t"), *pretended, *words], tmp_path)


def test_uv_knows_every_backend_that_a_line_can_name():
    uv = shutil.which("uv") or pytest.skip("uv is not installed: pip install --group index")
    said = subprocess.run(
        [uv, "pip", "install", "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    known = said.partition("--torch-backend")[2].partition("]")[2].partition("]")[0].replace(",", " ").split()
    assert {build.variant for build in matrix().torch.builds} <= set(known)
