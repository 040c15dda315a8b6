"""A finished machine looks at itself: by its timer and by hand; a new pin is applied, and nobody is surprised by a reboot."""

import json

import pytest

from tests.lab.bootstrapping import first_boot, served_lock, status, user_data, wait_for_end, wait_until
from tests.lab.plays import packages

pytestmark = pytest.mark.slow
SERVICE, TIMER = "gpusetup-recheck.service", "gpusetup-recheck.timer"
CONFIG = "/etc/gpusetup/bootstrap.json"


def test_looks_again_and_takes_a_new_pin_without_a_reboot(lab_hosts, lab_repositories, bundle):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    url, older = served_lock("recheck.lock.json", "driver==570.*")
    words = ["--lock-url", url, "--lock-digest", older, "--recheck", "20s"]
    first_boot(host, user_data(bundle, lab_repositories, *words))
    end = wait_for_end(host)
    assert end["state"] == "done", end
    assert host.ssh("systemctl", "is-enabled", TIMER).stdout.strip() == "enabled"

    # By the timer: nothing differs, nothing changes.
    wait_until(lambda: status(host).get("recheck"))
    assert status(host)["recheck"]["state"] == "same", status(host)
    before, boot = packages(host), host.boot_id()
    host.ssh("systemctl", "stop", TIMER)

    # By hand: what differs is told and left.
    host.ssh("apt-mark", "unhold", *host.ssh("apt-mark", "showhold").stdout.split())
    host.ssh("systemctl", "start", SERVICE, timeout=600)
    seen = status(host)
    assert (seen["state"], seen["recheck"]["state"]) == ("done", "drifted"), seen
    assert seen["recheck"]["differences"]
    assert "changed since it was applied" in host.path("/etc/motd.d/gpusetup").read_text()
    told = host.ssh("/opt/gpusetup-controller/bin/gpusetup", "cloud-init", "status")
    assert "drifted" in told.stdout
    assert packages(host) == before

    # Another lock is pinned: applied; the reboot that it needs waits for somebody.
    config = json.loads(host.path(CONFIG).read_text())
    _url, newer = served_lock("recheck.lock.json")
    host.path(CONFIG).write_text(json.dumps(config | {"lock_sha256": newer}))
    host.ssh("systemctl", "start", SERVICE, timeout=900)
    pending = status(host)
    assert (pending["state"], host.boot_id()) == ("pending-reboot", boot), pending
    assert any("580" in version for name, version in packages(host).items() if name.startswith("nvidia-"))
    assert host.ssh("/opt/gpusetup-controller/bin/gpusetup", "cloud-init", "status", check=False).returncode == 9

    # Somebody reboots; the timer, which starts with the machine, has the stack verified.
    host.reboot()
    host.wait()
    wait_until(lambda: status(host)["state"] == "done")
    end = status(host)
    assert (end["lock"], end["reboots"], end["boot"]) == (newer, [], host.boot_id()), end
