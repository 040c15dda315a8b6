"""Two toolkits side by side: NVIDIA's packages are stand-ins, alternatives, apt and Lmod are Debian's own."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.plays import files_below, packages

PLACES = ("/etc/lmod", "/etc/profile.d", "/etc/ld.so.conf.d", "/usr/local")


def nvcc(host, before="true"):
    """The release that a login shell finds."""
    said = host.ssh("bash", "-lc", f"{before} && nvcc --version").stdout
    return str(said).partition("release ")[2].partition(",")[0]


@pytest.mark.slow
def test_two_toolkits_one_less_and_none(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    host.ssh("sh", "-c", "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y lmod")
    untouched = packages(host), files_below(host, *PLACES)

    def wanted(toolkits):
        return lab.asking(host, gpusetup_components='["driver", "cuda"]', gpusetup_cuda=toolkits)

    both = wanted('["12.9", "13.0"]')
    apply(lab.folder, both).well()
    assert nvcc(host) == "12.9"
    assert nvcc(host, "module load cuda/13.0") == "13.0"
    assert nvcc(host, "module load cuda/13.0 && module load cuda/12.9") == "12.9"
    assert "manual" in host.ssh("update-alternatives", "--query", "cuda").stdout
    lab.unchanged(both)

    host.ssh("update-alternatives", "--set", "cuda", "/usr/local/cuda-13.0")
    drift = gpusetup(lab.folder, "drift", both, "--format", "json")
    assert "cuda-default" in drift.out, drift.out
    apply(lab.folder, both).well()
    assert nvcc(host) == "12.9"

    kept = host.path("/etc/lmod/modules/cuda/12.9.lua").stat().st_mtime_ns
    one = wanted('["12.9"]')
    apply(lab.folder, one).well()
    assert not [name for name in packages(host) if name.endswith("-13-0")]
    assert nvcc(host) == "12.9"
    apply(lab.folder, wanted('["12.9", "13.0"]')).well()
    assert nvcc(host, "module load cuda/13.0") == "13.0"
    assert host.path("/etc/lmod/modules/cuda/12.9.lua").stat().st_mtime_ns == kept

    lab.removed(both)
    assert (packages(host), files_below(host, *PLACES)) == untouched
