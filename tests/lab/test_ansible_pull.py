"""ansible-pull with our roles from a site's repository, as the guide has it: no gpusetup on the machine, no SSH to it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.content import content_path
from tests.lab import network
from tests.lab.bootstrapping import ROOT, serve_bundle
from tests.lab.places import REPOSITORIES, SIMULATED_ROOT
from tests.lab.plays import packages

pytestmark = pytest.mark.slow
NAME = "ansible-pull-site.git"


def site(folder, repositories):
    """A repository with our collection, a playbook and the variables of a stack, served as any web server can."""
    work = folder / "site"
    work.mkdir()
    galaxy = [Path(sys.executable).with_name("ansible-galaxy"), "collection", "install", "--force", content_path()]
    subprocess.run([*galaxy, "-p", "collections"], cwd=work, check=True)
    (work / "ansible.cfg").write_text("[defaults]\ncollections_path = collections\n")
    (work / "site.yml").write_text("- ansible.builtin.import_playbook: gpusetup.stack.apply\n")
    argv = [sys.executable, "-m", "gpusetup", "lock", "driver==580.*", "--gpu", "t4", "--os", "debian12", "--vars",
            "--source", repositories.base]  # fmt: skip
    stack = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)
    # The lab signs with a key of its own.
    stack["gpu_repo_sources"][0]["key"] = {"fingerprints": [repositories.fingerprint], "armored": repositories.armored}
    stack["gpu_simulated_root"] = SIMULATED_ROOT
    # In the inventory: ansible-pull reads -e @FILE before there is a checkout, and an imported playbook sees no group_vars beside the importing one.
    variables = work / "inventory" / "group_vars" / "all.json"
    variables.parent.mkdir(parents=True)
    (work / "inventory" / "hosts").write_text("localhost\n")
    variables.write_text(json.dumps(stack))
    git = ["git", "-c", "user.name=site", "-c", "user.email=site@example.org", "-C", work]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "site"]):
        subprocess.run([*git, *words], check=True)
    served = REPOSITORIES / NAME
    shutil.rmtree(served, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, served], check=True)
    subprocess.run(["git", "-C", served, "update-server-info"], check=True)
    return f"{network.REPOSITORY_URL}/{NAME}"


def test_a_machine_pulls_its_stack(lab_hosts, lab_repositories, tmp_path):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4", network="mirror")
    url, bundle = site(tmp_path, lab_repositories), serve_bundle()
    host.ssh("apt-get", "update", "-qq", timeout=300)
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "git", timeout=600)
    host.ssh("python3", "-m", "venv", "/opt/ansible", timeout=300)
    wheels = host.path("/root/wheels")
    shutil.copytree(bundle.folder / "wheels", wheels)
    host.ssh("/opt/ansible/bin/pip", "install", "-q", "--no-index", "--find-links", "/root/wheels", "ansible-core",
             timeout=600)  # fmt: skip
    # A folder of files behind a plain web server has no shallow clones: --full.
    options = ("-U", url, "--full", "-i", "inventory", "-c", "local")
    pull = ["/opt/ansible/bin/ansible-pull", *options, "site.yml"]
    first = host.ssh("env", "LC_ALL=C.UTF-8", *pull, timeout=1200)
    assert "failed=0" in first.stdout, first.stdout[-2000:]
    assert packages(host)["nvidia-driver-cuda"].startswith("580.")
    host.reboot()
    assert "580." in host.ssh("cat", f"{SIMULATED_ROOT}/proc/driver/nvidia/version").stdout
    second = host.ssh("env", "LC_ALL=C.UTF-8", *pull, timeout=1200)
    assert "failed=0" in second.stdout
    assert re.search(r"localhost +: ok=\d+ +changed=0 ", second.stdout), second.stdout[-2000:]
