"""The roles with plain ansible-playbook on Debian hosts, with stand-ins for NVIDIA's packages and a simulated T4."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.lab.moments import installing
from tests.lab.plays import nvidia_on_debian, package, packages, play, present
from tests.lab.process import until

CONFIGURATION = (
    "/etc/apt", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/default", "/etc/profile.d", "/etc/ld.so.conf.d",
    "/usr/local",
)  # fmt: skip


def state(host):
    return json.loads(host.path("/var/lib/gpusetup/state.json").read_text())


@pytest.mark.slow
def test_from_nothing_up_down_and_back(lab):
    host, inventory = lab.one(flavour="debian12", machine="t4")
    cuda = {
        "gpu_cuda_packages": [
            package("cuda-toolkit-12-9", "12.9.*"),
            package("cuda-toolkit-13-0", "13.0.*"),
            package("libnccl2", "2.27.3-1+cuda12.9"),
            package("libcudnn9-cuda-12", "9.10.2.21-1"),
        ],
        "gpu_cuda_roots": [{"version": release, "path": f"/usr/local/cuda-{release}"} for release in ("12.9", "13.0")],
        "gpu_cuda_default": "12.9",
    }
    before = present(host, *CONFIGURATION)

    play("apply", inventory, nvidia_on_debian(lab.repositories, **cuda), "--check", "--diff").well()
    assert present(host, *CONFIGURATION) == before

    play("apply", inventory, nvidia_on_debian(lab.repositories, **cuda)).well()
    assert host.ssh("nvidia-smi", "-L").stdout.startswith("GPU 0:")
    assert host.ssh("modprobe", "-n", "-v", "-b", "nouveau", check=False).stdout == ""
    default = host.ssh("bash", "-lc", "nvcc --version && readlink -f /usr/local/cuda").stdout
    assert default.strip().endswith("/usr/local/cuda-12.9")
    assert host.ssh("systemctl", "is-active", "nvidia-persistenced").stdout == "active\n"
    again = play("apply", inventory, nvidia_on_debian(lab.repositories, **cuda))
    assert again.changed == {host.name: 0}, again.text
    assert again.operations <= 5

    moved = host.ssh("apt-get", "-s", "-o", "APT::Get::Show-Versions=0", "full-upgrade").stdout
    held = set(state(host)["holds"])
    assert {"libcuda1", "nvidia-smi", "nvidia-kernel-open-dkms", "libnccl2", "cuda-toolkit-12-9"} <= held
    assert not [line for line in moved.splitlines() if line.startswith("Inst ") and line.split()[1] in held]

    for version, flavour in (("580.178.04", "open"), ("570.211.01", "proprietary"), ("580.159.04", "open")):
        wanted = nvidia_on_debian(lab.repositories, version, flavour, **cuda)
        play("apply", inventory, wanted).well()
        assert version in host.ssh("nvidia-smi").stdout
        assert packages(host)["libcuda1"].startswith(version)
        assert (flavour == "open") == ("nvidia-kernel-open-dkms" in packages(host))
        again = play("apply", inventory, wanted)
        assert again.changed == {host.name: 0}, again.text

    host.path("/etc/modprobe.d/gpusetup-nouveau.conf").write_text("# edited\n")
    play("apply", inventory, nvidia_on_debian(lab.repositories, **cuda)).well()
    assert "blacklist nouveau" in host.path("/etc/modprobe.d/gpusetup-nouveau.conf").read_text()

    play("remove", inventory, {"gpu_package_manager": "apt"}).well()
    assert present(host, *CONFIGURATION) == before
    assert host.ssh("apt-mark", "showhold").stdout == ""
    assert "blacklist" not in host.path("/boot/grub/grub.cfg").read_text()
    assert not host.path("/var/lib/gpusetup").exists()
    assert play("remove", inventory, {"gpu_package_manager": "apt"}).changed == {host.name: 0}


def test_a_first_apply_needs_few_operations(lab):
    host, inventory = lab.one(flavour="debian12", machine="t4")
    wanted = nvidia_on_debian(lab.repositories, gpu_reboot_policy="never")
    first = play("apply", inventory, wanted).well()
    assert "reboot pending: nouveau is loaded" in first.text
    assert first.operations_without_polls <= 25, first.operations
    # A reboot that did not happen is still pending the next time: it is read from the host, not from what changed.
    second = play("apply", inventory, wanted)
    assert "reboot pending" in second.text
    host.reboot()
    assert play("apply", inventory, wanted).changed == {host.name: 0}


def test_what_is_wrong_is_refused_before_anything_changes(lab):
    host, inventory = lab.one(flavour="debian12", machine="t4")
    before = present(host, *CONFIGURATION)
    good = nvidia_on_debian(lab.repositories)
    (source,) = good["gpu_repo_sources"]

    def refused(*says, **changes):
        done = play("apply", inventory, {**good, **changes})
        assert done.code == 2, done.text
        for words in says:
            assert words in done.text
        assert present(host, *CONFIGURATION) == before

    wrong = {**source["key"], "fingerprints": [lab.repositories.wrong_fingerprint]}
    refused("GS-445", lab.repositories.fingerprint, gpu_repo_sources=[{**source, "key": wrong}])

    other = lab.repositories.with_fault("roleswrongkey", "wrong-key", "index")
    refused("GS-448", gpu_repo_sources=[{**source, "uris": [other.url("debian12") + "/"]}])
    gone = lab.repositories.with_fault("rolesgone", "404", "index")
    refused("GS-449", gpu_repo_sources=[{**source, "uris": [gone.url("debian12") + "/"]}])
    refused("GS-466", "offered: 580.178.04-1", gpu_driver_packages=[package("nvidia-driver-cuda", "580.178.99-*")])
    refused("GS-461", gpu_driver_packages=[package("nvidia-driver;reboot", "1")])
    refused("GS-472", gpu_preflight_space_mb={"/boot": 100_000_000})


def test_a_transitional_package_is_caught(lab):
    (host,) = lab.hosts(flavour="ubuntu2404-like", machine="t4")
    before = packages(host)
    wanted = {"gpu_driver_packages": [package("nvidia-driver-570")], "gpu_driver_version": "570.211.01"}
    done = play("apply", lab.inventory([host]), {"gpu_package_manager": "apt", **wanted})
    assert done.code == 2
    assert "GS-468" in done.text
    assert "belongs to branch 580, not 570" in done.text
    assert packages(host) == before


def test_a_controller_that_dies_stops_nothing_and_the_next_one_joins(lab):
    host, inventory = lab.one(flavour="debian12", machine="t4")
    wanted = nvidia_on_debian(lab.repositories, gpu_reboot_policy="never")
    host.break_packages("nvidia-smi", "sleep 12")
    controller = subprocess.Popen(
        [sys.executable, "-c", _PLAY, str(inventory), json.dumps(wanted)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    jobs = host.path("/var/lib/gpusetup/jobs")
    until(lambda: installing(host), "the package step")
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    play("apply", inventory, wanted).well()
    # Ansible's workers may outlive their parent and fetch the answer; the second run then finds everything in place.
    logs = "".join(path.read_text() for path in jobs.glob("packages-*/log*"))
    assert logs.count("APT::Status-Fd") == 1, "one transaction, not two"
    assert packages(host)["nvidia-smi"].startswith("580.159.04")


_PLAY = """
import json, sys, pathlib
from tests.lab.plays import play
play("apply", pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
"""
