"""The packages of `./dev release`: what is in them, and where people install them: Debian's own apt, rpm (a stand-in of
Enterprise Linux), a machine that has nothing but Python, a container."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpusetup_fleet.supply.cyclonedx import VERSION
from tests.lab import machine
from tests.lab.places import SIMULATED_ROOT
from tests.lab.process import run
from tests.lab.roots import ROOTS
from tools.release.__main__ import PROGRAMS
from tools.release.bills import SUFFIX

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
INVENTORY = f"localhost ansible_connection=local gpusetup_simulated_root={SIMULATED_ROOT}\n"
INSTALLED = """
import json, re
from importlib.metadata import distributions
print(json.dumps({re.sub("[-_.]+", "-", item.metadata["Name"]).lower(): item.version for item in distributions()}))
"""
QUESTION = ("matrix", "torch==2.6.*", "--gpu", "v100")


def release(folder, *words, **environment):
    """Build; return the packages by their name, each with its bill beside it."""
    argv = [sys.executable, "-m", "tools.release", *words, "--out", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **environment})
    made = {path.name: path for path in folder.iterdir() if not path.name.endswith(SUFFIX)}
    assert {path.name for path in folder.iterdir()} == {name + end for name in made for end in ("", SUFFIX)}
    return made


def built(folder, kind, python):
    (made,) = release(folder, kind, "--python", python).values()
    return made


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def bill_of(package):
    """The bill beside a package, which CycloneDX's own schema has nothing to say against."""
    text = package.with_name(package.name + SUFFIX).read_text()
    assert JsonStrictValidator(SchemaVersion.from_version(VERSION)).validate_str(text) is None
    found = json.loads(text)
    about = found["metadata"]["component"]
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(package.read_bytes()).hexdigest()}]
    return found


def names_in(package):
    if package.suffix == ".deb":
        return subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True, text=True).stdout.split()
    if package.suffix == ".rpm":
        return subprocess.run(["rpm", "-qlp", package], check=True, capture_output=True, text=True).stdout.split()
    if package.suffix == ".gz":
        with tarfile.open(package) as archive:
            return archive.getnames()
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        for name in names[:]:
            if name.startswith("wheels/gpusetup-"):
                with archive.open(name) as stream, zipfile.ZipFile(stream) as wheel:
                    names += wheel.namelist()
        return names


PAGES = (
    "man/man1/gpusetup-apply.1",
    "bash-completion/completions/gpusetup",
    "/_gpusetup",
    "vendor_completions.d/gpusetup.fish",
)


@pytest.mark.parametrize("kind", ["wheel", "collection", "single", "deb", "rpm"])
def test_the_same_commit_gives_the_same_bytes_with_a_bill_and_pages_for_people(tmp_path, kind):
    if kind in PROGRAMS and not shutil.which(PROGRAMS[kind]):
        pytest.skip(f"{PROGRAMS[kind]} is not here")
    words = (kind, "--python", "3.11") if kind in {"single", "deb", "rpm"} else (kind,)
    made = release(tmp_path / "one", *words)
    release(tmp_path / "two", *words)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    for package in made.values():
        named = {item["name"] for item in bill_of(package)["components"]}
        if kind == "collection":  # it has no command, so neither page nor completion
            assert named == set()
            continue
        if package.name.startswith("gpusetup_fleet"):  # gpusetup's wheel has them
            assert named == {"gpusetup"}
            continue
        assert "ansible-core" in named
        inside = names_in(package)
        assert [place for place in PAGES if not any(place in name for name in inside)] == []


def answered(host, *program):
    """What it says of versions, from a folder of its own, without a network."""
    return host.ssh("env", "-C", "/tmp", "LC_ALL=C.UTF-8", *program, *QUESTION, timeout=120).stdout


def looked(host, program):
    """What it sees of the host through Ansible, which came along."""
    host.path("/root/inventory.ini").write_text(INVENTORY)
    return host.ssh("env", "LC_ALL=C.UTF-8", program, "facts", "/root/inventory.ini", timeout=300).stdout


@pytest.mark.parametrize(("flavour", "python"), [("debian12", "3.11"), ("debian13", "3.13")])
def test_a_deb_is_installed_used_and_gone(lab_hosts, tmp_path, flavour, python):
    made = built(tmp_path, "deb", python)
    listed = {item["name"]: item["version"] for item in bill_of(made)["components"]}
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
    assert told["libraries"]["uvicorn"]  # what is optional elsewhere came along
    installed = host.ssh("/usr/lib/gpusetup/bin/python3", "-c", INSTALLED).stdout
    assert {**listed, "gpusetup": told["version"]} == json.loads(installed)
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


def test_an_image_is_built_listed_and_answers(lab_machine, tmp_path):
    machine.prepare({"buildah": "buildah"})
    store = tmp_path / "storage.conf"
    places = f'graphroot = "{tmp_path}/store"\nrunroot = "{tmp_path}/run"'
    store.write_text(f'[storage]\ndriver = "vfs"\n{places}\n')
    environment = {"CONTAINERS_STORAGE_CONF": str(store), "BUILDAH_ISOLATION": "chroot", "HOME": str(tmp_path)}

    def buildah(*words):
        return run(["buildah", *words], env={**os.environ, **environment}, timeout=900).stdout.strip()

    try:
        base = buildah("from", "scratch")
        buildah("copy", base, str(ROOTS["debian13"].ready()), "/")
        buildah("commit", "--quiet", base, "localhost/base:latest")
        buildah("rm", base)
        (made,) = release(tmp_path / "image", "container", "--base", "localhost/base:latest", **environment).values()
        bill = bill_of(made)
        assert {"git", "sshpass", "ansible-core"} <= {item["name"] for item in bill["components"]}
        container = buildah("from", f"oci-archive:{made}")
        asked = ("--", "gpusetup", "--version", "--format", "json")
        assert json.loads(buildah("run", container, *asked))["install"] == "deb"
        assert "driver" in buildah("run", container, "--", "gpusetup", *QUESTION)
        listed = buildah("run", container, "--", "dpkg-query", "-W", "-f", "${Package}\n").split()
        libraries = {item["name"] for item in bill["components"] if item["purl"].startswith("pkg:pypi/")}
        assert {item["name"] for item in bill["components"]} - libraries == set(listed) - {"gpusetup"}
    finally:
        shutil.rmtree(tmp_path / "store", ignore_errors=True)  # some gigabytes
