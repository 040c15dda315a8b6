"""The package of `export handover kubernetes --lock` on a real host: its steps in NodeWright's order, by a stand-in of its agent.

Real are the host, its packages, the reboot and every step; there is no cluster, and no container that carries the package.
"""

import json
import shutil

import pytest

from tests.lab.applying import gpusetup
from tests.lab.bootstrapping import serve_bundle
from tests.lab.lifecycle import lock
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages

PLACE = "/etc/skyhook/packages/gpusetup"


class Agent:
    """Runs a mode's steps on the host, with the environment that NodeWright's agent gives them, and judges their exit codes."""

    def __init__(self, host):
        self.host = host
        self.modes = json.loads(host.path(f"{PLACE}/config.json").read_text())["modes"]

    def run(self, *modes):
        for mode in modes:
            for step in self.modes[mode]:
                program = f"{PLACE}/skyhook_dir/{step['path']}"
                done = self.host.ssh("env", f"SKYHOOK_DIR={PLACE}", f"STEP_ROOT={PLACE}/skyhook_dir", program, check=False, timeout=900)  # fmt: skip
                if done.returncode not in step["returncodes"]:
                    return f"{mode}: exit {done.returncode}: {done.stdout}{done.stderr}"
        return ""


@pytest.mark.slow
def test_a_node_comes_to_the_lock_reboots_verifies_and_goes_back(lab_hosts, lab_repositories, tmp_path):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    made = gpusetup(
        tmp_path, "export", "handover", "kubernetes", "--lock", lock(tmp_path, "580", "t4", "debian12"), "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert made.code == 0, made.err
    shutil.copytree(tmp_path / "out/node", host.path(PLACE))
    host.path(f"{PLACE}/configmaps").mkdir()
    shutil.copy(tmp_path / "580.lock.json", host.path(f"{PLACE}/configmaps/gpu.lock.json"))
    variables = {**lab_repositories.variables, "gpusetup_simulated_root": SIMULATED_ROOT}
    host.path(f"{PLACE}/configmaps/variables.json").write_text(json.dumps(variables))
    agent, before = Agent(host), packages(host)
    assert "bundle --controller-only" in agent.run("apply"), "an image without gpusetup says what is missing"

    shutil.copytree(serve_bundle().folder, host.path(f"{PLACE}/bundle"))
    assert agent.run("apply", "apply-check") == ""
    assert "no apply is on record" in agent.run("config-check")
    assert agent.run("config", "config-check") == ""
    host.reboot()
    assert agent.run("post-interrupt-check") == ""
    there = packages(host)
    assert agent.run("apply", "apply-check", "config", "config-check", "post-interrupt-check") == "", "a second time"
    assert packages(host) == there != before

    other = lock(tmp_path, "570", "t4", "debian12")
    shutil.copy(other, host.path(f"{PLACE}/configmaps/gpu.lock.json"))
    assert "driver 580." in agent.run("config-check"), "a changed lock is not yet applied"
    assert "still there" in agent.run("uninstall-check")
    assert agent.run("uninstall", "uninstall-check") == ""
    driver = {name for name in there if "nvidia" in name}
    assert not driver & set(packages(host))
