"""An Arm server: a real arm64 Debian, whose programs qemu runs, under Ubuntu's name; stand-in packages and a simulated GH200."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.flavours import UBUNTU_KERNELS
from tests.lab.lifecycle import CONFIGURATION, drift, host_of
from tests.lab.plays import present


@pytest.mark.slow
@pytest.mark.emulated
def test_a_grace_hopper_host_from_a_fresh_image_and_back(lab, wishes):
    variables = {
        **wishes, "gpusetup_components": '["driver", "cuda"]', "gpusetup_driver": "580.178.04", "gpusetup_cuda": "13.0.2",
    }  # fmt: skip
    host, inventory = lab.one(variables, flavour="ubuntu2404-arm64-like", machine="gh200")
    before = present(host, *CONFIGURATION)
    assert host.ssh("dpkg", "--print-architecture").stdout == "arm64\n"

    first = apply(lab.folder, inventory)
    assert (first.code, host_of(first)["state"]) == (0, "done"), first.out + first.err
    assert host_of(first)["stack"]["driver"]["module"] == "open", "the only one that knows this GPU"
    sources = host.ssh("sh", "-c", "cat /etc/apt/sources.list.d/*").stdout
    assert "/ubuntu2404/sbsa" in sources
    assert "x86_64" not in sources
    assert (
        host.ssh("modinfo", "-F", "vermagic", "-k", UBUNTU_KERNELS["noble"], "nvidia").stdout.split()[-1] == "aarch64"
    )
    assert host.ssh("nvidia-smi", "-L").stdout.startswith("GPU 0: NVIDIA GH200")

    again = apply(lab.folder, inventory)
    assert (again.code, host_of(again)["state"], host_of(again)["changed"]) == (0, "unchanged", 0), again.out
    assert drift(lab.folder, inventory)[1] == {}

    removed = gpusetup(lab.folder, "remove", inventory, "--yes", "--format", "json")
    assert host_of(removed)["left_over"] == {}, removed.out + removed.err
    assert present(host, *CONFIGURATION) == before
