"""Prebuilt kernel modules on hosts of three families, and the way to DKMS and back; packages are stand-ins (README.md)."""

import pytest

from tests.lab.applying import apply
from tests.lab.lifecycle import drift, rpms
from tests.lab.plays import files_below, packages

pytestmark = pytest.mark.slow
VERSION = "580.142"
PLACES = ("/etc/modprobe.d", "/etc/modules-load.d", "/etc/yum.repos.d", "/etc/zypp/repos.d", "/etc/dnf/modules.d")


def signer(host):
    kernel = host.ssh("sh", "-c", "ls /lib/modules | head -1").stdout.strip()
    return str(host.ssh("modinfo", "-k", kernel, "-F", "signer", "nvidia").stdout.strip())


def dkms(host):
    return str(host.ssh("sh", "-c", "command -v dkms >/dev/null && dkms status nvidia || true").stdout.strip())


def works(host):
    assert VERSION in host.ssh("nvidia-smi").stdout


def by_module(lab, host, **more):
    """Inventories of the same driver, which differ in how its module comes."""
    return lambda module: lab.asking(host, gpusetup_module=module, gpusetup_driver=f"=={VERSION}", **more)


def test_red_hats_kernel_by_the_stream_with_precompiled_modules(lab):
    (host,) = lab.hosts(flavour="rhel9-like", machine="t4")
    before = rpms(host), files_below(host, *PLACES)
    epel = lab.repositories.beside("epel-stand-in", f"{lab.repositories.rocky}/epel")
    wanted = by_module(lab, host, **epel)

    apply(lab.folder, wanted("prebuilt")).well()
    now = rpms(host)
    assert now[f"kmod-nvidia-{VERSION}-5.14.0-570.12.1"] == f"{VERSION}-3.el9_6"
    assert {"dnf-plugin-nvidia", "nvidia-driver-cuda"} <= set(now)
    assert not {"dkms", "kernel-devel", "gcc"} & set(now), "nothing is there that would compile"
    assert "stream=580\n" in host.path("/etc/dnf/modules.d/nvidia-driver.module").read_text()
    assert signer(host) == "Lab stand-in for NVIDIA"
    works(host)
    lab.settled(wanted("prebuilt"))

    apply(lab.folder, wanted("dkms")).well()
    now = rpms(host)
    assert "kmod-nvidia-latest-dkms" in now or "kmod-nvidia-open-dkms" in now
    assert not [name for name in now if name.startswith("kmod-nvidia-5")]
    assert VERSION in dkms(host)
    works(host)
    assert drift(lab.folder, wanted("dkms"))[1] == {}

    lab.rolled_back(wanted("dkms"))
    assert f"kmod-nvidia-{VERSION}-5.14.0-570.12.1" in rpms(host)

    lab.removed(wanted("prebuilt"))
    assert (rpms(host), files_below(host, *PLACES)) == before


def test_suses_signed_modules(lab):
    (host,) = lab.hosts(flavour="leap15-like", machine="t4")
    before, wanted = (rpms(host), files_below(host, *PLACES)), by_module(lab, host)

    apply(lab.folder, wanted("prebuilt")).well()
    now = rpms(host)
    assert now["nvidia-open-driver-G06-signed-cuda-kmp-default"] == f"{VERSION}_k6.4.0_150600.23.25-1"
    assert not {"dkms", "kernel-default-devel", "gcc", "nvidia-open-driver-G06"} & set(now)
    assert signer(host) == "Lab stand-in for SUSE"
    works(host)
    lab.unchanged(wanted("prebuilt"))
    apply(lab.folder, wanted("dkms")).well()
    assert "nvidia-open-driver-G06" in rpms(host)
    assert "nvidia-open-driver-G06-signed-cuda-kmp-default" not in rpms(host)
    works(host)
    lab.removed(wanted("dkms"))
    assert (rpms(host), files_below(host, *PLACES)) == before


def test_ubuntus_archive_from_signed_modules_to_dkms_and_back(lab):
    (host,) = lab.hosts(flavour="ubuntu2404-like", machine="t4")
    before = packages(host)

    def wanted(module):
        wish = {
            "gpusetup_source": "distro", "gpusetup_components": '["driver"]', "gpusetup_driver": f"=={VERSION}",
            "gpusetup_module": module,
        }  # fmt: skip
        return lab.inventory([host], wish)

    apply(lab.folder, wanted("auto")).well()
    assert "linux-modules-nvidia-580-server-open-generic" in packages(host)
    assert signer(host) == "Lab stand-in for Canonical"
    works(host)
    apply(lab.folder, wanted("dkms")).well()
    now = packages(host)
    assert "nvidia-dkms-580-server-open" in now
    assert not [name for name in now if name.startswith("linux-modules-nvidia")]
    works(host)
    lab.rolled_back(wanted("dkms"))
    assert "nvidia-dkms-580-server-open" not in packages(host)
    lab.removed(wanted("auto"))
    assert packages(host) == before
