"""A local repository's package as the source: its life on hosts with apt and dnf; the package is a stand-in (README.md)."""

import hashlib

import pytest

from tests.lab import local_repository as local
from tests.lab.applying import apply
from tests.lab.lifecycle import rpms
from tests.lab.plays import files_below, packages

VERSION = "580.142"
PLACES = (
    "/etc/apt", "/etc/yum.repos.d", "/etc/pki/rpm-gpg", "/etc/dnf/modules.d", "/etc/modprobe.d", "/var/lib/gpusetup",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["debian12", "rocky9-like"])
def test_its_whole_life(flavour, lab):
    (host,) = lab.hosts(flavour=flavour, machine="t4", network="mirror" if flavour == "debian12" else "none")
    installed, make = (packages, local.debian) if flavour == "debian12" else (rpms, local.red_hat)
    before = installed(host), files_below(host, *PLACES)
    scratch = lab.folder / "scratch"
    scratch.mkdir()
    file = make(host.path("/root"), scratch, VERSION)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    epel = lab.repositories.beside("epel-stand-in", f"{lab.repositories.rocky}/epel")
    more = epel if flavour != "debian12" else {}

    def wanted(**words):
        source = {"gpusetup_source": f"/root/{file.name}", "gpusetup_components": '["driver"]', **more, **words}
        return lab.inventory([host], source)

    assert lab.refused(wanted())["reference"] == "GS-338"
    assert lab.refused(wanted(gpusetup_source_sha256="ab" * 32))["reference"] == "GS-478"
    others = lab.repositories.wrong_fingerprint
    assert lab.refused(wanted(gpusetup_source_fingerprints=others))["reference"] == "GS-445"
    assert (installed(host), files_below(host, *PLACES)) == before, "a look leaves nothing"

    proven = wanted(gpusetup_source_sha256=digest)
    apply(lab.folder, proven).well()
    assert VERSION in host.ssh("nvidia-smi").stdout
    kept = host.path("/var/lib/gpusetup/sources")
    assert [path.name for path in kept.iterdir()] == [file.name.rpartition(".")[0]]
    lab.settled(proven)

    lab.removed(proven)
    assert (installed(host), files_below(host, *PLACES)) == before
