"""Debian's own packages for real: the driver compiled by DKMS, CuPy from the index, a reboot. Simulated: the GPU alone."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import builds_tiny_modules
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import files_below, kernel_of, packages

CONFIGURATION = ("/etc/apt", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/default", "/usr/local")
WISHES = {"gpusetup_source": "distro"}
BUILD = 3600
"""Seconds that a test waits for a compiled driver: four minutes on two idle cores, many times that on busy ones."""


def modules(host):
    """What the simulated kernel has loaded."""
    return host.path(f"{SIMULATED_ROOT}/proc/modules").read_text()


@pytest.mark.long
def test_debian_12_from_a_fresh_image_to_a_second_run_that_changes_nothing(lab_hosts, lab_inventory, tmp_path):
    """The driver is compiled, which takes some four minutes; the CUDA libraries come as wheels."""
    (host,) = lab_hosts(flavour="debian12-bare", machine="t4", network="mirror")
    inventory = lab_inventory([host], {**WISHES, "gpusetup_components": '["driver", "cuda", "cupy"]'})
    before = host.boot_id()
    assert "nouveau" in modules(host)

    first = apply(tmp_path, inventory, timeout=BUILD).well()
    outcome = first.hosts[host.name]
    assert (outcome["state"], outcome["simulated"]) == ("done", True)
    driver, kernel = outcome["stack"]["driver"], kernel_of(host)

    module = host.ssh("modinfo", "-k", kernel, "nvidia-current").stdout
    assert f"version:        {driver['version']}" in module
    assert f"vermagic:       {kernel} " in module
    assert ("MIT" in module) == (driver["module"] == "open")
    assert host.boot_id() != before
    assert "nouveau" not in modules(host)
    unpack = f"unmkinitramfs /boot/initrd.img-{kernel} /tmp/i && cat $(find -L /tmp/i -path '*modprobe.d*' -type f)"
    assert "blacklist nouveau" in host.ssh("sh", "-c", unpack).stdout
    log = host.ssh("sh", "-c", "cat /var/lib/gpusetup/jobs/packages-*/log").stdout
    assert "$ apt-get" in log
    assert "apt-get -q update" not in log, "the lists of the look are not fetched once more"
    held = host.ssh("apt-mark", "showhold").stdout.split()
    assert {"nvidia-kernel-dkms", "libcuda1", "nvidia-smi"} <= set(held) or driver["module"] == "open"
    cupy = host.ssh("/opt/gpusetup/bin/python", "-c", "import cupy; print(cupy.__version__)").stdout.strip()
    assert cupy == outcome["stack"]["cupy"]["version"]

    checks = {check["id"]: check["verdict"] for check in outcome["checks"]}
    assert checks
    assert "fail" not in checks.values()
    # Without a GPU nothing that needs one may pass.
    smi = [verdict for identity, verdict in checks.items() if identity.startswith(("smoke.", "cupy", "smi"))]
    assert "pass" not in smi, checks

    second = apply(tmp_path, inventory).well()
    assert second.hosts[host.name]["state"] == "unchanged"
    assert second.hosts[host.name]["changed"] == 0
    assert second.operations <= 5


@pytest.mark.slow
def test_debian_13_works_or_is_refused_or_is_left_as_it_was(lab_hosts, lab_inventory, tmp_path):
    """Kernels and packagings move on: which of the three it is today is printed, not asserted."""
    (host,) = lab_hosts(flavour="debian13-bare", machine="t4", network="mirror")
    inventory = lab_inventory([host], {**WISHES, "gpusetup_components": '["driver"]'})
    before, files = packages(host), files_below(host, *CONFIGURATION)
    done = apply(tmp_path, inventory, timeout=BUILD)
    outcome = done.hosts[host.name]
    if outcome["state"] == "done":
        version = outcome["stack"]["driver"]["version"]
        built = host.ssh("find", f"/lib/modules/{kernel_of(host)}/updates/dkms", "-name", "nvidia*.ko*").stdout.split()
        assert version in {host.ssh("modinfo", "-F", "version", path).stdout.strip() for path in built}
        assert apply(tmp_path, inventory).hosts[host.name]["state"] == "unchanged"
        return
    assert packages(host) == before
    assert files_below(host, *CONFIGURATION) == files
    if outcome["state"] == "refused":
        assert done.code in {4, 5}
        (said,) = outcome["refusals"]
    else:
        assert (done.code, outcome["state"]) == (7, "failed")
        said = outcome["failure"]
    assert said["message"]
    assert said["hint"]


@pytest.mark.slow
def test_debians_own_toolkit_once_for_real(lab_hosts, lab_inventory, tmp_path):
    """1.6 GB to download, 5.5 GB on disk."""
    (host,) = lab_hosts(flavour="debian12", machine="t4", network="mirror")
    variables = {**WISHES, "gpusetup_components": '["driver", "cuda"]', "gpusetup_cuda_from": "packages"}
    inventory = lab_inventory([host], variables)
    builds_tiny_modules(host)
    before = packages(host)
    first = apply(tmp_path, inventory, "--verify", "never", timeout=BUILD).well()
    cuda = first.hosts[host.name]["stack"]["cuda"]["version"]
    assert packages(host)["nvidia-cuda-toolkit"].partition("~")[2].startswith(cuda)
    assert f"release {cuda.rpartition('.')[0]}" in host.ssh("nvcc", "--version").stdout
    source = "__global__ void add(int *x) { *x += 1; } int main() { add<<<1, 1>>>(nullptr); return 0; }\n"
    host.path("/root/add.cu").write_text(source)
    # Plain nvcc takes the gcc of the kernel's headers, for which the suite's C++ compiler is too new.
    assert host.ssh("sh", "-c", "cd /root && nvcc -ccbin cuda-g++ -o add add.cu && test -x add").returncode == 0
    second = apply(tmp_path, inventory, "--verify", "never")
    assert second.hosts[host.name]["state"] == "unchanged", second.out
    removed = gpusetup(tmp_path, "remove", inventory, "--yes", "--format", "json")
    assert removed.code == 9, removed.out + removed.err  # the module stays loaded until somebody reboots
    assert removed.hosts[host.name]["left_over"] == {}, removed.out
    assert packages(host) == before
