"""A vGPU's licence: the token, the daemon's settings and what becomes of them. nvidia-gridd and the licence are stand-ins;
systemd, files and SSH are real."""

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.plays import files_below
from tests.stored import stored

GRIDD = stored("licence_gridd.txt")
UNIT = """[Service]
ExecStartPre=/bin/rm -f /run/licensed
ExecStart=/usr/local/sbin/stand-in-gridd
[Install]
WantedBy=multi-user.target
"""
SMI = stored("licence_smi.txt")
CONF = "# of the site\nServerAddress=old.example.org\nFeatureType=0\n"
PLACES = ("/etc/nvidia",)


def with_gridd(host):
    """Install the stand-ins, and a site's own settings."""
    for path, text, mode in (
        ("/usr/local/sbin/stand-in-gridd", GRIDD, "755"),
        ("/usr/lib/systemd/system/nvidia-gridd.service", UNIT, "644"),
        ("/usr/local/bin/nvidia-smi", SMI, "755"),
        ("/etc/nvidia/gridd.conf", CONF, "644"),
    ):
        place = host.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        host.ssh("chmod", mode, path)
    host.ssh("sh", "-c", "systemctl daemon-reload && systemctl enable --now nvidia-gridd")


@pytest.mark.slow
def test_a_stand_in_daemon_is_licensed_refused_and_left_as_it_was(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    token = lab.folder / "site.tok"
    token.write_text("good 0f1e2d3c\n")
    inventory = lab.asking(host, gpusetup_vgpu_token=str(token), gpusetup_vgpu_feature="workstation")
    refused = apply(lab.folder, inventory)
    assert (refused.code, "nvidia-gridd" in refused.out) == (5, True), refused.out + refused.err
    with_gridd(host)
    before = files_below(host, *PLACES)

    done = apply(lab.folder, inventory).well()
    place = host.path("/etc/nvidia/ClientConfigToken/client_configuration_token_gpusetup.tok")
    assert (place.read_text(), place.stat().st_mode & 0o777) == (token.read_text(), 0o600)
    conf = host.path("/etc/nvidia/gridd.conf").read_text()
    assert "FeatureType=2\n" in conf
    assert "\nServerAddress" not in conf
    assert host.ssh("test", "-e", "/run/licensed", check=False).returncode == 0
    lab.unchanged(inventory)

    host.path("/etc/nvidia/gridd.conf").write_text(CONF)
    assert "gridd.conf" in gpusetup(lab.folder, "drift", inventory).out
    apply(lab.folder, inventory).well()
    assert "FeatureType=2\n" in host.path("/etc/nvidia/gridd.conf").read_text()

    token.write_text("bad 4b5a6978\n")
    plan = gpusetup(lab.folder, "plan", inventory)
    assert "another token is there" in plan.out
    failed = apply(lab.folder, inventory, "-e", "gpu_licence_wait=4")
    assert (failed.code, "GS-431" in failed.out) == (7, True), failed.out + failed.err
    assert "good" in place.read_text(), "the one that worked is back"
    assert host.ssh("test", "-e", "/run/licensed", check=False).returncode == 0
    for said in (failed.out, failed.err, plan.out, done.out):
        assert "4b5a6978" not in said
        assert "0f1e2d3c" not in said
    written = [path.read_bytes() for path in lab.folder.rglob("*") if path.is_file() and path != token]
    assert not [content for content in written if b"4b5a6978" in content or b"0f1e2d3c" in content]
    assert "0f1e2d3c" not in host.path("/var/lib/gpusetup/state.json").read_text()

    token.write_text("good 0f1e2d3c\n")
    apply(lab.folder, inventory).well()
    lab.removed(inventory)
    assert files_below(host, *PLACES) == before
