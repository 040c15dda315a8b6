"""RDMA's whole life on a host: Debian's real rdma-core and perftest, PAM's real limits; the driver is a stand-in, and no
adapter is there."""

import pytest

from tests.lab.applying import apply
from tests.lab.lifecycle import drift
from tests.lab.plays import files_below, packages

PLACES = ("/etc/security", "/etc/modules-load.d", "/etc/systemd/system.conf.d", "/etc/modprobe.d")
LIMITS = "/etc/security/limits.d/gpusetup-rdma.conf"
MODULES = "/etc/modules-load.d/gpusetup-rdma.conf"


@pytest.mark.slow
def test_the_distribution_s_stack_is_applied_mended_let_go_and_removed(lab):
    (host,) = lab.hosts(flavour="debian12", machine="h200-x2", network="mirror")
    before = packages(host), files_below(host, *PLACES)

    def wanted(**more):
        return lab.asking(host, gpusetup_driver="==580.*", **more)

    first = wanted(gpusetup_rdma="inbox", gpusetup_ipoib="true")
    apply(lab.folder, first).well()
    assert host.ssh("ib_write_bw", "--version", check=False).stdout.startswith("Version: ")
    login = host.ssh("sh", "-c", "ulimit -l; journalctl -b --no-pager | grep memlock", check=False).stdout
    # A machine that may not raise limits itself cannot give its hosts more; then the login says that it tried.
    assert "unlimited" in login.splitlines()[0] or "Could not set limit for 'memlock'" in login, login
    assert "ib_ipoib" in host.path(MODULES).read_text()
    lab.unchanged(first)

    host.ssh("sh", "-c", f"echo '* - memlock 64' >>{LIMITS}")
    answer, found = drift(lab.folder, first)
    assert (answer.code, list(found)) == (9, [f"file-{LIMITS}"]), answer.out
    apply(lab.folder, first).well()
    assert drift(lab.folder, first)[0].code == 0

    apply(lab.folder, wanted()).well()
    assert not {"perftest", "rdma-core"} & set(packages(host))
    assert not host.path(LIMITS).exists()
    lab.rolled_back(first)
    assert "perftest" in packages(host)
    assert host.path(MODULES).exists()

    lab.removed(first)
    assert (packages(host), files_below(host, *PLACES)) == before
