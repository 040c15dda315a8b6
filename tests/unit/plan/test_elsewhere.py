"""Facts, plan, drift, doctor and resolver say the same: where apply refuses, never `apply`; where it reboots, a reboot."""

import pytest

from gpusetup.cli.drift import _compared
from gpusetup.cli.main import main
from gpusetup.matrix.load import matrix
from gpusetup.plan.preflight import apply_refused
from gpusetup.resolve.api import resolve
from tests.hosts.machines import HOSTS, machine
from tests.unit.plan.conftest import DRIVER, planner

WSL, VGPU = "ubuntu22.04-wsl-refused", "ubuntu22.04-l4vgpu-grid"
CONTAINER, TWO = "debian12-t4-container-refused", "ubuntu24.04-gtx1080ti-rtx5090-nostack"


@pytest.mark.parametrize(
    ("name", "reference", "said"), [(WSL, "GS-322", "driver of Windows"), (VGPU, "GS-323", "vGPU"), (TWO, "GS-210", "")]
)
def test_nobody_is_told_to_apply_where_apply_refuses(name, reference, said, capsys):
    refusal = apply_refused(machine(name), matrix(), resolve)
    assert (refusal.reference, said in refusal.message) == (reference, True)
    if name != WSL:  # no GPU is on PCI there: drift has nothing to compare
        compared = _compared(machine(name), "localhost", None)
        assert (compared.state, compared.mend, compared.refusals[0].reference) == ("not-applied", "", reference)
    assert planner.first(machine(name), DRIVER).plan.state == "refused"
    main(["doctor", "--root", str(HOSTS / name / "root")])
    assert "gpusetup apply" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ubuntu24.04-rtx4090-open", "ubuntu24.04-h200x8-keep", CONTAINER])
def test_other_machines_are_told_to_apply_and_a_container_without_a_driver_is_sent_to_its_host(name):
    assert apply_refused(machine(name), matrix(), resolve) is None
    alone = apply_refused(machine(name, driver=None), matrix(), resolve)
    assert (alone is not None and "host that starts the container" in alone.hint) is (name == CONTAINER)
