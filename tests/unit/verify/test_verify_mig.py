"""MIG slices compared with those that were applied."""

from __future__ import annotations

import pytest

from gpusetup.model.applied import SCHEMA, Applied
from gpusetup.model.settings import AppliedWanted, MigInstances, MigLayout
from gpusetup.model.stack import Stack
from gpusetup.verify.machine import Machine, Wanted
from tests.unit.verify.verify_documents import captured, results, set_smi


@pytest.mark.parametrize(
    ("slices", "verdict", "text"),
    [
        (["3g.71gb", "1c.3g.71gb", "2c.3g.71gb"], "pass", "on, 3 slices"),
        (["3g.71gb"], "fail", "GPU 0: has 1 x 3g.71gb, and 1 x 1c.3g.71gb, 1 x 2c.3g.71gb, 1 x 3g.71gb was applied"),
        ([], "fail", "GPU 0: has no slices, and 1 x 1c.3g.71gb, 1 x 2c.3g.71gb, 1 x 3g.71gb was applied"),
    ],
)
def test_slices_are_compared_with_what_was_applied(slices, verdict, text):
    document = captured("h200-x1-quick")
    for path in ("mig_mode/current_mig", "mig_mode/pending_mig"):
        set_smi(document, 0, path, "Enabled")
    document["gpus"][0]["slices"] = [{"profile": name, "uuid": f"MIG-{name}"} for name in slices]
    parts = (MigInstances(profile="3g.71gb"), MigInstances(profile="3g.71gb", compute=("1c.3g.71gb", "2c.3g.71gb")))
    layout = MigLayout(gpu=Machine(document).gpus[0].bus_id, enabled=True, instances=parts)
    found = results(document, applied_mig(layout))["gpu.mig"]
    assert (found.verdict, found.text) == (verdict, text)


def test_mig_that_is_on_where_it_was_applied_off_is_a_failure():
    document = captured("h200-x1-quick")
    for path in ("mig_mode/current_mig", "mig_mode/pending_mig"):
        set_smi(document, 0, path, "Enabled")
    document["gpus"][0]["slices"] = [{"profile": "7g.141gb", "uuid": "MIG-1"}]
    off = MigLayout(gpu=Machine(document).gpus[0].bus_id, enabled=False)
    assert results(document, applied_mig(off))["gpu.mig"].text == "GPU 0: has 1 x 7g.141gb, and off was applied"


def applied_mig(layout):
    wanted = AppliedWanted(packages=None, manage_driver=False, requirements=(), adopted=(), services=(), mig=(layout,))
    return Wanted(Applied(schema=SCHEMA, key="k", stack=Stack(), wanted=wanted))
