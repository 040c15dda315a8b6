"""Images that lack what one expects everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import host_of, stand_ins
from tests.lab.plays import packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories


def test_without_sudo_lspci_curl_and_venv(
    lab_hosts: Callable[..., list[Host]],
    lab_inventory: Callable[..., Path],
    lab_repositories: Repositories,
    tmp_path: Path,
) -> None:
    """Root by key is enough; the GPU is found without lspci, keys are fetched without curl; kernel headers are not offered here."""
    (host,) = lab_hosts(flavour="debian12-minimal", machine="t4")
    for program in ("sudo", "lspci", "curl", "gpg", "gcc"):
        assert host.ssh("which", program, check=False).returncode == 1, program
    before = packages(host)
    inventory = lab_inventory([host], stand_ins(lab_repositories, gpusetup_driver="580.*"))
    seen = gpusetup(tmp_path, "facts", inventory, "--format", "json")
    assert seen.code == 0, seen.err
    assert [gpu["name"] for gpu in seen.hosts[host.name]["gpus"]], seen.out
    refused = apply(tmp_path, inventory)
    assert refused.code == 5, refused.out + refused.err
    assert "linux-headers" in str(host_of(refused)["refusals"])
    assert packages(host) == before
