"""Every fault at every step of a bootstrap: it ends done or failed with the reason, and a second boot changes nothing."""

import json
import re
import threading

import pytest

from tests.lab.bootstrap_page import Row, keep
from tests.lab.bootstrapping import UNIT, first_boot, served_lock, status, user_data, wait_for, wait_for_end, wait_until
from tests.lab.plays import packages
from tests.lab.repository.build import set_fault

pytestmark = pytest.mark.slow
HELD = "import fcntl,sys,time\nf=open('/var/lib/dpkg/lock-frontend','r+b')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ntime.sleep(float(sys.argv[1]))\n"


@pytest.fixture
def machine(lab_hosts):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    return host


def ended_well(host, fault, *, said="", reboots=(1,)):
    """It came to its end, nothing is half, another boot changes nothing; a row of the table says so."""
    end = wait_for_end(host)
    assert end["state"] == "done", json.dumps(end, indent=1)
    assert len(end["reboots"]) in reboots, end["reboots"]
    assert host.ssh("dpkg", "--audit").stdout == ""
    assert not host.path(f"/etc/systemd/system/{UNIT}").exists()
    changes_nothing_again(host)
    keep(Row(fault=fault, said=said, end="done", reboots=len(end["reboots"])))


def in_words(failed):
    """A failure as people read it, without what differs from run to run."""
    words = " ".join(failed["last_error"]["message"].split())
    words = re.sub(r"process \d+", "process N", re.sub(r"[0-9a-f]{64}", "…", words))
    return f"failed: {words[:160]} [{failed['last_error']['reference']}]"


def changes_nothing_again(host):
    before, record = packages(host), status(host)
    host.reboot()
    host.wait()
    assert packages(host) == before
    assert status(host) == record
    assert host.ssh("systemctl", "is-active", UNIT, check=False).stdout.strip() in {"inactive", "failed"}


def unpacking(host):
    log = host.path("/var/log/dpkg.log")
    return log.exists() and "status half-installed nvidia" in log.read_text()


def applying(host):
    return status(host)["state"] == "applying"


STEPS = {
    "gpusetup is fetched": lambda host: status(host)["state"] == "preparing", "the stack is planned": applying,
    "packages are unpacked": unpacking,
    "the module is built": lambda host: any(host.path("/var/lib/dkms").glob("nvidia*/*/build")),
    "it reboots": lambda host: status(host)["state"] == "rebooting",
}  # fmt: skip
LONG = {"packages are unpacked": "nvidia-kernel-support", "the module is built": "dkms-build"}
"""What takes long for the moment, so that a step can be met."""


def disturb(machine, text, step):
    """Boot, and return when the step has come."""
    if step in LONG:
        machine.break_packages(LONG[step], "sleep 4")
    first_boot(machine, text)
    wait_until(lambda: STEPS[step](machine), host=machine)
    if step in LONG:
        machine.break_packages(LONG[step], "")


@pytest.mark.parametrize("step", STEPS)
def test_power_cut(machine, lab_repositories, bundle, step):
    disturb(machine, user_data(bundle, lab_repositories), step)
    machine.power_cut()
    machine.power_on(wait=False)
    # The cut may itself bring the boot that the bootstrap would have asked for.
    ended_well(machine, f"power cut while {step}", reboots=(0, 1))


@pytest.mark.parametrize("step", STEPS)
def test_killed(machine, lab_repositories, bundle, step):
    disturb(machine, user_data(bundle, lab_repositories), step)
    # On its way down the machine may have ended it already.
    machine.ssh("systemctl", "kill", "--signal=KILL", "--kill-who=main", UNIT, check=step != "it reboots")
    ended_well(machine, f"killed (SIGKILL) while {step}")


@pytest.mark.parametrize("step", [step for step in STEPS if step != "it reboots"])
def test_a_user_reboots_in_the_middle(machine, lab_repositories, bundle, step):
    disturb(machine, user_data(bundle, lab_repositories), step)
    machine.reboot()
    ended_well(machine, f"a user reboots while {step}", reboots=(0, 1))


