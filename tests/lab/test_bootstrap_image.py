"""Golden images: a machine without a GPU becomes an image; its copies, with GPUs and seeds of their own, verify themselves."""

import json

import pytest

from tests.lab.bootstrapping import FINAL, UNIT, first_boot, seed, status, user_data, wait_for, wait_for_end, wait_until
from tests.lab.imaging import copy_disk
from tests.lab.plays import packages

pytestmark = pytest.mark.slow
PER_BOOT = "/var/lib/cloud/scripts/per-boot/50-gpusetup"


def test_an_image_and_two_copies_of_it(lab_hosts, lab_repositories, bundle, tmp_path):
    (builder,) = lab_hosts(flavour="debian12-cloud", machine="none")
    (tmp_path / "token").write_text("not-for-copies\n")
    words = ["--stage", "image", "--callback", "http://127.0.0.1:9/", "--token-file", str(tmp_path / "token")]
    first_boot(builder, user_data(bundle, lab_repositories, *words))
    ready = wait_for_end(builder)
    assert (ready["state"], ready.get("reboots", [])) == ("sealed", []), ready
    image = packages(builder)
    assert "nvidia-kernel-support" in image
    told = json.loads(
        builder.ssh("/opt/gpusetup-controller/bin/gpusetup", "cloud-init", "status", "--format", "json").stdout
    )
    assert told["state"] == "sealed"
    assert builder.ssh("systemctl", "is-enabled", UNIT, check=False).stdout.strip() == "disabled"
    builder.power_cut()
    assert builder.path("/etc/machine-id").read_text() == ""
    assert not list(builder.path("/var/lib/cloud").glob("instance*"))
    assert not builder.path("/var/lib/cloud/seed").exists()
    assert not builder.path("/etc/gpusetup/callback.token").exists()
    assert builder.path(PER_BOOT).exists()

    copies = lab_hosts(one={"flavour": builder.spec.flavour, "machine": "t4"},
                       two={"flavour": builder.spec.flavour, "machine": "t4-x4"})  # fmt: skip
    for copy in copies:
        copy.power_cut()
        copy_disk(builder, copy)
        seed(copy, "#cloud-config\nwrite_files:\n- {path: /etc/whose, content: mine}\n")
        copy.power_on(wait=False)
    for copy in copies:
        wait_until(lambda copy=copy: status(copy).get("boot", ready["boot"]) != ready["boot"])
        wait_for(copy, FINAL)
        end = wait_for_end(copy)
        assert (end["state"], end.get("reboots", []), end["simulated"]) == ("done", [], True), end
        assert end["verified"]
        assert packages(copy) == image
        assert copy.path("/etc/whose").read_text() == "mine"
        assert not copy.path(PER_BOOT).exists()
        assert not copy.path(f"/etc/systemd/system/{UNIT}").exists()
        assert json.loads(copy.ssh("cloud-init", "status", "--wait", "--format", "json").stdout)["status"] == "done"
        assert "580" in copy.ssh("cat", "/var/lib/gpusetup-lab/simulated/proc/driver/nvidia/version").stdout
    assert len({copy.path("/etc/machine-id").read_text().strip() for copy in copies} - {""}) == 2
