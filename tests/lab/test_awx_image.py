"""The execution environment of `export handover awx` as an image, and a job in it as AWX starts one: not root, by its entrypoint.

Real are ansible-builder, buildah and all steps of the definition but the base: no registry can be had here, so that is a
Debian root with a Python of its own, and a program that says to apt what the builder says to dnf.
"""

import shutil
import subprocess
import sys

import pytest
import yaml

from gpusetup.cli.main import main
from tests.drive.awx_job import Job, inventory_script, prepare
from tests.lab import machine
from tests.lab.bootstrapping import serve_bundle
from tests.lab.process import run
from tests.lab.roots import ROOTS
from tests.simulated_fleet import SimulatedFleet
from tests.stored import stored

BASE = "localhost/gpusetup-test-base:latest"
PYTHON = "/opt/python/bin/python3"
DNF = stored("awx_image_dnf.txt")
NEEDED = (
    "ansible-core>=2.16,<2.20", "ansible-runner>=2.4,<3", "bindep", "pyyaml", "packaging", "dumb-init==1.2.5", "pip", "setuptools",
    "wheel",
)  # fmt: skip
"""What the builder installs with pip; Python 3.11 has no newer ansible-core."""


@pytest.fixture
def buildah(lab_machine, tmp_path):
    """Call buildah with a store of its own; what it needs no privileges of a container for is done by chroot."""
    machine.prepare({"buildah": "buildah"})
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}  # fmt: skip

    def call(*words, check=True, timeout=500):
        argv = ["buildah", "--root", tmp_path / "store", "--runroot", tmp_path / "runroot", *words]
        return run(argv, check=check, timeout=timeout, env=environment)

    yield call
    shutil.rmtree(tmp_path / "store")  # some gigabytes


def base(buildah, folder):
    """Make the base image: Debian, with a Python that is nobody else's, and pip that finds wheels in /wheels."""
    container = buildah("from", "scratch").stdout.strip()
    buildah("copy", container, ROOTS["debian12"].ready(), "/")
    (folder / "dnf").write_text(DNF)
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    buildah("copy", "--chmod", "755", container, folder / "dnf", "/usr/bin/dnf")
    buildah("copy", container, folder / "pip.conf", "/etc/pip.conf")
    buildah("run", container, "--", "sh", "-c", "mkdir -p /wheels && python3 -m venv /opt/python")
    buildah("config", "--env", "PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    buildah("commit", "--quiet", container, BASE)
    buildah("rm", container)


@pytest.mark.slow
def test_the_image_is_built_and_a_job_plans_in_it(buildah, tmp_path):
    base(buildah, tmp_path)
    wheels = tmp_path / "wheels"
    argv = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "--python-version", "3.11", "--dest", str(wheels), *NEEDED]  # fmt: skip
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("the package index cannot be had")
    assert main(["export", "handover", "awx", "--out", str(tmp_path / "handover")]) == 0
    folder = tmp_path / "handover/execution-environment"
    definition = yaml.safe_load((folder / "execution-environment.yml").read_text())
    definition["images"]["base_image"]["name"] = BASE
    definition["dependencies"] |= {
        "python_interpreter": {"package_system": "python3", "python_path": PYTHON},
        "ansible_core": {"package_pip": NEEDED[0]}, "system": ["openssh-client [platform:dpkg]"],
    }  # fmt: skip
    (folder / "execution-environment.yml").write_text(yaml.safe_dump(definition))
    shutil.copytree(serve_bundle().folder, folder / "gpusetup-bundle")
    run([sys.executable, "-m", "ansible_builder", "create"], cwd=folder)
    buildah("bud", "--volume", f"{wheels}:/wheels:ro", "--tag", "gpusetup-ee", folder / "context")

    fleet = SimulatedFleet(tmp_path / "fleet", 3, kinds=("ubuntu24.04-h200-keep",))
    (fleet.folder / "faults/gpu-00001").write_text("refused")
    variables = {"ansible_python_interpreter": "/usr/bin/python3", "ansible_ssh_executable": str(fleet.folder / "ssh"), "gpusetup_become": False}  # fmt: skip
    job = tmp_path / "job"
    inventory_script(job / "inventory/hosts", fleet.names, variables)
    prepare(job, tmp_path / "handover/project", number=7)
    run(["chmod", "-R", "a+rwX", job, fleet.folder])
    container = buildah("from", "--pull-never", "gpusetup-ee").stdout.strip()
    entry = [
        "/opt/builder/bin/entrypoint", "dumb-init", "ansible-runner", "run", "/runner", "-p", "plan.yml", "--ident",
        "1",
    ]  # fmt: skip
    buildah("run", "--volume", f"{job}:/runner", "--volume", f"{fleet.folder}:{fleet.folder}", container, "--", *entry, check=False)  # fmt: skip
    left = Job(job)
    assert left.hosts() == {"gpu-00000": "ok", "gpu-00001": "failed", "gpu-00002": "ok"}, left.stdout
    assert sorted(left.artifacts["gpu_planned_7"]["hosts"]) == ["gpu-00000", "gpu-00002"]
    assert (left.folder / "rc").stat().st_uid == 1000, "not by root"
