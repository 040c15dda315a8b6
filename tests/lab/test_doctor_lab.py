"""The doctor on a real host that is made sick: packages, DKMS, headers, initramfs and services are real, the GPU is not."""

import json
from typing import Any

import pytest

from gpusetup.cli.main import main

NAMES = (
    "nvidia-driver-580-open", "nvidia-dkms-580-open", "nvidia-utils-580", "libnvidia-compute-580", "libnvidia-gl-580",
    "nvidia-compute-utils-580", "nvidia-kernel-common-580", "nvidia-fabricmanager",
)  # fmt: skip

TOKEN = "hf_planted0planted0planted0"


class Sick:
    """A host that is made sick, and what the doctor says of it through an inventory."""

    def __init__(self, host, inventory, repositories, capsys):
        self.host, self._inventory, self._capsys = host, inventory, capsys
        host.use(repositories)
        self.shell("apt-get update")

    def shell(self, script, *, check=True):
        done = self.host.ssh("sh", "-c", script, check=check, timeout=300)
        return done.stdout + done.stderr

    def install(self, version):
        packages = " ".join(f"{name}={version}" for name in NAMES)
        self.shell(f"DEBIAN_FRONTEND=noninteractive apt-get install -y --allow-downgrades {packages}")

    def expect(self, *causes, evidence=""):
        """Ask the doctor; it must name one of these causes (an empty one: healthy) with these words of evidence."""
        code = main(["doctor", str(self._inventory), "--format", "json"])
        document = json.loads(self._capsys.readouterr().out)
        assert document["failures"] == {}, document
        found: dict[str, Any] = document["hosts"][self.host.name]
        assert found["simulated"] is True
        told = found["cause"]["cause"] if found["cause"] else ""
        assert told in causes, found
        assert code == (8 if told else 0)
        assert not told or evidence in "\n".join(found["cause"]["evidence"]), found
        return found


@pytest.fixture
def sick(lab_hosts, lab_inventory, lab_repositories, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))

    def make(machine):
        (host,) = lab_hosts(flavour="ubuntu2404-like", machine=machine)
        return Sick(host, lab_inventory([host]), lab_repositories, capsys)

    return make


def test_what_a_host_loads(sick, tmp_path):
    made = sick("h200-x8-nvswitch")
    made.expect("driver-not-installed")

    made.install("580.159.04-0ubuntu1")
    made.expect("nouveau-in-use", "nvml-driver-not-loaded")

    made.shell("update-initramfs -u")
    made.host.reboot()
    made.shell("systemctl enable --now nvidia-fabricmanager")
    made.expect("")

    made.shell("systemctl stop nvidia-fabricmanager")
    made.expect("fabric-service-failed")
    made.shell("systemctl start nvidia-fabricmanager")
    made.expect("")

    # What every session is given hides the driver's library; a token beside it must not travel.
    made.host.path("/etc/environment").write_text(f"HF_TOKEN={TOKEN}\nLD_LIBRARY_PATH=/usr/local/cuda/compat\n")
    made.shell(
        "mkdir -p /usr/local/cuda/compat && cd /usr/local/cuda/compat && touch libcuda.so.535.104.05 && "
        "ln -sf libcuda.so.535.104.05 libcuda.so.1"
    )
    made.expect("compat-shadows-driver", evidence="/usr/local/cuda/compat/libcuda.so.535.104.05")
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if TOKEN in path.read_text(errors="replace")] == []
    made.shell("rm -r /etc/environment /usr/local/cuda")

    # A wheel that has no code for this GPU, where a machine-wide Python finds it.
    wheel = "/usr/local/lib/python3.11/dist-packages/torch-1.10.0+cu113.dist-info"
    python = made.shell("ls /usr/bin/python3.*").split()[0].rsplit("/", 1)[1]
    wheel = wheel.replace("python3.11", python)
    made.shell(f"mkdir -p {wheel}")
    made.expect("no-kernel-image", evidence="sm_90")
    made.shell(f"rm -r {wheel}")

    # The packages move on under the loaded module; a restart mends it.
    made.install("580.178.04-0ubuntu1")
    made.expect("nvml-version-mismatch", evidence="580.159.04")
    made.host.reboot()
    made.expect("fabric-service-failed")  # the package's own script switched its service off at the upgrade
    made.shell("systemctl enable --now nvidia-fabricmanager")
    made.expect("")


def test_what_a_host_builds_and_boots(sick):
    made = sick("t4")
    made.install("580.178.04-0ubuntu1")
    made.shell("update-initramfs -u")
    made.host.reboot()
    made.expect("")

    # The next kernel package brings a module that does not compile: the compiler's own words are told.
    kernel = made.shell("ls /lib/modules").split()[0]
    made.shell("dkms remove nvidia/580.178.04 --all")
    made.host.break_packages("dkms-build", "fail")
    broken = made.shell(f"dkms install nvidia/580.178.04 -k {kernel} || dkms add nvidia/580.178.04; "
                         f"dkms install nvidia/580.178.04 -k {kernel}", check=False)  # fmt: skip
    assert "make.log" in broken, broken
    made.host.reboot()
    found = made.expect("dkms-build-failed", "dkms-kernel-too-new", evidence="pci_resize_resource")
    assert any("error: " in line for line in found["cause"]["evidence"]), found
    made.host.break_packages("dkms-build", "")
    made.shell(f"dkms install nvidia/580.178.04 -k {kernel}")
    made.host.reboot()
    made.expect("")

    # The module and the headers go away, as after a kernel update that DKMS could not follow.
    made.shell(
        f"rm -f $(find /lib/modules/{kernel} -name 'nvidia*.ko*'); mv /lib/modules/{kernel}/build /root/; depmod {kernel}; "
        f"rm -rf /var/lib/dkms/nvidia/*/{kernel} /var/lib/dkms/nvidia/*/build /var/lib/dkms/nvidia/kernel-{kernel}*"
    )
    made.host.reboot()
    made.expect("dkms-headers-missing", evidence=kernel)

    # nouveau comes back with the initramfs once nothing keeps it out, and a module is there again.
    made.shell(f"mv /root/build /lib/modules/{kernel}/")
    made.shell(f"dkms install nvidia/580.178.04 -k {kernel} --force")
    made.shell("grep -rl nouveau /etc/modprobe.d /usr/lib/modprobe.d | xargs -r rm; update-initramfs -u", check=False)
    made.host.reboot()
    made.expect("nouveau-in-use", evidence="initramfs carries nouveau")
