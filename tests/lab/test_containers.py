"""GPUs in containers: Debian's real docker.io, containerd and podman; the driver and nvidia-ctk are stand-ins.

docker cannot start a container here (the lab's hosts may not make networks): there its daemon is asked. podman runs one.
"""

import json

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import stand_ins
from tests.lab.plays import files_below, measured, packages
from tests.stored import stored

SETTINGS = ("/etc/docker", "/etc/containerd", "/etc/containers", "/etc/cdi", "/etc/systemd/system")
RUNTIMES = stored("containers_runtimes.txt")
IN_A_CONTAINER = ("podman", "run", "--rm", "--network", "host")
LIST_DEVICES = ("tiny", "/bin/busybox", "ls", "/dev")


def wish(repositories, runtimes):
    toolkit = repositories.beside("toolkit", f"{repositories.container_toolkit}/deb/amd64/")
    return stand_ins(repositories, gpusetup_driver="==580.142", gpusetup_containers=json.dumps(runtimes), **toolkit)


def dump(host):
    return [line for line in host.ssh("containerd", "config", "dump").stdout.splitlines() if "imports" not in line]


@pytest.mark.slow
def test_containers_get_the_gpus_and_nobody_loses_anything(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4-x4", network="mirror")
    host.ssh("sh", "-c", RUNTIMES)
    before = files_below(host, *SETTINGS), packages(host), dump(host)
    inventory = lab.inventory([host], wish(lab.repositories, ["docker", "containerd", "podman"]))
    apply(lab.folder, inventory).well()

    assert "nvidia" in host.ssh("docker", "info", "--format", "{{json .Runtimes}}").stdout
    assert [line for line in before[2] if line not in dump(host)] == []
    assert 'BinaryName = "/usr/bin/nvidia-container-runtime"' in "\n".join(dump(host))
    devices = [f"nvidia{number}" for number in range(4)]
    listed = host.ssh(*IN_A_CONTAINER, "--device", "nvidia.com/gpu=all", *LIST_DEVICES).stdout
    assert [name for name in listed.split() if name.startswith("nvidia")] == devices

    tried = measured(host, "import container; print(json.dumps(container.look('podman', '/root/measure')))")
    assert (tried["way"], tried["devices"], tried["error"]) == ("cdi", devices, None)
    assert "<none>" not in host.ssh("podman", "images", "--format", "{{.Repository}}").stdout

    lab.unchanged(inventory)
    gpusetup(lab.folder, "drift", inventory, "--format", "json").well()

    all_three = files_below(host, *SETTINGS), packages(host), dump(host)
    apply(lab.folder, lab.inventory([host], wish(lab.repositories, ["podman"]))).well()
    assert dump(host) == before[2]
    assert "nvidia" not in host.ssh("docker", "info", "--format", "{{json .Runtimes}}").stdout
    assert "nvidia0" in host.ssh(*IN_A_CONTAINER, "--device", "nvidia.com/gpu=all", *LIST_DEVICES).stdout

    lab.rolled_back(inventory)
    assert (files_below(host, *SETTINGS), packages(host), dump(host)) == all_three
    assert "nvidia" in host.ssh("docker", "info", "--format", "{{json .Runtimes}}").stdout

    assert lab.removed(inventory).code == 9  # the driver's module stays loaded until the next boot
    assert (files_below(host, *SETTINGS), packages(host), dump(host)) == before
    assert not host.path("/run/cdi/nvidia.yaml").exists()
    assert "nvidia" not in host.ssh(*IN_A_CONTAINER, *LIST_DEVICES).stdout
