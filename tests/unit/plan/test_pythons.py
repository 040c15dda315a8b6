"""The Python that an environment is made with: a host's own, a package of its distribution, or a way out in words."""

import msgspec
import pytest

from gpusetup.components.base import Offers
from gpusetup.components.python.requirements import interpreter_of, packaged_patterns, pythons_of, system_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Python
from gpusetup.model.plan import Offer
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import described_host
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from gpusetup.versions import nv
from tests.hosts.machines import machine
from tests.unit.plan.conftest import preview

NAMES = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "dkms")


def wishes(*texts, **fields):
    return Settings(requirements=parse_requirements(list(texts)), cuda_from="wheels", **fields)


def offered(facts, planner, *pythons):
    """An answer of repositories that have a driver for every row, and packages of these Pythons."""
    newest = resolve(Request(gpus=("a100",), os=facts.os.label), matrix()).stack.driver
    assert newest is not None
    del planner
    rows = dict.fromkeys(NAMES, newest.version)
    rows |= {f"python{version}": f"{version}.7" for version in pythons}
    rows |= {f"python{version}-pip": "23.2" for version in pythons}
    candidates = {
        name: [{"version": f"{version}-1.el9", "size": 1000, "transitional": False, "source": "lab"}]
        for name, version in rows.items()
    }
    return preview(candidates)


@pytest.fixture
def rocky(host):
    facts = host("rocky9-a100-open")
    return msgspec.structs.replace(
        facts, firmware=msgspec.structs.replace(facts.firmware, uefi=False), secure_boot=False
    )


def stack(*texts, **fields):
    return resolve(Request(requirements=parse_requirements(list(texts)), **fields), matrix()).stack


def test_the_repositories_are_asked_for_the_distributions_pythons(planner, rocky):
    draft = planner.first(rocky, wishes("torch"))
    assert draft.stage == "offers"
    assert {"python3.12", "python3.12-pip", "python3.11"} <= set(draft.ask.gpu_preflight_candidates)


def test_a_newer_python_comes_in_the_same_transaction_and_makes_the_environment(planner, rocky):
    plan = planner.second(rocky, wishes("torch"), offered(rocky, planner, "3.12", "3.11")).plan
    assert plan.state == "change", plan.refusals
    assert plan.variables.gpu_python_interpreter == "/usr/bin/python3.12"
    brought = [package.name for package in plan.variables.gpu_packages_prerequisites]
    assert {"python3.12", "python3.12-pip"} <= set(brought)
    (action,) = [action for action in plan.actions if action.id == "install-python"]
    assert "python3.12" in action.what
    assert "base Python is too old" in action.why
    assert any("base Python is 3.9" in reason.text for reason in plan.reasons)
    assert plan.lock.wanted is not None
    assert plan.lock.wanted.packages is not None
    assert plan.lock.wanted.interpreter == "/usr/bin/python3.12"
    assert "python3.12" in str(plan.lock.wanted.packages.python)


def test_what_was_applied_is_planned_from_its_record_with_its_python(planner, rocky):
    lock = planner.second(rocky, wishes("torch"), offered(rocky, planner, "3.12")).plan.lock
    again = planner.recorded(rocky, wishes("torch"), lock).plan
    assert again.variables.gpu_python_interpreter == "/usr/bin/python3.12"


def test_only_pythons_that_the_repositories_have_count(planner, rocky):
    eleven = planner.second(rocky, wishes("torch"), offered(rocky, planner, "3.11")).plan
    assert eleven.variables.gpu_python_interpreter == "/usr/bin/python3.11"
    none = planner.second(rocky, wishes("torch"), offered(rocky, planner)).plan
    assert none.variables.gpu_python_interpreter == ""
    assert none.stack is not None
    assert none.stack.python is not None
    assert none.stack.python.version == "3.9"
    assert eleven.stack is not None
    assert nv(eleven.stack.torch.version) > nv(none.stack.torch.version)


def test_a_python_that_is_nowhere_is_refused_with_the_way_out(planner, rocky):
    with pytest.raises(PreflightError) as caught:
        planner.first(rocky, wishes("torch", "python==3.13"))
    assert caught.value.reference == "GS-334"
    assert "it packages 3.12, 3.11" in caught.value.note
    assert "uv python install 3.13" in caught.value.hint
    named = Python(path="/opt/python/bin/python3.13", version="3.13", ensurepip=True)
    there = msgspec.structs.replace(rocky, pythons=(*rocky.pythons, named))
    answer = offered(rocky, planner, "3.12")
    plan = planner.second(there, wishes("torch", "python==3.13"), answer).plan
    assert plan.variables.gpu_python_interpreter == named.path


def test_a_named_interpreter_decides_the_stack(planner, rocky):
    named = Python(path="/opt/python/bin/python3.11", version="3.11", ensurepip=True)
    there = msgspec.structs.replace(rocky, pythons=(*rocky.pythons, named))
    settings = wishes("torch", python_interpreter=named.path)
    plan = planner.second(there, settings, offered(rocky, planner, "3.12")).plan
    assert plan.variables.gpu_python_interpreter == named.path
    assert plan.stack is not None
    assert plan.stack.python is not None
    assert plan.stack.python.version == "3.11"
    assert "python3.12" not in str(plan.variables.gpu_packages_prerequisites)


def test_an_environment_of_another_python_is_made_anew(planner, rocky):
    plan = planner.second(rocky, wishes("torch"), offered(rocky, planner, "3.12")).plan
    pin = next(line for line in plan.variables.gpu_python_requirements if line.startswith("torch=="))
    version = pin.partition("==")[2]
    for python, wanted in (("3.9", True), ("3.12", False)):
        old = Python(path="/opt/gpusetup/bin/python3", version=python, ensurepip=True, packages={"torch": version})
        there = msgspec.structs.replace(rocky, pythons=(*rocky.pythons, old))
        ids = [action.id for action in planner.recorded(there, wishes("torch"), plan.lock).plan.actions]
        assert ("python-packages" in ids) is wanted


def test_a_host_of_an_unknown_distribution_tells_its_python_itself():
    facts = machine("rocky9-a100-open")
    kylin = msgspec.structs.replace(facts, os=msgspec.structs.replace(facts.os, id="kylin", version_id="V11"))
    nothing = Offers(None)
    assert pythons_of(kylin, Settings(), None, nothing) == ("3.9",)
    bare = msgspec.structs.replace(kylin, pythons=())
    assert pythons_of(bare, Settings(), None, nothing) is None


def test_a_release_candidate_comes_only_when_it_is_asked_for():
    system = next(item for item in matrix().os.systems if item.id == "ubuntu22.04")
    facts = machine("ubuntu22.04-a100-mismatch")
    everything = Offers({name: (Offer(version="1"),) for name in packaged_patterns(system)})
    assert pythons_of(facts, Settings(), system, everything) == ("3.10",)
    asked = interpreter_of(facts, Settings(), stack("torch", "python==3.11", os="ubuntu22.04"), system)
    assert [package.name for package in asked.packages] == ["python3.11", "python3.11-venv"]


@pytest.mark.parametrize("system", matrix().os.systems, ids=lambda system: system.id)
def test_every_chosen_python_has_a_way_onto_its_distribution(system):
    facts = described_host(Request(os=system.id, arch="x86_64"))
    assert system_of(matrix(), facts) == system
    for gpu in ("t4", "a100"):
        found = stack("torch", gpus=(gpu,), os=system.id)
        interpreter = interpreter_of(facts, Settings(), found, system)
        own = found.python.version in {None, system.python}
        assert bool(interpreter.path) != own
        assert own or interpreter.packages
