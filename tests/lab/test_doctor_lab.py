"""The doctor on a real host that is made sick: packages, DKMS, headers, initramfs and services are real, the GPU is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpusetup.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

NAMES = (
    "nvidia-driver-580-open",
    "nvidia-dkms-580-open",
    "nvidia-utils-580",
    "libnvidia-compute-580",
    "libnvidia-gl-580",
    "nvidia-compute-utils-580",
    "nvidia-kernel-common-580",
    "nvidia-fabricmanager",
)


def shell(host: Host, script: str, *, check: bool = True) -> str:
    done = host.ssh("sh", "-c", script, check=check, timeout=300)
    return done.stdout + done.stderr


def install(host: Host, version: str) -> None:
    packages = " ".join(f"{name}={version}" for name in NAMES)
    shell(host, f"DEBIAN_FRONTEND=noninteractive apt-get install -y --allow-downgrades {packages}")


def test_a_host_made_sick_in_turn(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    (host,) = lab_hosts(flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    inventory = lab_inventory([host])

    def diagnosis() -> tuple[int, dict[str, Any]]:
        code = main(["doctor", str(inventory), "--format", "json"])
        document = json.loads(capsys.readouterr().out)
        assert document["failures"] == {}, document
        return code, document["hosts"][host.name]

    def expect(*causes: str) -> dict[str, Any]:
        code, found = diagnosis()
        assert found["simulated"] is True
        told = found["cause"]["cause"] if found["cause"] else ""
        assert told in causes, found
        assert code == (8 if told else 0)
        return found

    expect("driver-not-installed")

    host.path("/usr/share/keyrings/cuda.asc").write_text(lab_repositories.armored)
    host.path("/etc/apt/sources.list.d/cuda.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/cuda.asc] {lab_repositories.url('ubuntu2404')} /\n"
    )
    shell(host, "apt-get update")
    install(host, "580.159.04-0ubuntu1")
    expect("nouveau-in-use", "nvml-driver-not-loaded")

    shell(host, "update-initramfs -u")
    host.reboot()
    shell(host, "systemctl enable --now nvidia-fabricmanager")
    expect("")

    shell(host, "systemctl stop nvidia-fabricmanager")
    expect("fabric-service-failed", "fabric-not-ready")
    shell(host, "systemctl start nvidia-fabricmanager")
    expect("")

    # The packages move on under the loaded module.
    shell(host, "for f in /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.* /usr/lib/x86_64-linux-gnu/libcuda.so.580.*; do "
                'mv "$f" "${f%.580.*}.580.999.01"; done')  # fmt: skip
    mismatch = expect("nvml-version-mismatch")
    assert any("580.159.04" in line for line in mismatch["cause"]["evidence"])
    shell(host, "for f in /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.* /usr/lib/x86_64-linux-gnu/libcuda.so.580.*; do "
                'mv "$f" "${f%.580.*}.580.159.04"; done')  # fmt: skip
    expect("")

    # The module and the headers go away, as after a kernel update that DKMS could not follow.
    kernel = shell(host, "ls /lib/modules").split()[0]
    shell(
        host,
        f"rm -f $(find /lib/modules/{kernel} -name 'nvidia*.ko*'); rm -rf /lib/modules/{kernel}/build; depmod {kernel}",
    )
    shell(host, f"rm -rf /var/lib/dkms/nvidia/*/{kernel}", check=False)
    host.reboot()
    expect("dkms-headers-missing")

    # nouveau comes back with the initramfs once nothing keeps it out.
    shell(host, "grep -rl nouveau /etc/modprobe.d /usr/lib/modprobe.d | xargs -r rm; update-initramfs -u", check=False)
    host.reboot()
    found = expect("dkms-headers-missing", "nouveau-in-use", "module-not-found")
    assert found["ruled"][0]["answer"] == "fine"
