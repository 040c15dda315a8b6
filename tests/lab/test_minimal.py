"""Images that lack what one expects everywhere."""

from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import host_of
from tests.lab.plays import packages


def test_without_sudo_lspci_curl_and_venv(lab):
    """Root by key is enough; the GPU is found without lspci, keys are fetched without curl; kernel headers are not offered here."""
    (host,) = lab.hosts(flavour="debian12-minimal", machine="t4")
    for program in ("sudo", "lspci", "curl", "gpg", "gcc"):
        assert host.ssh("which", program, check=False).returncode == 1, program
    before = packages(host)
    inventory = lab.asking(host, gpusetup_driver="580.*")
    seen = gpusetup(lab.folder, "facts", inventory, "--format", "json").well()
    assert [gpu["name"] for gpu in seen.hosts[host.name]["gpus"]], seen.out
    refused = apply(lab.folder, inventory)
    assert refused.code == 5, refused.out + refused.err
    assert "linux-headers" in str(host_of(refused)["refusals"])
    assert packages(host) == before
