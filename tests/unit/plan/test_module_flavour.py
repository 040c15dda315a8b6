"""A GPU older than Turing with open kernel modules: resolve, plan and doctor say in the same words what it needs."""

import json
import shutil

import msgspec
import pytest

from gpusetup.cli.doctor_hosts import captured
from gpusetup.cli.main import main
from gpusetup.doctor.diagnose import diagnose
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.request import DriverCandidate
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import request_for
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.unit.doctor.test_machines import HEALTHY
from tests.unit.plan.conftest import preview

SENTENCE = "(Volta) works only with the proprietary kernel modules"
GPUS = {"0x1db6": "Volta", "0x15f8": "Pascal", "0x1401": "Maxwell"}


def machine(folder, device):
    """A machine with a working-looking 580 driver, open modules, and another GPU than those drive."""
    root = folder / "root"
    shutil.copytree(HEALTHY, root, symlinks=True)
    (root / "sys/bus/pci/devices/0000:00:06.0/device").write_text(f"{device}\n", encoding="ascii")
    return captured(root, matrix_lookup(matrix()))


@pytest.mark.parametrize("device", GPUS)
def test_resolve_plan_and_doctor_say_the_same(tmp_path, planner, device):
    look = machine(tmp_path, device)
    said = f"({GPUS[device]}) works only with the proprietary kernel modules"
    answer = resolve(request_for(look.facts, Settings(requirements=parse_requirements(["driver"]))), matrix())
    assert answer.stack.driver is not None
    assert (answer.stack.driver.module, answer.stack.driver.installed) == ("proprietary", False)
    assert any(said in reason.text for reason in answer.reasons)
    assert any(said in text and "open ones that are installed" in text for text in answer.warnings)
    cause = diagnose(look).cause
    assert cause is not None
    assert cause.cause == "open-module-pre-turing"
    assert any(said in ruled.text for ruled in diagnose(look).ruled)


def test_the_very_version_that_is_installed_open_is_not_what_was_asked_for(tmp_path, planner):
    """It used to be called unchanged: the version is right, the flavour cannot drive the GPU."""
    look = machine(tmp_path, "0x1db6")
    version = look.facts.driver.version if look.facts.driver else None
    wishes = Settings(requirements=parse_requirements([f"driver=={version}"]))
    draft = planner.first(look.facts, wishes)
    assert draft.stage == "offers", "the repositories are asked for the other flavour"
    refused = planner.second(look.facts, wishes, preview({})).plan
    assert refused.state != "unchanged"
    assert "installed, works and fits" not in str(refused)


def test_what_plan_asks_with_its_repositories_is_answered_with_it_once(tmp_path):
    look = machine(tmp_path, "0x1db6")
    candidates = {"580.178.04": ("proprietary",)}
    offered = tuple(DriverCandidate(version=version, modules=modules) for version, modules in candidates.items())
    answer = resolve(request_for(look.facts, Settings(), offered), matrix())
    assert [text for text in answer.warnings if SENTENCE in text] == [
        f"Tesla V100 PCIe 32GB {SENTENCE}: the open ones that are installed must be removed"
    ]


def test_resolve_from_facts_prints_it(tmp_path, capsys):
    look = machine(tmp_path, "0x1db6")
    document = {
        "schema": "gpusetup/facts/1",
        "ok": True,
        "hosts": {"node": json.loads(msgspec.json.encode(look.facts))},
    }
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert main(["resolve", "driver", "--from", str(path)]) == 0
    out = capsys.readouterr()
    assert SENTENCE in " ".join((out.out + out.err).split())


@pytest.mark.parametrize("flavour", ["proprietary", None])
def test_the_right_flavour_stays(flavour):
    from gpusetup.model.request import Request

    request = Request(
        gpus=("v100",),
        requirements=parse_requirements(["driver"]),
        installed_driver="580.126.09",
        installed_module=flavour,
    )
    answer = resolve(request, matrix())
    assert answer.stack.driver is not None
    assert answer.stack.driver.installed
    assert not any("have to go" in text for text in answer.warnings)
