"""The packages of `./dev release` where people install them: Debian's own apt, rpm (a stand-in of Enterprise Linux), and a
machine that has nothing but Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.places import SIMULATED_ROOT

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
INVENTORY = f"localhost ansible_connection=local gpusetup_simulated_root={SIMULATED_ROOT}\n"
QUESTION = ("matrix", "torch==2.6.*", "--gpu", "v100")


def built(folder: Path, kind: str, python: str) -> Path:
    argv = [sys.executable, "-m", "tools.release", kind, "--python", python, "--out", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


def answered(host, *program: str) -> str:
    """What it says of versions, from a folder of its own, without a network."""
    return host.ssh("env", "-C", "/tmp", "LC_ALL=C.UTF-8", *program, *QUESTION, timeout=120).stdout


def looked(host, program: str) -> str:
    """What it sees of the host through Ansible, which came along."""
    host.path("/root/inventory.ini").write_text(INVENTORY)
    return host.ssh("env", "LC_ALL=C.UTF-8", program, "facts", "/root/inventory.ini", timeout=300).stdout


@pytest.mark.parametrize(("flavour", "python"), [("debian12", "3.11"), ("debian13", "3.13")])
def test_a_deb_is_installed_used_and_gone(lab_hosts, tmp_path, flavour, python):
    made = built(tmp_path, "deb", python)
    (host,) = lab_hosts(flavour=flavour, machine="t4", network="mirror")
    host.ssh("apt-get", "update", "-qq", timeout=300)
    shutil.copy(made, host.path("/root"))
    before = host.ssh("dpkg-query", "-W", "-f", "${Package}\n").stdout
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends",
             f"/root/{made.name}", timeout=600)  # fmt: skip
    assert "driver" in answered(host, "gpusetup")
    assert "T4" in looked(host, "gpusetup")
    assert host.path("/usr/share/man/man1/gpusetup-apply.1.gz").exists()
    assert "_python_argcomplete" in host.path("/usr/share/bash-completion/completions/gpusetup").read_text()
    told = json.loads(host.ssh("gpusetup", "--version", "--format", "json").stdout)
    assert told["install"] == "deb"
    assert told["python"].startswith(python)
    assert told["libraries"]["ansible-runner"]  # what is optional elsewhere came along
    host.ssh("apt-get", "purge", "-y", "-qq", "--autoremove", "gpusetup", timeout=300)
    assert host.ssh("dpkg-query", "-W", "-f", "${Package}\n").stdout == before
    assert not host.path("/usr/lib/gpusetup").exists()


def test_an_rpm_on_a_stand_in_of_enterprise_linux(lab_hosts, tmp_path):
    made = built(tmp_path, "rpm", "3.11")
    (host,) = lab_hosts(flavour="rocky9-like", machine="t4")
    shutil.copy(made, host.path("/root"))
    # Its Python and ssh are Debian's: rpm knows nothing of them.
    host.ssh("rpm", "-i", "--nodeps", f"/root/{made.name}", timeout=300)
    assert "driver" in answered(host, "gpusetup")
    assert host.ssh("gpusetup", "--version", "--verbose").stdout.splitlines()[0].startswith("gpusetup 0.1.0, rpm: ")
    host.ssh("rpm", "-e", "gpusetup", timeout=300)
    assert not host.path("/usr/lib/gpusetup").exists()
    assert not host.path("/usr/bin/gpusetup").is_symlink()


def test_the_single_file_needs_nothing_but_python(lab_hosts, tmp_path):
    made = built(tmp_path, "single", "3.11")
    (host,) = lab_hosts(flavour="debian12", machine="t4")
    shutil.copy(made, host.path("/root"))
    assert "No module named" in host.ssh("python3", "-m", "pip", "--version", check=False).stderr
    assert "driver" in answered(host, f"/root/{made.name}")
    assert ", single file: /root/.cache/gpusetup/" in host.ssh(f"/root/{made.name}", "--version", "--verbose").stdout
    assert "T4" in looked(host, f"/root/{made.name}")
