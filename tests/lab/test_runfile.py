"""A driver from NVIDIA's `.run` installer, its whole life: the file is a stand-in (README.md), DKMS and kernel headers are real."""

import hashlib

import pytest

from tests.lab import runfile
from tests.lab.applying import apply
from tests.lab.plays import files_below, packages

OLDER, NEWER = "580.142", "580.159.04"
PLACES = ("/etc/modprobe.d", "/etc/modules-load.d", "/usr/src", "/usr/bin", "/etc/systemd/system")


def loaded(host):
    return str(host.ssh("nvidia-smi", check=False).stdout)


@pytest.mark.slow
def test_from_a_file_to_another_to_packages_and_away(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    before = packages(host), {path for path in files_below(host, *PLACES) if "nvidia" in path}
    older, newer = (runfile.write(host.path("/root"), version) for version in (OLDER, NEWER))

    def wanted(file, **more):
        source = {"gpusetup_source": f"/root/{file.name}", "gpusetup_components": '["driver"]', **more}
        return lab.inventory([host], source)

    digest = hashlib.sha256(older.read_bytes()).hexdigest()
    first = wanted(older, gpusetup_source_sha256=digest)
    apply(lab.folder, first).well()
    assert OLDER in loaded(host)
    assert f"nvidia/{OLDER}" in host.ssh("dkms", "status").stdout.replace(", ", "/", 1)
    assert "--kernel-module-type=open" in host.path("/var/log/nvidia-installer.log").read_text()
    assert not list(host.path("/var/lib/gpusetup").glob("runfile-*")), "what was unpacked is gone"
    lab.settled(first)

    up = apply(lab.folder, wanted(newer)).well()
    assert NEWER in loaded(host)
    assert f"only its owner vouches for {newer.name}" not in up.out

    apply(lab.folder, lab.asking(host, gpusetup_driver="570.*")).well()
    assert "570.211.01" in loaded(host)
    assert not host.path("/usr/bin/nvidia-uninstall").exists()

    lab.removed(first)
    assert packages(host) == before[0]

    host.reboot()
    apply(lab.folder, first).well()
    lab.removed(first)
    assert not host.path("/usr/bin/nvidia-uninstall").exists()
    left = {path for path in files_below(host, *PLACES) if "nvidia" in path}
    assert (packages(host), left) == before