@pytest.mark.parametrize("what", ["bundle", "packages"])
def test_a_mirror_answers_503_for_a_while(machine, lab_repositories, bundle, what):
    token = f"bootstrap{what}"
    faulty = lab_repositories.with_fault(token, "503")
    text, state = {
        "bundle": (user_data(bundle, lab_repositories, source=bundle.faulty(token)), "preparing"),
        "packages": (user_data(bundle, faulty), "retrying"),
    }[what]
    first_boot(machine, text)
    wait_until(lambda: status(machine)["state"] == state, host=machine)
    said = " ".join(status(machine)["doing"].split())[:160]
    threading.Timer(5, set_fault, (token, "")).start()
    ended_well(machine, f"the server of the {what} answers 503 for a while", said=said)


def test_a_full_disk_is_said_and_mended(lab_hosts, lab_repositories, bundle):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4", disks={"/": 1600})
    first_boot(host, user_data(bundle, lab_repositories))
    wait_until(lambda: applying(host), host=host)
    host.freeze()  # while it writes, there is no telling how much is left
    host.fill_disk("/")
    host.thaw()
    end = wait_for(host, {"failed"})
    assert re.search("No space left|is full|free", end["last_error"]["message"]), end
    assert "Traceback" not in host.path("/var/log/gpusetup-bootstrap.log").read_text()
    wait_until(lambda: host.ssh("systemctl", "is-failed", UNIT, check=False).stdout.strip() == "failed", 60)
    host.free_disk("/")
    host.ssh("systemctl", "restart", "--no-block", UNIT)
    wait_for(host, {"waiting", "applying"})
    ended_well(host, "the disk is full; mended, started again", said=in_words(end), reboots=(0, 1))


def test_dpkgs_lock_is_waited_for_and_named_when_it_stays(machine, lab_repositories, bundle):
    text = user_data(bundle, lab_repositories)
    config = next(line for line in text.splitlines() if line.strip().startswith('{"source"'))
    short = config[:-1] + ',"wait_deadline":20}'
    machine.path("/root/hold.py").write_text(HELD)
    machine.path("/etc/systemd/system/hold.service").write_text(
        "[Unit]\nBefore=cloud-init-local.service\nDefaultDependencies=no\nAfter=systemd-remount-fs.service\n"
        "[Service]\nExecStart=/usr/bin/python3 /root/hold.py 3600\n[Install]\nWantedBy=sysinit.target\n"
    )
    machine.ssh("systemctl", "enable", "hold.service")
    first_boot(machine, text.replace(config, short))
    end = wait_for_end(machine)
    assert (end["state"], end["last_error"]["reference"]) == ("failed", "GS-745"), end
    assert "lock-frontend" in end["last_error"]["message"]
    assert "python3" in end["last_error"]["message"]
    told = json.loads(machine.ssh("cloud-init", "status", "--wait", "--format", "json", check=False).stdout)
    assert told["status"] == "error"
    machine.ssh("systemctl", "disable", "hold.service")
    machine.ssh("systemctl", "restart", "--no-block", UNIT)
    wait_for(machine, {"waiting"})
    machine.ssh("systemctl", "stop", "hold.service")
    ended_well(machine, "another program holds dpkg's lock past the deadline; ended, started again", said=in_words(end))


def test_pulled_lock(machine, lab_repositories, bundle):
    """No stack in the user-data: a URL and a digest; another file there is refused."""
    url, digest = served_lock("bootstrap.lock.json", more=b" ")
    first_boot(machine, user_data(bundle, lab_repositories, "--lock-url", url, "--lock-digest", digest))
    end = wait_for_end(machine)
    assert (end["state"], end["last_error"]["reference"]) == ("failed", "GS-751"), end
    served_lock("bootstrap.lock.json")
    machine.ssh("systemctl", "restart", "--no-block", UNIT)
    wait_for(machine, {"waiting", "fetching", "applying"})
    ended_well(machine, "the pulled lock has another digest; mended, started again", said=in_words(end))
