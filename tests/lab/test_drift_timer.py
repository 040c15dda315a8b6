"""`gpusetup drift --timer` on a host with a systemd of its own: it asks, a difference is a failed unit, and it can be ended."""

import pytest

from tests.lab.bootstrapping import first_boot, serve_bundle, user_data, wait_for_end
from tests.lab.places import SIMULATED_ROOT

pytestmark = pytest.mark.slow
GPUSETUP = "/opt/gpusetup-controller/bin/gpusetup"
INVENTORY = "/etc/gpusetup/drift here.ini"


@pytest.fixture
def machine(lab_hosts, lab_repositories):
    """A machine that came up by itself, and so has gpusetup."""
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    first_boot(host, user_data(serve_bundle(), lab_repositories))
    end = wait_for_end(host)
    assert end["state"] == "done", end
    host.path(INVENTORY).write_text(
        "localhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3 "
        f"gpusetup_simulated_root={SIMULATED_ROOT}\n"
    )
    return host


def unit(host, name, what):
    return host.ssh("systemctl", "show", name, f"--property={what}", "--value").stdout.strip()


def test_the_timer_asks_and_a_difference_is_a_failed_unit(machine):
    told = machine.ssh(GPUSETUP, "drift", INVENTORY, "--timer", "hourly")
    name = told.stdout.partition(".timer")[0]
    assert name.startswith("gpusetup-drift-"), told.stdout
    timer, service = f"{name}.timer", f"{name}.service"
    assert (unit(machine, timer, "ActiveState"), unit(machine, timer, "UnitFileState")) == ("active", "enabled")
    assert unit(machine, timer, "NextElapseUSecRealtime")

    machine.ssh("systemctl", "start", service, timeout=300)
    assert (unit(machine, service, "Result"), unit(machine, service, "ExecMainStatus")) == ("success", "0")

    machine.ssh("apt-mark", "unhold", *machine.ssh("apt-mark", "showhold").stdout.split())
    assert machine.ssh("systemctl", "start", service, timeout=300, check=False).returncode != 0
    assert (unit(machine, service, "Result"), unit(machine, service, "ExecMainStatus")) == ("exit-code", "9")
    journal = machine.ssh("journalctl", "--no-pager", "-u", service).stdout
    assert "hold" in journal
    assert "gpusetup apply" in journal, "the journal says which command mends it"

    machine.ssh(GPUSETUP, "drift", INVENTORY, "--timer", "never")
    assert machine.ssh("systemctl", "cat", timer, check=False).returncode != 0
    assert "no such timer" in machine.ssh(GPUSETUP, "drift", INVENTORY, "--timer", "never").stdout
