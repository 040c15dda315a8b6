"""A GPU older than Turing with open kernel modules: resolve, plan and doctor say in the same words what it needs."""

import shutil

import msgspec
import pytest

from gpusetup.cli.doctor_hosts import captured
from gpusetup.cli.main import main
from gpusetup.doctor.diagnose import diagnose
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Facts
from gpusetup.model.request import DriverCandidate
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import request_for
from gpusetup.resolve.api import resolve
from tests.unit.doctor.test_machines import HEALTHY
from tests.unit.plan.conftest import DRIVER, asked, preview, resolved

SAID = "({}) works only with the proprietary kernel modules"


@pytest.fixture
def machine(tmp_path):
    """Make a machine with a working-looking 580 driver, open modules, and another GPU than those drive."""

    def make(device="0x1db6"):
        root = tmp_path / "root"
        shutil.copytree(HEALTHY, root, symlinks=True)
        (root / "sys/bus/pci/devices/0000:00:06.0/device").write_text(f"{device}\n", encoding="ascii")
        return captured(root, matrix_lookup(matrix()))

    return make


@pytest.mark.parametrize(("device", "architecture"), [("0x1db6", "Volta"), ("0x15f8", "Pascal"), ("0x1401", "Maxwell")])
def test_resolve_plan_and_doctor_say_the_same(machine, device, architecture):
    look, said = machine(device), SAID.format(architecture)
    answer = resolve(request_for(look.facts, DRIVER), matrix())
    assert (answer.stack.driver.module, answer.stack.driver.installed) == ("proprietary", False)
    assert any(said in reason.text for reason in answer.reasons)
    assert any(said in text and "open ones that are installed" in text for text in answer.warnings)
    found = diagnose(look)
    assert found.cause.cause == "open-module-pre-turing"
    assert any(said in ruled.text for ruled in found.ruled)


def test_the_very_version_that_is_installed_open_is_not_what_was_asked_for(machine, planner):
    """It used to be called unchanged: the version is right, the flavour cannot drive the GPU."""
    look = machine()
    wishes = asked(f"driver=={look.facts.driver.version}")
    assert planner.first(look.facts, wishes).stage == "offers", "the repositories are asked for the other flavour"
    plan = planner.second(look.facts, wishes, preview({})).plan
    assert (plan.state == "unchanged", "installed, works and fits" in str(plan)) == (False, False)


def test_what_plan_asks_with_its_repositories_is_answered_with_it_once(machine):
    offered = (DriverCandidate(version="580.178.04", modules=("proprietary",)),)
    answer = resolve(request_for(machine().facts, Settings(), offered), matrix())
    said = SAID.format("Volta")
    assert [text for text in answer.warnings if said in text] == [
        f"Tesla V100 PCIe 32GB {said}: the open ones that are installed must be removed"
    ]


def test_resolve_from_facts_prints_it(machine, tmp_path, capsys):
    path = tmp_path / "facts.json"
    path.write_bytes(msgspec.json.encode(Facts(hosts={"node": machine().facts})))
    assert main(["resolve", "driver", "--from", str(path)]) == 0
    out = capsys.readouterr()
    assert SAID.format("Volta") in " ".join((out.out + out.err).split())


@pytest.mark.parametrize("flavour", ["proprietary", None])
def test_the_right_flavour_stays(flavour):
    answer = resolved("driver", gpus=("v100",), installed_driver="580.126.09", installed_module=flavour)
    assert answer.stack.driver.installed
    assert not any("have to go" in text for text in answer.warnings)
