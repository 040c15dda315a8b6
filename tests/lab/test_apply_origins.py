"""What stands in a driver's way: another installation's files, firmware that does not know the key. Stand-ins for both."""

import json

import pytest

from tests.lab.applying import apply, gpusetup
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import loaded, packages
from tests.stored import stored

pytestmark = pytest.mark.slow
PASSWORD = "/var/lib/gpusetup/mok-password"
UNINSTALLER = stored("apply_origins_uninstaller.txt")
LEFT = "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf"


def test_a_runfile_goes_by_its_own_uninstaller_when_that_is_asked_for(wishes, lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4")
    for path, text in (
        ("/usr/bin/nvidia-uninstall", UNINSTALLER),
        ("/usr/bin/nvidia-smi", "#!/bin/sh\nexit 9\n"),
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.54.03", ""),
        (LEFT, "blacklist nouveau\noptions nouveau modeset=0\n"),
    ):
        host.path(path).write_text(text)
        host.path(path).chmod(0o755)
    inventory, before = lab.inventory([host], wishes), packages(host)

    refusal = lab.refused(inventory)
    assert refusal["reference"] == "GS-324"
    assert "535.54.03" in refusal["message"]
    assert "--replace" in refusal["hint"]
    assert packages(host) == before

    host.path("/root/uninstaller-fails").write_text("")
    failed = apply(lab.folder, inventory, "--replace")
    assert failed.code == 7, failed.out
    assert "GS-492" in failed.out
    assert packages(host) == before
    host.path("/root/uninstaller-fails").unlink()

    told = gpusetup(lab.folder, "plan", inventory, "--replace").out
    assert "cannot be undone" in " ".join(told.split())
    done = apply(lab.folder, inventory, "--replace").well()
    assert "cannot be undone" in done.err
    log = host.path("/var/log/nvidia-uninstall.log").read_text()
    assert "--silent" in log
    assert "no packages found" in log, "the uninstaller runs before the packages come"
    for path in ("/usr/bin/nvidia-uninstall", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.54.03", LEFT):
        assert not host.path(path).exists(), path
    assert "580." in loaded(host)
    assert apply(lab.folder, inventory, "--replace").hosts[host.name]["state"] == "unchanged"


def test_secure_boot_from_the_refusal_to_a_driver_that_loads(wishes, lab):
    """DKMS signs for real; mokutil, MokManager at the console and the kernel's check are stand-ins."""
    (host,) = lab.hosts(flavour="debian12", machine="t4-secure-boot")
    before, boot = packages(host), host.boot_id()
    refusal = lab.refused(lab.inventory([host], wishes))
    assert refusal["reference"] == "GS-326"
    assert "gpusetup_secure_boot=enroll" in refusal["hint"]
    assert packages(host) == before

    inventory = lab.inventory([host], {**wishes, "gpusetup_secure_boot": "enroll"})
    staged = apply(lab.folder, inventory)
    assert staged.code == 9, staged.out + staged.err
    outcome = staged.hosts[host.name]
    assert outcome["state"] == "pending-reboot"
    assert any("Enroll MOK" in text and PASSWORD in text for text in outcome["pending"]), outcome["pending"]
    assert host.boot_id() == boot, "nobody is at the console: no reboot"
    first = host.path(PASSWORD).read_text().strip()
    assert host.path(PASSWORD).stat().st_mode & 0o777 == 0o600
    assert host.path(f"{SIMULATED_ROOT}/lab/mok-new/certificate").exists()
    assert apply(lab.folder, inventory).hosts[host.name]["state"] == "pending-reboot"
    assert host.path(PASSWORD).read_text().strip() == first, "what is staged stays staged"

    host.reboot()  # nobody typed anything: the request is gone, the kernel refuses the module
    assert not loaded(host)
    again = apply(lab.folder, inventory)
    assert again.hosts[host.name]["state"] == "pending-reboot", again.out
    password = host.path(PASSWORD).read_text().strip()
    assert password != first

    host.path(f"{SIMULATED_ROOT}/lab/typed").write_text(password)
    host.reboot()
    assert "580." in loaded(host)
    resumed = apply(lab.folder, inventory).well()
    assert apply(lab.folder, inventory).hosts[host.name]["state"] == "unchanged"

    said = "".join(answer.out + answer.err for answer in (staged, again, resumed))
    said += "".join(path.read_text(errors="replace") for path in (lab.folder / "state").rglob("*") if path.is_file())
    assert first not in said
    assert password not in said


def test_a_sites_own_key_signs_when_the_firmware_knows_it(wishes, lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4-secure-boot")
    key, certificate = "/etc/ssl/private/site.key", "/etc/ssl/site.der"
    host.ssh(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=the site",
        "-outform", "DER", "-keyout", key, "-out", certificate,
    )  # fmt: skip
    host.ssh("chmod", "600", key)
    before = packages(host)
    variables = {**wishes, "gpusetup_signing_key": key, "gpusetup_signing_certificate": certificate}
    inventory = lab.inventory([host], variables)
    unknown = apply(lab.folder, inventory)
    assert "GS-495" in json.dumps(unknown.hosts), unknown.out
    assert packages(host) == before
    # What the site's own provisioning did before: the key is enrolled.
    host.ssh("sh", "-c", f"openssl passwd -6 site >/tmp/hash && mokutil --import {certificate} --hash-file /tmp/hash")
    host.path(f"{SIMULATED_ROOT}/lab/typed").write_text("site")
    host.reboot()
    apply(lab.folder, inventory).well()
    assert "580." in loaded(host)
    module = host.ssh(
        "sh", "-c", "modinfo -F signer $(find /lib/modules -name 'nvidia.ko*' -path '*dkms*' | head -1)"
    ).stdout
    assert module.strip() == "the site"
