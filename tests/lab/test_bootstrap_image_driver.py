"""An image that brings a driver: it stays when nobody asked for another one and everything goes with it, else it is replaced."""

import pytest

from tests.lab.bootstrapping import first_boot, user_data, wait_for_end
from tests.lab.plays import loaded, packages

pytestmark = pytest.mark.slow
OWN = "570.211.01"


@pytest.fixture
def machine(lab_hosts, lab_repositories):
    """As a cloud's image is: driver from NVIDIA's repository, loaded, nothing of gpusetup."""
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    key, source = "/usr/share/keyrings/cuda-archive-keyring.asc", "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
    host.path(key).write_text(lab_repositories.armored)
    host.path(source).write_text(f"deb [signed-by={key}] {lab_repositories.url('debian12')} /\n")
    names = ("libcuda1", "nvidia-smi", "nvidia-persistenced", "nvidia-kernel-support", "nvidia-driver-cuda",
             "nvidia-kernel-open-dkms")  # fmt: skip
    host.ssh("apt-get", "update", "-qq")
    host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq",
             *(f"{name}={OWN}-1" for name in names), timeout=600)  # fmt: skip
    host.path("/etc/modprobe.d/image.conf").write_text("blacklist nouveau\n")
    host.ssh("update-initramfs", "-u", timeout=300)
    host.reboot()
    assert OWN in loaded(host)
    return host


def test_the_images_driver_stays(machine, lab_repositories, bundle):
    before = packages(machine)
    first_boot(machine, user_data(bundle, lab_repositories, wish=("driver", "--gpu", "t4", "--os", "debian12")))
    end = wait_for_end(machine)
    assert (end["state"], end["reboots"]) == ("done", []), end
    assert OWN in loaded(machine)
    assert packages(machine) == before


def test_the_images_driver_is_replaced_when_another_one_is_asked_for(machine, lab_repositories, bundle):
    first_boot(machine, user_data(bundle, lab_repositories))
    end = wait_for_end(machine)
    assert (end["state"], len(end["reboots"])) == ("done", 1), end
    assert "580." in loaded(machine)
    assert not [name for name, version in packages(machine).items() if version.startswith(OWN)]
